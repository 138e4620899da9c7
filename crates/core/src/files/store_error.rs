//! What an error of the store means.

use std::io;

use crate::domain::ids::FileId;
use crate::error::{Code, Error};

/// What S3-compatible stores answer when they have no room left.
const FULL: [&str; 3] = [
    "507 Insufficient Storage",
    "XMinioStorageFull",
    "QuotaExceeded",
];

/// The error of a call to the store.
pub(super) fn store_error(error: object_store::Error) -> Error {
    if let object_store::Error::NotFound { path, .. } = &error {
        // The last part only: the id. The rest would tell where the store is.
        let id = path.rsplit('/').next().unwrap_or_default().to_owned();
        return not_found(&id).with_source(error);
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        let full = if let Some(io) = inner.downcast_ref::<io::Error>() {
            is_full(io)
        } else {
            // The types of a bucket's answers are not ours to see.
            let text = inner.to_string();
            FULL.iter().any(|sign| text.contains(sign))
        };
        if full {
            return no_room().with_source(error);
        }
        cause = inner.source();
    }
    failed().with_source(error)
}

/// The error of a call to the file system about a file's content.
pub(super) fn io_error(id: FileId, error: io::Error) -> Error {
    let mapped = match error.kind() {
        io::ErrorKind::NotFound => not_found(&id.to_string()),
        _ if is_full(&error) => no_room(),
        _ => failed(),
    };
    mapped.with_source(error)
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn not_found(id: &str) -> Error {
    Error::new(
        Code::FileNotFound,
        format!("file {id} is not in the object store"),
    )
}

fn no_room() -> Error {
    Error::new(
        Code::StorageFull,
        "the object store has no room left; try again when an operator has made some",
    )
}

fn failed() -> Error {
    Error::new(
        Code::StoreUnavailable,
        "the object store cannot be used now; try again",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_faults() {
        // The device on which nothing fits gives the error as the kernel does.
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .and_then(|mut device| device.write_all(b"x"))
            .expect_err("nothing fits");
        let of = |source: io::Error| {
            store_error(object_store::Error::Generic {
                store: "test",
                source: source.into(),
            })
        };
        assert_eq!(of(full).code(), Code::StorageFull);
        let answer = "Server returned non-2xx status code: 507 Insufficient Storage: <Error/>";
        assert_eq!(
            of(io::Error::other("broken")).code(),
            Code::StoreUnavailable
        );
        let full = object_store::Error::Generic {
            store: "test",
            source: answer.into(),
        };
        assert_eq!(store_error(full).code(), Code::StorageFull);
    }
}

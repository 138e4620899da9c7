//! Where the bytes of an upload come from.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::errors::Failure;

/// So much of standard input is kept to be sent: the largest file that the services take
/// where they are not set up otherwise.
const MAX_SPOOL_BYTES: u64 = 1 << 30;

/// Where the bytes come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A file, or a pipe that can be read once.
    Path {
        /// Where it is.
        path: PathBuf,
        /// Whether it is a file.
        regular: bool,
    },
    /// Standard input, kept in a file without a name, which goes away with this process.
    Spooled(File),
}

impl Source {
    /// Looks at a path; `-` reads standard input to its end.
    pub(super) async fn of(path: PathBuf) -> Result<Self, Failure> {
        if path == Path::new("-") {
            let spooled = tokio::task::spawn_blocking(|| {
                spool(&mut std::io::stdin().lock(), MAX_SPOOL_BYTES)
            });
            return spooled
                .await
                .context("standard input was not read")?
                .map(Self::Spooled);
        }
        let found = std::fs::metadata(&path)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        if found.is_dir() {
            return Err(Failure::usage(format!("{} is a folder", path.display())));
        }
        let regular = found.is_file();
        Ok(Self::Path { path, regular })
    }

    /// Whether it can be read again, and has a size before its end.
    pub(super) fn is_regular(&self) -> bool {
        match self {
            Self::Path { regular, .. } => *regular,
            Self::Spooled(_) => true,
        }
    }

    /// A name for people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Path { path, .. } => path.file_name().map_or_else(
                || "upload".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            ),
            Self::Spooled(_) => "stdin".to_owned(),
        }
    }

    /// The bytes from the beginning. Of what was spooled there is one reader at a time.
    pub(super) fn open(&self) -> Result<File, Failure> {
        let opened = match self {
            Self::Path { path, .. } => File::open(path),
            Self::Spooled(file) => file.try_clone().and_then(|mut file| {
                file.rewind()?;
                Ok(file)
            }),
        };
        Ok(opened.with_context(|| format!("cannot read {self}"))?)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { path, .. } => path.display().fmt(f),
            Self::Spooled(_) => f.write_str("standard input"),
        }
    }
}

/// Copies a stream into a temporary file.
fn spool(from: &mut impl Read, most: u64) -> Result<File, Failure> {
    let problem = || {
        let folder = std::env::temp_dir();
        format!("cannot keep standard input in {}", folder.display())
    };
    let mut file = tempfile::tempfile().with_context(problem)?;
    let copied = std::io::copy(&mut from.take(most + 1), &mut file).with_context(problem)?;
    if copied > most {
        return Err(Failure::usage(format!(
            "standard input has more than {most} bytes; write it to a file and upload that"
        )));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Exit;

    #[test]
    fn what_was_spooled_is_read_from_its_beginning_each_time() {
        let file = spool(&mut &b"a,b\n"[..], 4).expect("fits");
        let source = Source::Spooled(file);
        for _ in 0..2 {
            let mut text = String::new();
            let mut file = source.open().expect("opens");
            file.read_to_string(&mut text).expect("reads");
            assert_eq!(text, "a,b\n");
        }
        assert!(source.is_regular());
    }

    #[test]
    fn an_endless_stream_is_refused() {
        let failure = spool(&mut std::io::repeat(b'x'), 100).expect_err("too long");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("more than 100 bytes"));
    }
}

//! What the processes under test see of the environment: the services, and nothing that
//! a person's shell happens to hold.

use std::path::PathBuf;

/// Variables of the system that a process needs to run as anywhere else. The mark lets
/// `make test` find what a killed test has left behind.
const KEPT: [&str; 6] = ["PATH", "HOME", "LC_ALL", "TZ", "TMPDIR", "TENURE_INSTANCE"];

/// The variables of the system that processes keep.
pub fn kept() -> Vec<(String, String)> {
    KEPT.iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect()
}

/// A variable that `make test` sets.
///
/// # Panics
/// Where it is not set.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `make test`, which starts the services, or source their services.env")
    })
}

/// The root of the checkout.
pub fn repository() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().map_or(tests.clone(), PathBuf::from)
}

/// The program of a binary: in `TENURE_BIN_DIR`, else where cargo puts it.
///
/// # Panics
/// Where it was not built.
pub fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("TENURE_BIN_DIR").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR")
                .map_or_else(|| repository().join("target"), PathBuf::from);
            target.join("debug")
        },
        PathBuf::from,
    );
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "{} is not there: build the programs with `cargo build --workspace --bins`",
        program.display()
    );
    program
}

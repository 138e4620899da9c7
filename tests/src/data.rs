//! Test inputs as they lie in the repository.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::environment::repository;

/// The path of a file of `tests/data`.
pub fn path(name: &str) -> PathBuf {
    repository().join("tests/data").join(name)
}

/// The bytes of a file of `tests/data`.
///
/// # Panics
/// Where it cannot be read.
pub fn bytes(name: &str) -> Vec<u8> {
    read(path(name))
}

/// The bytes of a file of `examples`.
///
/// # Panics
/// Where it cannot be read.
pub fn example(name: &str) -> Vec<u8> {
    read(repository().join("examples").join(name))
}

/// The content of a compressed file of `tests/data`.
///
/// # Panics
/// Where gzip cannot read it.
pub fn unpacked(name: &str) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("-dc")
        .arg(path(name))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip starts");
    let mut content = Vec::new();
    gzip.stdout
        .take()
        .expect("a pipe")
        .read_to_end(&mut content)
        .expect("gzip's output");
    let status = gzip.wait().expect("gzip ends");
    assert!(status.success(), "gzip -dc {name}: {status}");
    content
}

fn read(path: PathBuf) -> Vec<u8> {
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

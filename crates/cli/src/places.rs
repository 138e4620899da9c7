//! Places that files are written to, checked before anything is sent.

use std::path::{Path, PathBuf};

use crate::errors::Failure;

/// A path that came from the command line, and the option or argument that it stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// What it is for people, such as `--report`.
    pub(crate) what: &'a str,
    /// The path.
    pub(crate) path: &'a Path,
}

/// Checks that a file can come to a place.
pub(crate) fn check_output(place: Place<'_>) -> Result<(), Failure> {
    let Place { what, path } = place;
    let wrong = |why: &str| Failure::usage(format!("{what} {}: {why}", path.display()));
    if path.file_name().is_none() {
        return Err(wrong("is not the name of a file"));
    }
    let folder = folder_of(path);
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(wrong(&format!("{} is not a folder", folder.display()))),
        Err(error) => {
            return Err(wrong(&format!("the folder {}: {error}", folder.display())));
        }
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(wrong("is a folder; name a file")),
        // It would be replaced like a file.
        Ok(found) if !found.is_file() => Err(wrong("is a device or a pipe; name a file")),
        // Not there, or a link that leads nowhere: the file takes its place.
        _ => Ok(()),
    }
}

/// Checks that no two of these are the same file, also by different names.
pub(crate) fn check_distinct(places: &[Place<'_>]) -> Result<(), Failure> {
    let mut seen: Vec<(&str, PathBuf)> = Vec::with_capacity(places.len());
    for place in places {
        let path = canonical(place.path);
        if let Some((other, _)) = seen.iter().find(|(_, known)| *known == path) {
            return Err(Failure::usage(format!(
                "{} {} is the same file as {other}",
                place.what,
                place.path.display()
            )));
        }
        seen.push((place.what, path));
    }
    Ok(())
}

/// The path without links; of a file that is not there yet, as far as it goes.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let folder = folder_of(path);
    let folder = folder
        .canonicalize()
        .unwrap_or_else(|_| folder.to_path_buf());
    path.file_name()
        .map_or_else(|| folder.clone(), |name| folder.join(name))
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Exit;

    fn place<'a>(what: &'a str, path: &'a Path) -> Place<'a> {
        Place { what, path }
    }

    #[test]
    fn a_file_needs_its_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let there = dir.path().join("there");
        std::fs::write(&there, "x").expect("writes");
        for path in [there.clone(), dir.path().join("new"), "new.csv".into()] {
            check_output(place("--report", &path)).expect("can be written");
        }
        for (path, why) in [
            (dir.path().to_owned(), "is a folder"),
            (dir.path().join("missing/new"), "missing: No such file"),
            (there.join("new"), "there is not a folder"),
            (PathBuf::from("/dev/null"), "is a device"),
            (PathBuf::from("/"), "is not the name of a file"),
            (PathBuf::new(), "is not the name of a file"),
        ] {
            let failure = check_output(place("--report", &path)).expect_err(why);
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message.contains(why), "{}", failure.message);
        }
    }

    #[cfg(unix)]
    #[test]
    fn one_file_is_known_by_all_its_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("in.csv"), "x").expect("writes");
        std::os::unix::fs::symlink(at("in.csv"), at("link.csv")).expect("links");
        std::os::unix::fs::symlink(dir.path(), at("here")).expect("links");
        for (one, other) in [
            ("in.csv", "in.csv"),
            ("in.csv", "link.csv"),
            ("in.csv", "here/in.csv"),
            ("new.csv", "here/new.csv"),
            ("new.csv", "./new.csv"),
        ] {
            let (one, other) = (at(one), at(other));
            let failure = check_distinct(&[place("FILE", &one), place("--report", &other)])
                .expect_err("is one file");
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message.ends_with("the same file as FILE"));
        }
        let (one, other) = (at("in.csv"), at("new.csv"));
        check_distinct(&[place("FILE", &one), place("--report", &other)]).expect("are two");
    }
}

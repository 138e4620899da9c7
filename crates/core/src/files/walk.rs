//! A walk over all that a store holds, a page at a time, for as long as it takes.

use std::fs::ReadDir;

use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use object_store::ObjectStore as _;
use object_store::path::Path as ObjectPath;

use super::folder::{Folder, blocking};
use super::store_error::io_error;
use super::{FileStore, step, within};
use crate::domain::ids::FileId;
use crate::error::Result;

/// Something of ours in the store: content, or what a broken-off write has left.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file that it belongs to.
    pub file_id: FileId,
    /// The name of what a write has staged; `None`: it is the content itself.
    staged: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written, by the store's clock.
    pub modified: DateTime<Utc>,
}

impl Found {
    /// Whether it is the rest of a write, and never was a whole file.
    pub fn is_staged(&self) -> bool {
        self.staged.is_some()
    }
}

/// A part of a walk.
#[derive(Debug)]
pub struct Page {
    /// What was found. Names that are not Tenure's are left out.
    pub found: Vec<Found>,
    /// Whether the walk has come to its end; the next page begins a new one.
    pub ended: bool,
}

/// A walk. It may see things twice, or not at all where they come or go meanwhile; what
/// stays is seen by each whole walk.
#[derive(Debug)]
pub struct Walk {
    store: FileStore,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Beginning,
    /// In the middle of a folder, whose order is the file system's.
    Folder(ReadDir),
    /// Behind a name of a bucket, which lists in order.
    Behind(ObjectPath),
}

impl Walk {
    pub(super) fn new(store: FileStore) -> Self {
        Self {
            store,
            place: Place::Beginning,
        }
    }

    /// Looks at up to `limit` names more. After an error a folder's walk begins anew.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn next(&mut self, limit: usize) -> Result<Page> {
        let place = std::mem::replace(&mut self.place, Place::Beginning);
        match self.store.folder.clone() {
            Some(folder) => self.next_of_folder(folder, place, limit).await,
            None => self.next_of_bucket(place, limit).await,
        }
    }

    /// Removes something that was found. What is not there any more is no error.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn remove(&self, found: &Found) -> Result<()> {
        let (Some(name), Some(folder)) = (&found.staged, &self.store.folder) else {
            return self.store.delete(found.file_id).await;
        };
        let (id, path) = (found.file_id, folder.root().join(name));
        within(blocking(move || match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(id, error)),
            _ => Ok(()),
        }))
        .await
    }

    async fn next_of_folder(&mut self, folder: Folder, place: Place, limit: usize) -> Result<Page> {
        let (page, place) = within(blocking(move || look(&folder, place, limit))).await?;
        self.place = place;
        Ok(page)
    }

    async fn next_of_bucket(&mut self, place: Place, limit: usize) -> Result<Page> {
        let prefix = &self.store.prefix;
        let prefix = (!prefix.as_ref().is_empty()).then_some(prefix);
        let objects = &self.store.objects;
        let mut listed = match &place {
            Place::Behind(name) => objects.list_with_offset(prefix, name),
            _ => objects.list(prefix),
        };
        let mut found = Vec::new();
        for _ in 0..limit {
            let Some(object) = step(listed.try_next()).await? else {
                self.place = Place::Beginning;
                return Ok(Page { found, ended: true });
            };
            // Of a deeper folder or with another name: not ours.
            if let Some(id) = object
                .location
                .filename()
                .and_then(|name| name.parse().ok())
                && object.location == self.store.path(id)
            {
                found.push(Found {
                    file_id: id,
                    staged: None,
                    size: object.size,
                    modified: object.last_modified,
                });
            }
            self.place = Place::Behind(object.location);
        }
        Ok(Page {
            found,
            ended: false,
        })
    }
}

fn look(folder: &Folder, place: Place, limit: usize) -> Result<(Page, Place)> {
    let failed = |error| io_error(FileId::default(), error);
    let mut names = match place {
        Place::Folder(names) => names,
        _ => std::fs::read_dir(folder.root()).map_err(failed)?,
    };
    let mut found = Vec::new();
    for _ in 0..limit {
        let Some(entry) = names.next() else {
            return Ok((Page { found, ended: true }, Place::Beginning));
        };
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some((file_id, staged)) = name.to_str().and_then(owner) else {
            continue;
        };
        // Of the entry itself, not of what a link leads to. It may be gone by now.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let Some(modified) = metadata.is_file().then(|| metadata.modified().ok()) else {
            continue;
        };
        found.push(Found {
            file_id,
            staged,
            size: metadata.len(),
            modified: modified.map_or_else(Utc::now, DateTime::from),
        });
    }
    let page = Page {
        found,
        ended: false,
    };
    Ok((page, Place::Folder(names)))
}

/// The file that a name belongs to, and the name itself where it is staged.
fn owner(name: &str) -> Option<(FileId, Option<String>)> {
    match name.split_once('#') {
        None => Some((name.parse().ok()?, None)),
        Some((id, number)) => {
            let counted = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            counted.then_some(())?;
            Some((id.parse().ok()?, Some(name.to_owned())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_store_gives_are_ours() {
        let id = FileId::new();
        assert_eq!(owner(&id.to_string()), Some((id, None)));
        let staged = format!("{id}#12");
        assert_eq!(owner(&staged), Some((id, Some(staged.clone()))));
        for name in [
            "",
            "notes.txt",
            ".keep",
            "#1",
            &format!("{id}#"),
            &format!("{id}#x"),
            &format!("{id}.bak"),
            &id.uuid().simple().to_string(),
        ] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}

//! Archives: a gzip file, or a ZIP archive with one file in it, read as what is in it.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use tenure_core::error::{Code, clean_text};
use zip::ZipReadOptions;
use zip::read::{Config, ZipFileEntry};
use zip::result::ZipError;
// The reader that does not hold the whole directory, however many entries it has.
use zip::unstable::read::ZipIterable;

use super::kinds::not_text;
use super::stored::StoreFailed;
use crate::handler::JobError;

/// The entries of a ZIP archive that are looked at.
const MAX_ENTRIES: usize = 1_000;

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, one member or several.
    Gzip,
    /// A ZIP archive.
    Zip,
}

/// The bytes of the CSV file.
pub(super) enum Content<'c, S> {
    /// As they are stored.
    Plain(&'c mut S),
    /// Out of an archive.
    Packed(Compression, &'c mut dyn Read),
}

/// Opens a stored file and hands what is in it to `work`.
///
/// # Errors
/// Permanent: `CSV_ARCHIVE`, `CSV_NOT_TEXT`, `CSV_TOO_LARGE` (a ZIP archive that says
/// that its file has more than `max` bytes). Temporary: the store's.
pub(super) fn open<S: BufRead + Seek, T>(
    stored: &mut S,
    max: u64,
    work: impl FnOnce(Content<'_, S>) -> Result<T, JobError>,
) -> Result<T, JobError> {
    let mut magic = Vec::new();
    let plain = |error| failed(&error, Compression::None);
    stored
        .by_ref()
        .take(4)
        .read_to_end(&mut magic)
        .map_err(plain)?;
    stored.seek(SeekFrom::Start(0)).map_err(plain)?;
    match &magic[..] {
        [0x1f, 0x8b, ..] => {
            let mut unpacked = MultiGzDecoder::new(stored);
            work(Content::Packed(Compression::Gzip, &mut unpacked))
        }
        b"PK\x03\x04" | b"PK\x05\x06" | b"PK\x07\x08" => {
            let entry = find(stored)?;
            if entry.size() > max {
                return Err(too_large(max));
            }
            let options = ZipReadOptions::new();
            let mut unpacked = entry
                .with_reader(stored, options)
                .map_err(|error| zip_failed(&error))?;
            work(Content::Packed(Compression::Zip, &mut unpacked))
        }
        _ => work(Content::Plain(stored)),
    }
}

/// The one file of a ZIP archive.
fn find<S: BufRead + Seek>(stored: &mut S) -> Result<ZipFileEntry<'static>, JobError> {
    let mut archive = match ZipIterable::try_new(&mut *stored, Config::default()) {
        Ok(archive) => archive,
        Err(error) => {
            let error = zip_failed(&error);
            return Err(
                if error.code == Code::CsvArchive.as_str() && !begins_well(stored)? {
                    not_text("something that only begins like a ZIP archive")
                } else {
                    error
                },
            );
        }
    };
    let mut found: Option<ZipFileEntry<'static>> = None;
    let mut others = Vec::new();
    let mut encrypted = false;
    let entries = archive.len();
    for entry in archive
        .files()
        .map_err(|error| zip_failed(&error))?
        .take(MAX_ENTRIES)
    {
        let entry = entry.map_err(|error| zip_failed(&error))?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        if let Some(what) = office(&name) {
            return Err(not_text(what));
        }
        if entry.is_dir() || entry.is_symlink() || hidden(&name) {
            continue;
        }
        encrypted |= entry.encrypted();
        if found.is_some() {
            others.push(name);
        } else {
            found = Some(entry);
        }
    }
    let Some(entry) = found.filter(|_| entries <= MAX_ENTRIES || !others.is_empty()) else {
        return Err(if entries > MAX_ENTRIES {
            archive_error(&format!(
                "the ZIP archive has {entries} entries; pack the one CSV file alone"
            ))
        } else {
            archive_error("the ZIP archive holds no file; pack the one CSV file")
        });
    };
    if let Some(other) = others.first() {
        return Err(archive_error(&format!(
            "the ZIP archive holds more than one file ('{}', '{}'{}); pack the one CSV file alone",
            shown(&String::from_utf8_lossy(entry.name_raw())),
            shown(other),
            if others.len() > 1 { ", …" } else { "" }
        )));
    }
    if encrypted {
        return Err(archive_error(
            "the ZIP archive is encrypted; pack the CSV file without a password",
        ));
    }
    Ok(entry)
}

/// Whether the file begins with the header of an entry, and not by chance with its mark.
fn begins_well<S: BufRead + Seek>(stored: &mut S) -> Result<bool, JobError> {
    let mut head = Vec::new();
    stored
        .seek(SeekFrom::Start(0))
        .and_then(|_| stored.by_ref().take(30 + 1_024).read_to_end(&mut head))
        .map_err(|error| failed(&error, Compression::Zip))?;
    let number = |at: usize| {
        let pair = head.get(at..at + 2).unwrap_or_default();
        pair.iter().rev().fold(0, |n, b| (n << 8) | usize::from(*b))
    };
    let name = head.get(30..30 + number(26)).unwrap_or_default();
    let methods = [0, 8, 9, 12, 14, 93, 95, 98, 99];
    Ok(methods.contains(&number(8)) && !name.is_empty() && name.iter().all(|b| *b >= b' '))
}

/// What office programs write is a ZIP archive too.
fn office(name: &str) -> Option<&'static str> {
    match name {
        "xl/workbook.xml" | "xl/workbook.bin" => Some("a spreadsheet (.xlsx)"),
        "word/document.xml" => Some("a text document (.docx)"),
        "ppt/presentation.xml" => Some("a presentation (.pptx)"),
        "META-INF/manifest.xml" => {
            Some("a spreadsheet (.ods) or another document of an office program")
        }
        "META-INF/MANIFEST.MF" => Some("a program (.jar)"),
        _ => None,
    }
}

/// What systems put into an archive without being asked.
fn hidden(name: &str) -> bool {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    matches!(last, "Thumbs.db" | "desktop.ini")
        || name
            .split(['/', '\\'])
            .any(|part| part == "__MACOSX" || (part.starts_with('.') && part != "."))
}

fn shown(name: &str) -> String {
    clean_text(name, 60).replace(['\n', '\t'], " ")
}

fn archive_error(message: &str) -> JobError {
    JobError::permanent(Code::CsvArchive.as_str(), message)
}

/// The error for text beyond the limit of bytes.
pub(super) fn too_large(max: u64) -> JobError {
    JobError::permanent(
        Code::CsvTooLarge.as_str(),
        format!(
            "unpacked, the file has more than {max} bytes, which is the limit; split it into several"
        ),
    )
}

/// What a failed read means.
pub(super) fn failed(error: &io::Error, compression: Compression) -> JobError {
    if let Some(store) = store_failed(error) {
        return store.error().into();
    }
    let what = match compression {
        Compression::Gzip => "gzip file",
        Compression::Zip => "ZIP archive",
        // The store gives its own error for each failure; this is none that it knows.
        Compression::None => {
            return JobError::temporary(
                Code::StoreUnavailable.as_str(),
                "the file could not be read",
            );
        }
    };
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return archive_error(&format!(
            "the {what} ends early{}; upload it again, or upload the CSV file itself",
            match compression {
                // What is taken for one more member.
                Compression::Gzip => ", or something stands behind its end",
                _ => "",
            }
        ));
    }
    archive_error(&format!(
        "the {what} is damaged, or something stands behind its end; pack the CSV file again, or upload it as it is"
    ))
}

fn zip_failed(error: &ZipError) -> JobError {
    match error {
        ZipError::Io(error) => failed(error, Compression::Zip),
        ZipError::CompressionMethodNotSupported(method) => archive_error(&format!(
            "the ZIP archive uses compression method {method}; pack the CSV file with the usual one (deflate)"
        )),
        ZipError::UnsupportedArchive(why) => archive_error(&format!(
            "the ZIP archive cannot be read ({why}); pack the CSV file again, or upload it as it is"
        )),
        _ => archive_error(
            "the ZIP archive is damaged or ends early; upload it again, or upload the CSV file itself",
        ),
    }
}

/// The store's failure, however it is wrapped.
fn store_failed(error: &io::Error) -> Option<&StoreFailed> {
    let inner = error.get_ref()?;
    if let Some(store) = inner.downcast_ref::<StoreFailed>() {
        return Some(store);
    }
    if let Some(ZipError::Io(error)) = inner.downcast_ref::<ZipError>() {
        return store_failed(error);
    }
    store_failed(inner.downcast_ref::<io::Error>()?)
}

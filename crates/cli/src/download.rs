//! `download`: complete under its name, or not there at all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tenure_proto::v1;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tonic::Status;

use crate::args::DownloadArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure, is_broken_stream, retry_delay};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, pairs};
use crate::places::{Place, check_output};
use crate::progress::{Meter, Unit};
use crate::view;

/// How often in a row the stream may break without a byte between.
const MAX_BREAKS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// `tenure download`.
pub(crate) async fn run(
    client: &Client,
    args: DownloadArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::GetFileRequest {
        file_id: args.file_id,
    };
    let call = |request| {
        let mut files = client.files();
        async move { files.get_file(request).await }
    };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let file = answer.file.context("the gateway answered without a file")?;
    let Some(path) = target(args.out.as_deref(), &file)? else {
        let mut stdout = tokio::io::stdout();
        fetch(client, &file, &mut stdout).await?;
        return Ok(Exit::Ok);
    };
    let size_bytes = save(client, &file, &path).await?;
    let done = view::Downloaded {
        file_id: file.file_id,
        path: path.display().to_string(),
        size_bytes,
        sha256: file.sha256,
    };
    out.emit(&done, |it| {
        pairs([
            ("file", it.path.clone()),
            ("bytes", it.size_bytes.to_string()),
            ("sha256", it.sha256.clone()),
        ])
    })?;
    Ok(Exit::Ok)
}

/// Writes a file to a place, whole or not at all; what is there is replaced. Its size.
pub(crate) async fn save(client: &Client, file: &v1::File, path: &Path) -> Result<u64, Failure> {
    let part = part_of(path);
    let result = tokio::select! {
        result = to_file(client, file, &part, path) => result,
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot wait for Ctrl-C")?;
            Err(Failure::new(Exit::Interrupted, "interrupted; nothing was kept"))
        }
    };
    if result.is_err() {
        // It may not have come to a file at all.
        let _ = std::fs::remove_file(&part);
    }
    result
}

/// Where the file goes; nothing means standard output.
fn target(out: Option<&Path>, file: &v1::File) -> Result<Option<PathBuf>, Failure> {
    let path = match out {
        Some(out) if out == Path::new("-") => return Ok(None),
        Some(out) if !out.is_dir() => {
            check_output(Place {
                what: "-O",
                path: out,
            })
            .map_err(|failure| failure.hint("`-O -` writes to standard output"))?;
            return Ok(Some(out.to_owned()));
        }
        Some(folder) => folder.join(safe_name(file)),
        None => PathBuf::from(safe_name(file)),
    };
    // The name is the owner's choice, so it must not replace anything.
    if path.exists() {
        return Err(
            Failure::usage(format!("{} is there already", path.display()))
                .hint("-O FILE names another place, or replaces it"),
        );
    }
    Ok(Some(path))
}

/// A file name that leads nowhere else and hides nothing.
fn safe_name(file: &v1::File) -> String {
    let last = file.name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last
        .chars()
        .filter(|c| *crate::output::escape(&c.to_string()) == c.to_string())
        .collect();
    let name = name.trim().trim_start_matches('.');
    if name.is_empty() {
        return format!(
            "file-{}",
            file.file_id
                .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
        );
    }
    // File systems take 255 bytes; the ending of the partial file needs some.
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// Beside the target, so that the rename stays within one file system, and
/// with a name of its own, so that two downloads do not share it.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}.part",
        &uuid::Uuid::new_v4().simple().to_string()[..8]
    ));
    path.with_file_name(name)
}

async fn to_file(
    client: &Client,
    file: &v1::File,
    part: &Path,
    path: &Path,
) -> Result<u64, Failure> {
    let problem = || format!("cannot write {}", part.display());
    let mut options = tokio::fs::OpenOptions::new();
    let mut output = options
        .write(true)
        .create_new(true)
        .open(part)
        .await
        .with_context(problem)?;
    let size = fetch(client, file, &mut output).await?;
    output.sync_all().await.with_context(problem)?;
    tokio::fs::rename(part, path)
        .await
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(size)
}

/// What became of one stream.
enum Stream {
    /// It came to its end.
    Ended,
    /// Nobody reads what is written.
    ReaderGone,
    /// It broke.
    Broken(Status),
}

/// Writes the content, and checks it.
async fn fetch(
    client: &Client,
    file: &v1::File,
    output: &mut (impl AsyncWrite + Unpin),
) -> Result<u64, Failure> {
    let size = u64::try_from(file.size_bytes).unwrap_or(0);
    let mut meter = Meter::new(&format!("download {}", file.name), Unit::Bytes);
    let mut digest = Sha256::new();
    let mut offset = 0_u64;
    let mut breaks = 0;
    let mut pause = FIRST_PAUSE;
    loop {
        let before = offset;
        let mut take = |offset: u64, chunk: &[u8]| {
            digest.update(chunk);
            meter.set(offset, size, "");
        };
        let status = match stream(client, file, &mut offset, output, &mut take).await? {
            Stream::ReaderGone => return Ok(offset),
            Stream::Ended if offset >= size => break,
            Stream::Ended => {
                Status::unavailable(format!("the download ended after {offset} of {size} bytes"))
            }
            Stream::Broken(status) => status,
        };
        if offset > before {
            breaks = 0;
            pause = FIRST_PAUSE;
        }
        breaks += 1;
        if breaks > MAX_BREAKS || !is_broken_stream(status.code()) {
            return Err(client.failure(&status));
        }
        let wanted = retry_delay(&status).unwrap_or_default();
        tokio::time::sleep(pause.max(wanted.min(LONGEST_PAUSE))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    output.flush().await.or_else(gone).context("cannot write")?;
    let digest = hex::encode(digest.finalize());
    if offset != size || digest != file.sha256 {
        return Err(Failure::local(format!(
            "what arrived is not the file: {offset} of {size} bytes, checksum {digest} instead of {}",
            file.sha256
        ))
        .hint("try again; where it stays like this, the stored file is damaged"));
    }
    Ok(offset)
}

fn gone(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}

/// Writes one stream's content from `offset` on, which it moves.
async fn stream(
    client: &Client,
    file: &v1::File,
    offset: &mut u64,
    output: &mut (impl AsyncWrite + Unpin),
    take: &mut impl FnMut(u64, &[u8]),
) -> Result<Stream, Failure> {
    let request = v1::DownloadFileRequest {
        file_id: file.file_id.clone(),
        offset: i64::try_from(*offset).context("the file is too large")?,
    };
    let mut files = client.files();
    let mut parts = match client.limited(files.download_file(request)).await {
        Ok(response) => response.into_inner(),
        Err(status) => return Ok(Stream::Broken(status)),
    };
    loop {
        let chunk = match client.limited(parts.message()).await {
            Ok(Some(part)) => part.chunk,
            Ok(None) => return Ok(Stream::Ended),
            Err(status) => return Ok(Stream::Broken(status)),
        };
        match output.write_all(&chunk).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(Stream::ReaderGone);
            }
            Err(error) => return Err(Failure::local(format!("cannot write: {error}"))),
        }
        *offset += chunk.len() as u64;
        take(*offset, &chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> v1::File {
        v1::File {
            file_id: "0190-ab".to_owned(),
            name: name.to_owned(),
            ..v1::File::default()
        }
    }

    #[test]
    fn a_name_never_leads_elsewhere() {
        for (name, safe) in [
            ("report.json", "report.json"),
            ("../../etc/passwd", "passwd"),
            ("C:\\x\\y.csv", "y.csv"),
            (".bashrc", "bashrc"),
            ("..", "file-0190-ab"),
            ("a/", "file-0190-ab"),
            ("", "file-0190-ab"),
            ("a\u{1b}[2J\nb", "a[2Jb"),
        ] {
            assert_eq!(safe_name(&named(name)), safe, "{name:?}");
        }
        assert!(safe_name(&named(&"ä".repeat(255))).len() <= 200);
    }

    #[test]
    fn only_a_named_file_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let there = dir.path().join("there.csv");
        std::fs::write(&there, "").expect("writes");
        let file = named("there.csv");
        assert!(target(Some(dir.path()), &file).is_err());
        assert_eq!(
            target(Some(&there), &file).expect("is named"),
            Some(there.clone())
        );
        assert_eq!(target(Some(Path::new("-")), &file).expect("is named"), None);
        for place in [Path::new("/dev/null"), &dir.path().join("missing/f")] {
            let failure = target(Some(place), &file).expect_err("cannot be written");
            assert_eq!(failure.exit, Exit::Usage);
        }
        let part = part_of(&there);
        assert_eq!(part.parent(), there.parent());
        assert_ne!(part, part_of(&there));
    }
}

//! `upload`, and what `import` needs of it.

mod source;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tenure_proto::v1;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use self::source::Source;
use crate::args::UploadArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure, retry_delay};
use crate::output::{Output, escape, pairs};
use crate::progress::{Meter, Unit};
use crate::values::human_duration;
use crate::view;

/// The service takes up to 1 MiB a message.
const CHUNK_BYTES: usize = 256 << 10;
/// How often an upload is tried again where the service cannot be reached.
const REPEATS: u32 = 3;
/// The same where it answered with a delay: it is there, and has much to do.
const REPEATS_WHEN_TOLD: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// A longer wait is the user's decision.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// `tenure upload`.
pub(crate) async fn run_upload(
    client: &Client,
    args: UploadArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    client.check_acts_for(args.for_user.as_deref())?;
    let upload = Upload::new(args.file, args.name, args.content_type, args.for_user).await?;
    let file = view::File::from(upload.send(client).await?);
    if args.quiet {
        out.raw(format!("{}\n", escape(&file.file_id)).as_bytes())?;
        return Ok(Exit::Ok);
    }
    out.emit(&file, |file| {
        pairs([
            ("file", file.file_id.clone()),
            ("name", file.name.clone()),
            ("bytes", file.size_bytes.to_string()),
            ("sha256", file.sha256.clone()),
            ("expires", file.expire_time.clone().unwrap_or_default()),
        ])
    })?;
    Ok(Exit::Ok)
}

/// A file to upload.
#[derive(Debug)]
pub(crate) struct Upload {
    source: Source,
    header: v1::upload_file_request::Header,
    /// A pipe can be read once only, and has no size before its end.
    regular: bool,
}

enum Broken {
    /// The service refused, or the connection broke.
    Status(Status),
    /// Something on this side failed.
    Here(Failure),
}

impl Upload {
    /// Looks at the file; reads a regular one for its checksum, so that the
    /// service can refuse what arrives differently.
    pub(crate) async fn new(
        path: PathBuf,
        name: Option<String>,
        content_type: Option<String>,
        for_user: Option<String>,
    ) -> Result<Self, Failure> {
        let source = Source::of(path).await?;
        let name = name.unwrap_or_else(|| source.name());
        let content_type = content_type.unwrap_or_else(|| content_type_of(&name).to_owned());
        let mut header = v1::upload_file_request::Header {
            content_type,
            name,
            user_id: for_user.unwrap_or_default(),
            ..Default::default()
        };
        let regular = source.is_regular();
        if regular {
            let mut file = source.open()?;
            let shown = source.to_string();
            let (size, digest) = tokio::task::spawn_blocking(move || checksum(&mut file))
                .await
                .context("the checksum was not made")?
                .with_context(|| format!("cannot read {shown}"))?;
            header.size_bytes = size;
            header.sha256 = digest;
        }
        Ok(Self {
            source,
            header,
            regular,
        })
    }

    /// Uploads it; again, a few times, where the service cannot take it now. A second copy
    /// that a lost answer leaves is pruned by the service's retention.
    pub(crate) async fn send(&self, client: &Client) -> Result<v1::File, Failure> {
        let mut meter = Meter::new(&format!("upload {}", self.header.name), Unit::Bytes);
        let mut repeats = 0;
        let mut pause = FIRST_PAUSE;
        loop {
            let status = match self.send_once(client, &mut meter).await {
                Ok(file) => {
                    let size = u64::try_from(file.size_bytes).unwrap_or(0);
                    meter.set_last(size, size, "");
                    return Ok(file);
                }
                Err(Broken::Here(failure)) => return Err(failure),
                Err(Broken::Status(status)) => status,
            };
            let failure = client.failure(&status);
            let wanted = retry_delay(&status);
            let most = wanted.map_or(REPEATS, |_| REPEATS_WHEN_TOLD);
            let wait = wanted.unwrap_or_default().max(pause);
            let again = self.regular && repeats < most && wait <= LONGEST_PAUSE;
            if !again || !may_pass(&failure, &status) {
                return Err(failure);
            }
            repeats += 1;
            meter.note(&format!(
                "{}; trying again in {}",
                failure.message,
                human_duration(wait)
            ));
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
    }

    async fn send_once(&self, client: &Client, meter: &mut Meter) -> Result<v1::File, Broken> {
        let (sender, receiver) = mpsc::channel(2);
        let mut files = client.files();
        let call = files.upload_file(ReceiverStream::new(receiver));
        tokio::pin!(call);
        // `sender` stays open until all is fed: a file that cannot be read to
        // its end must not look like a shorter one.
        let feed = self.feed(sender.clone(), client.timeout(), meter);
        tokio::pin!(feed);
        let early = tokio::select! {
            biased;
            answer = &mut call => Err(answer),
            digest = &mut feed => Ok(digest.map_err(Broken::Here)?),
        };
        drop(sender);
        let (answer, digest) = match early {
            Err(answer) => (answer, None),
            Ok(digest) => (client.limited(call).await, digest),
        };
        let file = answer
            .map_err(Broken::Status)?
            .into_inner()
            .file
            .ok_or_else(|| Broken::Here(Failure::local("the gateway answered without a file")))?;
        let expected = digest.as_ref().unwrap_or(&self.header.sha256);
        if *expected == file.sha256 {
            Ok(file)
        } else {
            Err(Broken::Here(Failure::local(format!(
                "the gateway stored something else than {}: its checksum is {}, not {expected}",
                self.source, file.sha256
            ))))
        }
    }

    /// Sends the file's parts; answers with the checksum of what was sent, or
    /// with nothing where the service stopped listening.
    async fn feed(
        &self,
        sender: mpsc::Sender<v1::UploadFileRequest>,
        patience: Duration,
        meter: &mut Meter,
    ) -> Result<Option<String>, Failure> {
        use v1::upload_file_request::Part;

        let problem = || format!("cannot read {}", self.source);
        let mut file = tokio::fs::File::from_std(self.source.open()?);
        let mut digest = Sha256::new();
        let mut part = Part::Header(self.header.clone());
        let mut done = 0_u64;
        loop {
            let request = v1::UploadFileRequest { part: Some(part) };
            match tokio::time::timeout(patience, sender.send(request)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ok(None),
                Err(_) => {
                    return Err(Failure::new(
                        Exit::TryLater,
                        format!("the upload stood still for {}", human_duration(patience)),
                    ));
                }
            }
            meter.set(done, self.header.size_bytes as u64, "");
            let mut chunk = bytes::BytesMut::with_capacity(CHUNK_BYTES);
            while chunk.len() < CHUNK_BYTES {
                if file.read_buf(&mut chunk).await.with_context(problem)? == 0 {
                    break;
                }
            }
            if chunk.is_empty() {
                return Ok(Some(hex::encode(digest.finalize())));
            }
            digest.update(&chunk);
            done += chunk.len() as u64;
            part = Part::Chunk(chunk.freeze());
        }
    }
}

/// Whether a later try of an upload that was refused so can succeed: the connection broke,
/// or the service named a delay.
fn may_pass(failure: &Failure, status: &Status) -> bool {
    status.code() == Code::Unavailable
        || failure.exit == Exit::TryLater && retry_delay(status).is_some()
}

fn checksum(file: &mut std::fs::File) -> anyhow::Result<(i64, String)> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, hex::encode(digest.finalize())));
        }
        digest.update(&buffer[..read]);
        size += read as i64;
    }
}

fn content_type_of(name: &str) -> &'static str {
    let ending = Path::new(name)
        .extension()
        .and_then(|ending| ending.to_str())
        .map(str::to_ascii_lowercase);
    match ending.as_deref() {
        Some("csv") => "text/csv",
        Some("tsv") => "text/tab-separated-values",
        Some("txt") => "text/plain",
        Some("json") => "application/json",
        Some("gz") => "application/gzip",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_described_before_it_is_sent() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("Rows.CSV");
        std::fs::write(&path, "abc").expect("writes");
        let upload = Upload::new(path, None, None, None).await.expect("is there");
        assert_eq!(upload.header.name, "Rows.CSV");
        assert_eq!(upload.header.content_type, "text/csv");
        assert_eq!(upload.header.size_bytes, 3);
        assert_eq!(
            upload.header.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[tokio::test]
    async fn the_parts_are_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|n| n as u8).collect();
        std::fs::write(&path, &content).expect("writes");
        let upload = Upload::new(path, None, None, None).await.expect("is there");
        let (sender, mut receiver) = mpsc::channel(16);
        let mut meter = Meter::new("test", Unit::Bytes);
        let digest = upload
            .feed(sender, Duration::from_secs(5), &mut meter)
            .await
            .expect("feeds");
        assert_eq!(digest.as_ref(), Some(&upload.header.sha256));
        let mut sent = Vec::new();
        let first = receiver.recv().await.and_then(|request| request.part);
        assert!(matches!(
            first,
            Some(v1::upload_file_request::Part::Header(_))
        ));
        while let Some(request) = receiver.recv().await {
            match request.part {
                Some(v1::upload_file_request::Part::Chunk(chunk)) => {
                    assert!(chunk.len() <= 1 << 20);
                    sent.extend_from_slice(&chunk);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(sent == content);
    }

    #[tokio::test]
    async fn what_is_not_a_file_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in [dir.path().to_owned(), dir.path().join("missing")] {
            let failure = Upload::new(path, None, None, None)
                .await
                .expect_err("is no file");
            assert_eq!(failure.exit, Exit::Usage);
        }
    }
}

//! From the stored file to text in UTF-8: unpacked, decoded, and without its byte order
//! mark. Offsets are offsets in that text. It is made in blocks, on a thread of its own,
//! and no more than a few blocks are ever held.

mod encoding;
mod kinds;
mod stored;
#[cfg(test)]
pub(super) mod tests;
mod text;
mod unpack;

use std::io::{BufRead, Read, Seek, SeekFrom};
use std::thread::JoinHandle;

use bytes::{Bytes, BytesMut};
use tenure_core::domain::ids::FileId;
use tenure_core::error::Code;
use tenure_core::files::FileStore;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

pub(crate) use self::encoding::Declared;
use self::encoding::Encoding;
use self::stored::Stored;
use self::text::Decoder;
pub(crate) use self::unpack::Compression;
use self::unpack::{Content, failed, too_large};
use crate::handler::JobError;

/// The most bytes of a block.
const BLOCK: usize = 512 * 1024;

/// The bytes that show what a file is.
const SNIFF: usize = 64 * 1024;

/// How much of the text is kept for the plan.
pub(crate) const HEAD: usize = 1024 * 1024;

/// How a file is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    /// What the payload says about the encoding.
    pub(crate) encoding: Declared,
    /// The most bytes that an archive may unpack to.
    pub(crate) max_unpacked: u64,
}

/// What a file turned out to be.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    /// The beginning of its text, up to [`HEAD`] bytes.
    pub(crate) head: Bytes,
    /// The length of its text in bytes.
    pub(crate) text_bytes: u64,
    /// How it is packed.
    pub(crate) compression: Compression,
    /// The name of its encoding.
    pub(crate) encoding: String,
    /// What the reader of the report should know.
    pub(crate) warnings: Vec<String>,
}

/// Whom the text goes to.
trait Sink {
    /// Whether nobody wants any more.
    fn closed(&self) -> bool;
    /// Takes the next block.
    fn take(&mut self, text: Bytes);
}

struct Decoded {
    text_bytes: u64,
    compression: Compression,
    encoding: String,
    warning: Option<String>,
}

/// Decodes a file from an offset in its text. `trusted`: it was decoded before, so a file
/// that is text as it stands need not be checked. `None`: the sink was closed.
fn decode<S: BufRead + Seek>(
    stored: &mut S,
    wishes: Wishes,
    from: u64,
    trusted: bool,
    sink: &mut dyn Sink,
) -> Result<Option<Decoded>, JobError> {
    unpack::open(stored, wishes.max_unpacked, |content| match content {
        Content::Plain(stored) => {
            let head = read(stored, Vec::new(), SNIFF, Compression::None)?;
            let encoding = begin(&head, wishes)?;
            if trusted && encoding == Encoding::Utf8 {
                let mark = if head.starts_with("\u{feff}".as_bytes()) {
                    '\u{feff}'.len_utf8() as u64
                } else {
                    0
                };
                return copy(stored, mark + from, sink).map(|whole| {
                    whole.map(|bytes| Decoded {
                        text_bytes: from + bytes,
                        compression: Compression::None,
                        encoding: encoding.name(),
                        warning: None,
                    })
                });
            }
            text(
                stored,
                head,
                encoding,
                Compression::None,
                u64::MAX,
                from,
                sink,
            )
        }
        Content::Packed(compression, unpacked) => {
            let head = read(unpacked, Vec::new(), SNIFF, compression)?;
            let encoding = begin(&head, wishes)?;
            text(
                unpacked,
                head,
                encoding,
                compression,
                wishes.max_unpacked,
                from,
                sink,
            )
        }
    })
}

fn begin(head: &[u8], wishes: Wishes) -> Result<Encoding, JobError> {
    kinds::check_bytes(head)?;
    wishes.encoding.decide(head)
}

/// Reads up to `count` bytes behind those in `block`; fewer only at the end.
fn read(
    reader: &mut (impl Read + ?Sized),
    mut block: Vec<u8>,
    count: usize,
    compression: Compression,
) -> Result<Vec<u8>, JobError> {
    block.reserve_exact(count);
    reader
        .take(count as u64)
        .read_to_end(&mut block)
        .map_err(|error| failed(&error, compression))?;
    Ok(block)
}

/// Hands out bytes as they are; how many.
fn copy<S: BufRead + Seek>(
    stored: &mut S,
    from: u64,
    sink: &mut dyn Sink,
) -> Result<Option<u64>, JobError> {
    let plain = Compression::None;
    stored
        .seek(SeekFrom::Start(from))
        .map_err(|error| failed(&error, plain))?;
    let mut bytes = 0;
    while !sink.closed() {
        let block = read(stored, Vec::new(), BLOCK, plain)?;
        let last = block.len() < BLOCK;
        bytes += block.len() as u64;
        if !block.is_empty() {
            sink.take(Bytes::from(block));
        }
        if last {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Decodes what begins with `head`, and hands out the text from the offset `from`.
fn text(
    reader: &mut (impl Read + ?Sized),
    head: Vec<u8>,
    encoding: Encoding,
    compression: Compression,
    max: u64,
    from: u64,
    sink: &mut dyn Sink,
) -> Result<Option<Decoded>, JobError> {
    let mut decoder = Decoder::new(encoding);
    let (mut raw, mut asked, mut begun) = (head, SNIFF, 0);
    let (mut bytes, mut at) = (0_u64, 0_u64);
    while !sink.closed() {
        let got = raw.len() - begun;
        let last = got < asked;
        bytes += got as u64;
        if bytes > max {
            return Err(too_large(max));
        }
        let mut text = decoder.decode(raw, last)?;
        if at == 0 {
            kinds::check_text(&text)?;
        }
        let skip = from.saturating_sub(at).min(text.len() as u64);
        at += text.len() as u64;
        let _ = text.split_to(skip as usize);
        if !text.is_empty() {
            sink.take(text);
        }
        if last {
            return Ok(Some(Decoded {
                text_bytes: at,
                compression,
                encoding: encoding.name(),
                warning: decoder.warning(),
            }));
        }
        let carried = decoder.begun();
        begun = carried.len();
        // A character that was broken off may make a block of UTF-8 longer.
        asked = BLOCK / decoder.growth() - 16;
        raw = read(reader, carried, asked, compression)?;
    }
    Ok(None)
}

/// Checks all of a file, and keeps its beginning.
struct Check<'c> {
    head: BytesMut,
    stop: &'c dyn Fn() -> bool,
}

impl Sink for Check<'_> {
    fn closed(&self) -> bool {
        (self.stop)()
    }

    fn take(&mut self, text: Bytes) {
        let room = HEAD - self.head.len();
        self.head.extend_from_slice(&text[..text.len().min(room)]);
    }
}

fn check_in<S: BufRead + Seek>(
    stored: &mut S,
    wishes: Wishes,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Checked>, JobError> {
    let mut check = Check {
        head: BytesMut::new(),
        stop,
    };
    let decoded = decode(stored, wishes, 0, false, &mut check)?;
    Ok(decoded.map(|decoded| Checked {
        head: check.head.freeze(),
        text_bytes: decoded.text_bytes,
        compression: decoded.compression,
        encoding: decoded.encoding,
        warnings: decoded.warning.into_iter().collect(),
    }))
}

/// A stored file, and how it is read.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Where it is stored.
    pub(crate) files: FileStore,
    /// Which it is.
    pub(crate) id: FileId,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// How it is read.
    pub(crate) wishes: Wishes,
}

impl Source {
    fn stored(&self, runtime: Handle) -> Stored {
        Stored::new(runtime, self.files.clone(), self.id, self.size)
    }

    /// Decodes the whole file once. Blocks; `stop` is asked before each block, and after
    /// it said so the answer is `None`.
    ///
    /// # Errors
    /// Permanent: `CSV_ARCHIVE`, `CSV_ENCODING`, `CSV_NOT_TEXT`, `CSV_TOO_LARGE`.
    /// Temporary: the store's.
    pub(crate) fn check(
        &self,
        runtime: Handle,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Checked>, JobError> {
        check_in(&mut self.stored(runtime), self.wishes, stop)
    }

    /// The text from an offset, of a file that was checked. `keep` is dropped when the
    /// thread that makes it ends.
    ///
    /// # Errors
    /// Temporary, where no thread can be had.
    pub(crate) fn text(
        &self,
        runtime: Handle,
        from: u64,
        keep: impl Send + 'static,
    ) -> Result<Blocks, JobError> {
        let (sender, messages) = mpsc::channel(1);
        let mut stored = self.stored(runtime);
        let wishes = self.wishes;
        let work = move || {
            let _keep = keep;
            let mut sink = Channel(sender);
            match decode(&mut stored, wishes, from, true, &mut sink) {
                Ok(Some(_)) => sink.send(Message::End),
                // Nobody listens.
                Ok(None) => {}
                Err(error) => sink.send(Message::Failed(error)),
            }
        };
        let thread = std::thread::Builder::new()
            .name("import-decode".to_owned())
            .spawn(work)
            .map_err(|error| {
                JobError::temporary(
                    Code::Overloaded.as_str(),
                    format!("no thread for the file's decoding: {error}"),
                )
            })?;
        Ok(Blocks {
            messages,
            thread: Some(thread),
        })
    }
}

enum Message {
    Text(Bytes),
    End,
    Failed(JobError),
}

struct Channel(mpsc::Sender<Message>);

impl Channel {
    fn send(&mut self, message: Message) {
        // A receiver that is gone is noticed before the next block.
        let _ = self.0.blocking_send(message);
    }
}

impl Sink for Channel {
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn take(&mut self, text: Bytes) {
        self.send(Message::Text(text));
    }
}

/// The text of a file, block by block. The thread that makes it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Blocks {
    messages: mpsc::Receiver<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Blocks {
    /// The next block of up to 512 KiB; it may end within a character. `None`: the end.
    ///
    /// # Errors
    /// As [`Source::check`].
    ///
    /// # Panics
    /// Where the thread did.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, JobError> {
        match self.messages.recv().await {
            Some(Message::Text(text)) => Ok(Some(text)),
            Some(Message::End) => Ok(None),
            Some(Message::Failed(error)) => Err(error),
            None => {
                // It ended without a word, so it panicked; it holds nothing to wait for.
                if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                    std::panic::resume_unwind(panic);
                }
                Ok(None)
            }
        }
    }
}

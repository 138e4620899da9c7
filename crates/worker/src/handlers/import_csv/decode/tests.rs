//! Any text in any encoding and packing comes out the same, from any offset.

use std::io::{Cursor, Write};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tenure_core::files::Expected;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

const MAX: u64 = 64 << 20;

/// Collects the text.
#[derive(Default)]
struct Collect(Vec<Bytes>);

impl Sink for Collect {
    fn closed(&self) -> bool {
        false
    }

    fn take(&mut self, text: Bytes) {
        assert!(!text.is_empty() && text.len() <= BLOCK, "{}", text.len());
        self.0.push(text);
    }
}

fn wishes(encoding: &str) -> Wishes {
    Wishes {
        encoding: Declared::parse(Some(encoding)).expect("a label"),
        max_unpacked: MAX,
    }
}

/// Checks a file.
pub(crate) fn check(stored: &[u8], wishes: Wishes) -> Result<Checked, JobError> {
    let checked = check_in(&mut Cursor::new(stored), wishes, &|| false)?;
    Ok(checked.expect("not stopped"))
}

/// The text of a file that was checked, from an offset.
pub(crate) fn text_from(stored: &[u8], wishes: Wishes, from: u64) -> Result<Vec<Bytes>, JobError> {
    let mut blocks = Collect::default();
    decode(&mut Cursor::new(stored), wishes, from, true, &mut blocks)?;
    Ok(blocks.0)
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Level::fast());
    packer.write_all(content).expect("packed");
    packer.finish().expect("packed")
}

pub(crate) fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut packer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    for (name, content) in entries {
        if name.ends_with('/') {
            packer.add_directory(*name, options).expect("a directory");
        } else {
            packer.start_file(*name, options).expect("a file");
            packer.write_all(content).expect("packed");
        }
    }
    packer.finish().expect("packed").into_inner()
}

/// The text in an encoding, where it has all of its characters.
fn encoded(text: &str, encoding: &str) -> Option<Vec<u8>> {
    let units = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect();
    match encoding {
        "utf-8" => Some(text.into()),
        "utf-16le" => Some(units(u16::to_le_bytes)),
        "utf-16be" => Some(units(u16::to_be_bytes)),
        "iso-8859-1" => text
            .chars()
            .map(|c| u8::try_from(u32::from(c)).ok())
            .collect(),
        _ => {
            let encoding = encoding_rs::Encoding::for_label(encoding.as_bytes()).expect("known");
            let (bytes, _, unmappable) = encoding.encode(text);
            (!unmappable
                && encoding.decode_without_bom_handling(&bytes).0 == text
                && (encoding != encoding_rs::WINDOWS_1252 || encoding::undefined(&bytes).is_none()))
            .then(|| bytes.into_owned())
        }
    }
}

const ENCODINGS: [&str; 8] = [
    "utf-8",
    "utf-16le",
    "utf-16be",
    "iso-8859-1",
    "windows-1252",
    "shift_jis",
    "gb18030",
    "windows-1251",
];

fn packed(content: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::None => content.to_vec(),
        Compression::Gzip => gzip(content),
        Compression::Zip => zip(&[("data/", b""), ("data/rows.csv", content)]),
    }
}

const ALL: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zip];

fn agrees(text: &str, encoding: &str, offsets: &[usize]) {
    let Some(bytes) = encoded(text, encoding) else {
        return;
    };
    for compression in ALL {
        let stored = packed(&bytes, compression);
        let checked = check(&stored, wishes(encoding)).expect("text");
        assert_eq!(checked.text_bytes, text.len() as u64, "{encoding}");
        assert_eq!(checked.compression, compression);
        assert_eq!(checked.encoding, encoding);
        assert_eq!(checked.head, text.as_bytes()[..text.len().min(HEAD)]);
        for from in offsets {
            let rest = text_from(&stored, wishes(encoding), *from as u64).expect("text");
            assert!(
                rest.concat() == text.as_bytes()[*from..],
                "{encoding} from {from}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_in_any_encoding(
        text in "x[a-z,;\"'\r\n\té–ЖЯ漢字😀]{0,60}",
        encoding in prop::sample::select(ENCODINGS.to_vec()),
        at in any::<prop::sample::Index>(),
    ) {
        agrees(&text, encoding, &[0, text.floor_char_boundary(at.index(text.len())), text.len()]);
    }

    #[test]
    fn latin_text_in_latin_encodings(
        text in "x[a-zé,ü\r\n\u{80}-\u{ff}]{0,60}",
        encoding in prop::sample::select(vec!["utf-8", "utf-16be", "iso-8859-1", "windows-1252"]),
    ) {
        agrees(&text, encoding, &[0, 1]);
    }

    #[test]
    fn a_decoder_may_be_fed_in_any_pieces(
        text in "[a-z,\r\né–Ж漢字😀]{0,40}",
        encoding in prop::sample::select(ENCODINGS.to_vec()),
        piece in 1_usize..9,
    ) {
        if let Some(bytes) = encoded(&text, encoding) {
            let decided = wishes(encoding).encoding.decide(b"x").expect("declared");
            let mut decoder = Decoder::new(decided);
            let mut found = Vec::new();
            for piece in bytes.chunks(piece) {
                let mut block = decoder.begun();
                block.extend_from_slice(piece);
                found.extend(decoder.decode(block, false).expect("text"));
            }
            let rest = decoder.begun();
            found.extend(decoder.decode(rest, true).expect("text"));
            prop_assert_eq!(String::from_utf8(found).expect("UTF-8"), text);
        }
    }
}

#[test]
fn blocks_may_end_anywhere() {
    // The lengths shift each character over the ends of blocks.
    for (shift, line) in [(0, "é,漢字\r\n"), (1, "a,😀\n"), (2, "–é\n"), (3, "漢\n")] {
        let text = format!("{}{}", "x".repeat(shift), line.repeat(700_000 / line.len()));
        let offsets = [0, SNIFF + shift, BLOCK, text.len()].map(|at| text.floor_char_boundary(at));
        for encoding in ["utf-8", "utf-16le", "gb18030"] {
            agrees(&text, encoding, &offsets);
        }
    }
    agrees(
        &"ä;ö\n".repeat(100_000),
        "windows-1252",
        &[0, 300_002, 500_001],
    );
}

#[test]
fn marks_are_no_part_of_the_text() {
    let text = "id,name\n1,é\n";
    let marked = format!("\u{feff}{text}");
    for (label, stored) in [
        ("auto", encoded(&marked, "utf-8")),
        ("utf-8", encoded(&marked, "utf-8")),
        ("auto", encoded(&marked, "utf-16le")),
        ("utf-16", encoded(&marked, "utf-16be")),
        ("utf-16be", encoded(&marked, "utf-16be")),
        ("gb18030", encoded(&marked, "gb18030")),
    ] {
        let stored = stored.expect("encoded");
        for compression in ALL {
            let stored = packed(&stored, compression);
            let checked = check(&stored, wishes(label)).expect(label);
            assert_eq!(checked.head, text.as_bytes(), "{label}");
            for from in [0, 2, 8, text.len()] {
                let rest = text_from(&stored, wishes(label), from as u64).expect(label);
                assert_eq!(
                    rest.concat(),
                    text.as_bytes()[from..],
                    "{label} from {from}"
                );
            }
        }
    }
}

fn refused(stored: &[u8]) -> (String, String) {
    let error = check(stored, wishes("auto")).expect_err("refused");
    assert_eq!(error.class, tenure_core::error::Class::Permanent);
    assert!(
        error.message.len() < 300 && !error.message.contains(char::is_control),
        "{}",
        error.message
    );
    (error.code, error.message)
}

#[test]
fn archives_of_one_file() {
    let csv = b"id,name\n1,x\n";
    let several = [&gzip(b"id,name\n")[..], &gzip(b"1,x\n")].concat();
    let around: &[(&str, &[u8])] = &[
        ("__MACOSX/._rows.csv", b"junk"),
        (".DS_Store", b"junk"),
        ("in/", b""),
        ("in/rows.csv", csv),
        ("in/desktop.ini", b"junk"),
    ];
    for stored in [gzip(csv), several, zip(&[("a.csv", csv)]), zip(around)] {
        assert_eq!(check(&stored, wishes("auto")).expect("text").head, &csv[..]);
    }
}

#[test]
fn archives_that_are_refused() {
    let csv: &[u8] = b"id,name\n1,x\n";
    let long = "id,name\n1,some more of it\n".repeat(4_000);
    let mut garbage = gzip(csv);
    garbage.extend_from_slice(b"garbage");
    let longer = [&garbage[..], b" of some length"].concat();
    let mut broken = gzip(long.as_bytes());
    let half = broken.len() / 2;
    broken[half] ^= 0xff;
    let cut = gzip(long.as_bytes());
    let packed = zip(&[("a.csv", long.as_bytes())]);
    let mut encrypted = zip(&[("a.csv", csv)]);
    encrypted[6] |= 1;
    let central = encrypted
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .expect("a directory");
    encrypted[central + 8] |= 1;
    let mut wrong_sum = zip(&[("a.csv", csv)]);
    wrong_sum[14] ^= 1;
    let central = wrong_sum
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .expect("a directory");
    wrong_sum[central + 16] ^= 1;
    for (stored, part) in [
        (garbage, "something stands behind its end"),
        (longer, "something stands behind its end"),
        (broken, "gzip file"),
        (cut[..cut.len() / 2].to_vec(), "gzip file ends early"),
        (packed[..packed.len() / 2].to_vec(), "ZIP archive"),
        (encrypted, "encrypted"),
        (wrong_sum, "ZIP archive is damaged"),
        (zip(&[]), "holds no file"),
        (zip(&[("in/", b"")]), "holds no file"),
        (zip(&[("a.csv", csv), ("b.csv", csv)]), "'a.csv', 'b.csv'"),
    ] {
        let (code, message) = refused(&stored);
        assert_eq!(code, "CSV_ARCHIVE", "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn what_is_in_an_archive_is_named_too() {
    let csv: &[u8] = b"id\n";
    for (stored, part) in [
        (
            zip(&[("[Content_Types].xml", csv), ("xl/workbook.xml", csv)]),
            "(.xlsx)",
        ),
        (
            zip(&[("mimetype", csv), ("META-INF/manifest.xml", csv)]),
            "(.ods)",
        ),
        (gzip(&gzip(csv)), "a gzip file"),
        (zip(&[("a.csv.gz", &gzip(csv))]), "a gzip file"),
        (gzip(&zip(&[("a", csv)])), "a ZIP archive"),
        (gzip(b"%PDF-1.4"), "a PDF document"),
        (gzip(b"<!doctype html>"), "an HTML page"),
        (
            b"PK\x03\x04 and what is no archive".to_vec(),
            "only begins like a ZIP",
        ),
    ] {
        let (code, message) = refused(&stored);
        assert_eq!(code, "CSV_NOT_TEXT", "{message}");
        assert!(message.contains(part), "{message}");
    }
    let html = encoded("\u{feff}<html>", "utf-16le").expect("encoded");
    assert_eq!(refused(&html).0, "CSV_NOT_TEXT");
}

#[test]
fn a_bomb_is_stopped_at_the_limit() {
    let big = vec![b'x'; 4 << 20];
    let mut zipped = zip(&[("a.csv", &big)]);
    for stored in [gzip(&big), zipped.clone()] {
        let error = check(
            &stored,
            Wishes {
                max_unpacked: (4 << 20) - 1,
                ..wishes("auto")
            },
        )
        .expect_err("too large");
        assert_eq!(error.code, "CSV_TOO_LARGE");
        assert!(error.message.contains("4194303"), "{}", error.message);
        let exact = Wishes {
            max_unpacked: 4 << 20,
            ..wishes("auto")
        };
        assert_eq!(check(&stored, exact).expect("text").text_bytes, 4 << 20);
    }
    // One that says that it is small.
    let central = zipped
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .expect("a directory");
    zipped[central + 24..central + 28].copy_from_slice(&10_u32.to_le_bytes());
    let small = Wishes {
        max_unpacked: 1_000,
        ..wishes("auto")
    };
    let error = check(&zipped, small).expect_err("too large or damaged");
    assert!(
        ["CSV_TOO_LARGE", "CSV_ARCHIVE"].contains(&error.code.as_str()),
        "{}",
        error.code
    );
}

#[tokio::test]
async fn a_stored_file_is_read_by_a_thread_that_ends_with_its_reader() {
    let root = tempfile::tempdir().expect("a folder");
    let files = FileStore::local(root.path()).expect("a store");
    let text = "id,ö\n".repeat(500_000);
    for compression in ALL {
        let stored = Bytes::from(packed(text.as_bytes(), compression));
        let id = FileId::new();
        let size = stored.len() as u64;
        let content = futures::stream::iter(vec![Ok(stored)]);
        files
            .put(id, content, Expected::at_most(size))
            .await
            .expect("stored");
        let source = Source {
            files: files.clone(),
            id,
            size,
            wishes: wishes("auto"),
        };
        let runtime = Handle::current();
        let again = source.clone();
        let checked = tokio::task::spawn_blocking(move || again.check(runtime, &|| false))
            .await
            .expect("no panic")
            .expect("text")
            .expect("not stopped");
        assert_eq!(checked.text_bytes, text.len() as u64);
        for from in [0, 6, text.len() - 6, text.len()] {
            let mut blocks = source
                .text(Handle::current(), from as u64, ())
                .expect("a thread");
            let mut found = Vec::new();
            while let Some(block) = blocks.next().await.expect("text") {
                found.extend_from_slice(&block);
            }
            assert!(
                found == text.as_bytes()[from..],
                "{compression:?} from {from}"
            );
        }
        // Dropped with most of the text unread.
        let (held, ended) = tokio::sync::oneshot::channel::<()>();
        let mut blocks = source.text(Handle::current(), 0, held).expect("a thread");
        assert!(blocks.next().await.expect("text").is_some());
        drop(blocks);
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
        ended
            .expect("the thread ends")
            .expect_err("dropped, not sent");
        // Stopped before it began.
        let runtime = Handle::current();
        let stopped = tokio::task::spawn_blocking(move || source.check(runtime, &|| true))
            .await
            .expect("no panic")
            .expect("no error");
        assert!(stopped.is_none());
    }
}

#[tokio::test]
async fn a_store_that_fails_is_no_fault_of_the_file() {
    let root = tempfile::tempdir().expect("a folder");
    let files = FileStore::local(root.path()).expect("a store");
    for stored in [b"id\n".to_vec(), gzip(b"id\n"), zip(&[("a", b"id\n")])] {
        let id = FileId::new();
        let size = stored.len() as u64;
        files
            .put_bytes(id, Bytes::from(stored))
            .await
            .expect("stored");
        let source = Source {
            files: files.clone(),
            id,
            // More than there is.
            size: size + 1_000_000,
            wishes: wishes("auto"),
        };
        let runtime = Handle::current();
        let error = tokio::task::spawn_blocking(move || source.check(runtime, &|| false))
            .await
            .expect("no panic")
            .expect_err("ends early");
        assert_eq!(error.code, "STORE_UNAVAILABLE", "{}", error.message);
    }
}

//! What an upload may say of itself, and what becomes of one that is cancelled.

use std::path::Path;

use tenure_core::auth::{Principal, Role};
use tenure_core::config::FilesConfig;
use tenure_core::test_util::TestDb;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use v1::file_service_client::FileServiceClient;
use v1::file_service_server::FileServiceServer;

use super::*;
use crate::files::Files;

/// The longest that any wait here may take.
const BOUND: Duration = Duration::from_secs(20);

fn header() -> Header {
    Header {
        name: "a.csv".into(),
        ..Header::default()
    }
}

fn check(header: Header) -> Result<Wanted> {
    check_upload(header, UserId::from_stored("ada".into()), 100)
}

#[test]
fn an_upload_must_move_on() {
    let window = Duration::from_secs(30);
    let second = Duration::from_secs(1);
    // A byte a second, and messages without content, end after the window.
    for bytes in [1, 0] {
        let mut pace = Pace::default();
        for _ in 1..30 {
            pace.note(second, bytes, window).expect("not yet");
        }
        let refused = pace.note(second, bytes, window).expect_err("too slow");
        assert_eq!(refused.code(), Code::DeadlineExceeded);
    }
    let mut pace = Pace::default();
    for _ in 0..100 {
        pace.note(second, 1024, window).expect("slow and steady");
    }
    // What came fast before does not count for ever.
    pace = Pace::default();
    pace.note(window, 1 << 30, window).expect("fast");
    pace.note(window, 0, window).expect_err("too slow now");
}

#[test]
fn an_upload_may_leave_out_all_but_its_name() {
    let wanted = check(header()).expect("accepted");
    assert_eq!(wanted.content_type, DEFAULT_TYPE);
    assert_eq!((wanted.expected.size, wanted.expected.sha256), (None, None));
    let full = Header {
        content_type: "text/csv; charset=utf-8".into(),
        size_bytes: 100,
        sha256: "AB".repeat(32),
        ..header()
    };
    let wanted = check(full).expect("accepted");
    assert_eq!(
        (wanted.expected.size, wanted.expected.sha256),
        (Some(100), Some([0xab; 32]))
    );
}

#[test]
fn a_wrong_header_is_refused_before_any_content() {
    let cases = [
        (
            Header {
                name: String::new(),
                ..header()
            },
            "header.name",
            Code::InvalidArgument,
        ),
        (
            Header {
                name: "a\0".into(),
                ..header()
            },
            "header.name",
            Code::InvalidArgument,
        ),
        (
            Header {
                name: "n".repeat(256),
                ..header()
            },
            "header.name",
            Code::InvalidArgument,
        ),
        (
            Header {
                content_type: "csv".into(),
                ..header()
            },
            "header.content_type",
            Code::InvalidArgument,
        ),
        (
            Header {
                content_type: "text/ä".into(),
                ..header()
            },
            "header.content_type",
            Code::InvalidArgument,
        ),
        (
            Header {
                size_bytes: -1,
                ..header()
            },
            "header.size_bytes",
            Code::InvalidArgument,
        ),
        (
            Header {
                size_bytes: 101,
                ..header()
            },
            "header.size_bytes",
            Code::FileTooLarge,
        ),
        (
            Header {
                sha256: "ab".repeat(31),
                ..header()
            },
            "header.sha256",
            Code::InvalidArgument,
        ),
        (
            Header {
                sha256: "xy".repeat(32),
                ..header()
            },
            "header.sha256",
            Code::InvalidArgument,
        ),
    ];
    for (header, field, code) in cases {
        let error = check(header).expect_err(field);
        assert_eq!(
            (error.code(), error.violations()[0].field.as_str()),
            (code, field)
        );
    }
}

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

/// Waits until the names in a folder are as wanted.
async fn until(folder: &Path, wanted: impl Fn(&[String]) -> bool) {
    let look = async {
        while !wanted(&names(folder)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, look)
        .await
        .expect("within the bound");
}

#[tokio::test]
async fn a_cancelled_upload_leaves_nothing() {
    let db = TestDb::create().await;
    let folder = tempfile::tempdir().expect("a folder");
    let objects = FileStore::local(folder.path()).expect("a store");
    let service = Files::new(db.store.clone(), objects, &FilesConfig::default());
    let service = FileServiceServer::with_interceptor(service, |mut request: tonic::Request<()>| {
        let user = tenure_core::auth::UserId::parse("ada").map_err(Status::internal)?;
        let roles = [Role::Submitter].into_iter().collect();
        request.extensions_mut().insert(Principal { user, roles });
        Ok(request)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener));
    let server = tokio::spawn(server);
    let mut client = FileServiceClient::connect(format!("http://{address}"))
        .await
        .expect("a connection");

    let (sender, parts) = mpsc::channel(4);
    let parts = futures::stream::unfold(parts, |mut parts| async move {
        parts
            .recv()
            .await
            .map(|part| (v1::UploadFileRequest { part: Some(part) }, parts))
    });
    let call = tokio::spawn(async move { client.upload_file(parts).await });
    let header = Header {
        name: "a.csv".into(),
        ..Header::default()
    };
    sender.send(Part::Header(header)).await.expect("taken");
    for _ in 0..4 {
        let chunk = Bytes::from(vec![7; MAX_CHUNK]);
        sender.send(Part::Chunk(chunk)).await.expect("taken");
    }
    until(folder.path(), |names| !names.is_empty()).await;
    call.abort();
    assert!(call.await.is_err_and(|error| error.is_cancelled()));
    // What is being stored has a `#` in its name, what is whole has none.
    until(folder.path(), |names| {
        names.iter().all(|name| !name.contains('#'))
    })
    .await;
    assert_eq!(names(folder.path()), Vec::<String>::new());
    server.abort();
}

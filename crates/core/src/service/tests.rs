use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn context(grace: Duration) -> Context {
    let mut config = Config::default();
    config.service.http_listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    config.service.shutdown_grace = grace;
    Context::new("test", "0", config)
}

#[tokio::test]
async fn the_end_of_the_work_decides_the_exit_code() {
    let minute = Duration::from_mins(1);
    let end = |result: Result<(), BoxError>| async move {
        supervise(&context(minute), Box::pin(async move { result })).await
    };
    assert_eq!(end(Ok(())).await, EXIT_OK);
    assert_eq!(end(Err("wrong".into())).await, EXIT_FAILED);
    let wrong = Error::new(Code::ConfigInvalid, "wrong");
    assert_eq!(end(Err(wrong.into())).await, EXIT_CONFIG);
    let panics: BoxFuture = Box::pin(async { panic!("on purpose") });
    assert_eq!(supervise(&context(minute), panics).await, EXIT_FAILED);
}

#[tokio::test]
async fn a_stop_waits_for_the_work() {
    static DRAINED: AtomicBool = AtomicBool::new(false);
    let context = context(Duration::from_mins(1));
    let shutdown = context.shutdown.clone();
    let work: BoxFuture = Box::pin(async move {
        shutdown.triggered().await;
        tokio::task::yield_now().await;
        DRAINED.store(true, Ordering::SeqCst);
        Err(Error::new(Code::ShuttingDown, "stopping").into())
    });
    context.shutdown.trigger();
    assert_eq!(supervise(&context, work).await, EXIT_OK);
    assert!(DRAINED.load(Ordering::SeqCst));
    assert!(!context.health.is_ready());
}

#[tokio::test]
async fn a_stop_that_takes_too_long_is_cut_off() {
    let context = context(Duration::from_mins(1));
    context.shutdown.trigger();
    let work: BoxFuture = Box::pin(std::future::pending());
    let code = supervise_for(&context, work, Duration::from_millis(10)).await;
    assert_eq!(code, EXIT_CUT_OFF);
}

#[tokio::test]
async fn a_failed_task_ends_the_service_with_a_failure() {
    let context = context(Duration::from_mins(1));
    let shutdown = context.shutdown.clone();
    context.fail();
    let work: BoxFuture = Box::pin(async move {
        shutdown.triggered().await;
        Ok(())
    });
    assert_eq!(supervise(&context, work).await, EXIT_FAILED);
}

async fn page(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    let status = answer[9..12].parse().expect("a status");
    (status, answer)
}

#[tokio::test]
async fn the_pages_of_operators_tell_the_state() {
    let context = context(Duration::from_mins(1));
    let path = std::env::temp_dir().join(format!("tenure-pages-{}", uuid::Uuid::now_v7()));
    let mut config = Config::clone(&context.config);
    config.service.address_file = Some(path.clone());
    let context = Context::new("test", "0", config);
    let inner = context.clone();
    let work: BoxFuture = Box::pin(async move {
        let text = std::fs::read_to_string(&path).expect("the address file is written");
        let address = text.trim().strip_prefix("http=").expect("http");
        let address = address.parse().expect("an address");
        assert_eq!(page(address, "/livez").await.0, 200);
        let (status, body) = page(address, "/readyz").await;
        assert!(status == 503 && body.contains("\"ready\":false"), "{body}");
        inner.health.component("database").up();
        assert_eq!(page(address, "/readyz").await.0, 200);
        let (status, body) = page(address, "/metrics").await;
        assert!(
            status == 200 && body.contains("tenure_build_info"),
            "{body}"
        );
        assert!(body.contains("application/openmetrics-text"), "{body}");
        assert_eq!(page(address, "/nothing").await.0, 404);
        inner.forget_addresses();
        Ok(())
    });
    assert_eq!(serve_all(&context, work).await, EXIT_OK);
}

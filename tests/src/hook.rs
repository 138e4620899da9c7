//! Receivers of webhooks: one that answers as it is told and keeps what it got, and one
//! that only counts who connects.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A call that arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// When.
    pub at: Instant,
    /// The method.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Received {
    /// A header as text; empty where it is not there.
    ///
    /// # Panics
    /// Where it is no text.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("a text"))
    }
}

/// How the next call is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With a status and a header.
    Status(u16, Option<(&'static str, String)>),
    /// With status 200 and a body that never ends.
    Endless,
    /// Not at all.
    Silence,
}

#[derive(Clone, Default)]
struct Shared {
    received: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

/// The receiver. Ends with the value.
#[derive(Debug)]
pub struct Hook {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    server: JoinHandle<()>,
}

impl Hook {
    /// Starts one that answers 204, after the answers that [`Hook::next`] has given it.
    ///
    /// # Panics
    /// Where there is no port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Shared::default();
        let router = Router::new().fallback(take).with_state(shared.clone());
        let server = tokio::spawn(async move {
            // It ends only by being aborted.
            let _ = axum::serve(listener, router).await;
        });
        Self {
            address,
            received: shared.received,
            answers: shared.answers,
            server,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The answer to one more of the calls to come.
    pub fn next(&self, answer: Answer) {
        self.answers.lock().push_back(answer);
    }

    /// All that has arrived.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    shared.received.lock().push(Received {
        at: Instant::now(),
        method,
        path: uri.to_string(),
        headers,
        body,
    });
    let answer = shared.answers.lock().pop_front();
    let mut response = Response::new(Body::empty());
    match answer {
        None => *response.status_mut() = StatusCode::NO_CONTENT,
        Some(Answer::Status(status, header)) => {
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            if let Some((name, value)) = header {
                let value = HeaderValue::from_str(&value).expect("a value");
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        }
        Some(Answer::Endless) => {
            let chunks = futures::stream::repeat_with(|| {
                Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 4096]))
            });
            *response.body_mut() = Body::from_stream(chunks);
        }
        Some(Answer::Silence) => std::future::pending().await,
    }
    response
}

/// A listener that counts connections and says nothing. Ends with the value.
#[derive(Debug)]
pub struct Ear {
    address: SocketAddr,
    heard: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

impl Ear {
    /// Listens at an address; `None`: it cannot be had, since somebody else has it or it is
    /// for the system.
    ///
    /// # Panics
    /// Where a port that is had has no address.
    pub async fn at(address: &str) -> Option<Self> {
        let listener = TcpListener::bind(address).await.ok()?;
        let address = listener.local_addr().expect("an address");
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let server = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Some(Self {
            address,
            heard,
            server,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many have connected.
    pub fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.server.abort();
    }
}

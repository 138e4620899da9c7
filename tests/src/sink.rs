//! A listener for the `effect` job: it counts what arrives, by key, and can keep those
//! who call waiting.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wait::wait_until;

#[derive(Clone)]
struct Shared {
    counts: Arc<Mutex<HashMap<String, usize>>>,
    open: watch::Receiver<bool>,
}

/// The listener. Ends with the value.
#[derive(Debug)]
pub struct Sink {
    url: String,
    counts: Arc<Mutex<HashMap<String, usize>>>,
    open: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Sink {
    /// Starts one that answers at once (`open`), or only after [`Sink::open`].
    ///
    /// # Panics
    /// Where there is no port.
    pub async fn start(open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (sender, receiver) = watch::channel(open);
        let counts = Arc::new(Mutex::new(HashMap::new()));
        let shared = Shared {
            counts: counts.clone(),
            open: receiver,
        };
        let router = Router::new().route("/", post(take)).with_state(shared);
        let server = tokio::spawn(async move {
            // It ends only by being aborted.
            let _ = axum::serve(listener, router).await;
        });
        Self {
            url: format!("http://{address}/"),
            counts,
            open: sender,
            server,
        }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How often a key has arrived, answered or not.
    pub fn count(&self, key: &str) -> usize {
        self.counts.lock().get(key).copied().unwrap_or_default()
    }

    /// Waits until a key has arrived so often.
    ///
    /// # Panics
    /// Where it has not within `bound`.
    pub async fn arrived(&self, key: &str, count: usize, bound: Duration) {
        wait_until(format!("{key} for the {count}. time"), bound, || async {
            (self.count(key) >= count).then_some(())
        })
        .await;
    }

    /// Answers whoever waits, and whoever comes, or lets them wait again.
    pub fn open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(mut shared): State<Shared>, key: String) -> StatusCode {
    *shared.counts.lock().entry(key).or_default() += 1;
    match shared.open.wait_for(|open| *open).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

//! A stretch of network that a test can break: connections to one server, which can be
//! refused, or kept open while nothing gets through.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Everything gets through.
    Up,
    /// Connections stay, and nothing gets through.
    Silent,
    /// Connections are broken and refused.
    Cut,
}

/// How often a connection looks whether the network has changed.
const LOOK: Duration = Duration::from_millis(10);

/// The proxy. It ends with the value.
#[derive(Debug)]
pub struct Proxy {
    /// Its address, `host:port`.
    pub address: String,
    network: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before a server, `host:port`.
    ///
    /// # Panics
    /// Where there is no port.
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let network = Arc::new(AtomicU8::new(Network::Up as u8));
        let (state, server) = (network.clone(), server.to_owned());
        let task = tokio::spawn(async move {
            // The connections end with the listener.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                if state.load(Ordering::Acquire) == Network::Cut as u8 {
                    continue;
                }
                connections.spawn(connect(caller, server.clone(), state.clone()));
            }
        });
        Self {
            address,
            network,
            task,
        }
    }

    /// Makes the network so, for open connections as well.
    pub fn set(&self, network: Network) {
        self.network.store(network as u8, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(caller: TcpStream, server: String, network: Arc<AtomicU8>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (caller_in, caller_out) = caller.into_split();
    let (server_in, server_out) = server.into_split();
    // Where one direction ends, both do.
    tokio::select! {
        () = carry(caller_in, server_out, &network) => {}
        () = carry(server_in, caller_out, &network) => {}
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    network: &AtomicU8,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let state = network.load(Ordering::Acquire);
        if state == Network::Cut as u8 {
            return;
        }
        if state == Network::Silent as u8 {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            () = tokio::time::sleep(LOOK) => continue,
        };
        match read {
            Ok(count) if count > 0 => {
                // What arrived while the network became silent arrives later.
                while network.load(Ordering::Acquire) == Network::Silent as u8 {
                    tokio::time::sleep(LOOK).await;
                }
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

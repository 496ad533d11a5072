//! TLS by rustls, with files that are read again when they change.

use crate::reload::Reloaded;
use longhaul_http::{TlsConfig, TlsError};
use rustls::server::ServerConfig;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The TLS configuration for incoming connections.
#[derive(Debug)]
pub(crate) struct Tls {
    config: TlsConfig,
    loaded: Reloaded<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(config: &TlsConfig) -> Result<Self, TlsError> {
        let files =
            [Some(&config.certificates), Some(&config.key), config.client_authorities.as_ref()];
        let files = files.into_iter().flatten().cloned().collect();
        let loaded = Reloaded::open(files, || load(config))?;
        Ok(Self { config: config.clone(), loaded })
    }

    /// Performs the handshake; `None` if it fails, or takes too long.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        time: Duration,
    ) -> Option<TlsStream<TcpStream>> {
        let config = self.loaded.get(|| load(&self.config));
        let handshake = TlsAcceptor::from(config).accept(stream);
        match tokio::time::timeout(time, handshake).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::info!(event = "tls_refused", %peer, %error, "TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::info!(event = "tls_refused", %peer, ?time, "TLS handshake timed out");
                None
            }
        }
    }
}

fn load(config: &TlsConfig) -> Result<ServerConfig, TlsError> {
    let mut loaded = config.load()?;
    loaded.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(loaded)
}

//! TLS by rustls, with client certificates where they are asked for.

use crate::config::TlsConfig;
use crate::reload::Reloaded;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The files of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up with {path}: {problem}", path = path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// What TLS connections are accepted with.
#[derive(Debug)]
pub(crate) struct Tls {
    config: TlsConfig,
    loaded: Reloaded<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(config: &TlsConfig) -> Result<Self, TlsError> {
        let files =
            [Some(&config.certificate), Some(&config.key), config.client_authorities.as_ref()];
        let files = files.into_iter().flatten().cloned().collect();
        let loaded = Reloaded::open(files, || load(config))?;
        Ok(Self { config: config.clone(), loaded })
    }

    /// Shakes hands; `None` if that fails, or takes too long.
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
                tracing::info!(event = "tls_refused", %peer, %error, "a TLS handshake has failed");
                None
            }
            Err(_) => {
                tracing::info!(event = "tls_refused", %peer, ?time, "a TLS handshake took too long");
                None
            }
        }
    }
}

fn load(config: &TlsConfig) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&config.certificate, error))?;
    let builder = match &config.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| unusable(path, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates(&config.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&config.key);
    let key = key.map_err(|error| unusable(&config.key, error))?;
    let built = builder.with_single_cert(chain, key);
    let mut built = built.map_err(|error| unusable(&config.certificate, error))?;
    built.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(built)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| unusable(path, error))?;
    if all.is_empty() {
        return Err(unusable(path, "it holds no certificate"));
    }
    Ok(all)
}

fn unusable(path: &Path, problem: impl std::fmt::Display) -> TlsError {
    TlsError { path: path.to_owned(), problem: problem.to_string() }
}

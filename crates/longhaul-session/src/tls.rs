//! TLS: trusted authorities and our client certificate.
//!
//! The cryptography is that of the provider that the program has installed as the process's default.
//! If it has installed none, it is ring, behind the feature `ring`. The host name is always checked;
//! no option disables that.

use super::credentials::read_file;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// Largest file that certificates are read from; a system's list of authorities has about 250 KB.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// TLS options for a broker or its admin API.
///
/// ```
/// # mod longhaul { pub mod auth { pub use longhaul_session::TlsOptions; } }
/// use longhaul::auth::TlsOptions;
///
/// let pem = "-----BEGIN CERTIFICATE-----…";
/// let tls = TlsOptions { ca_certificate_pem: Some(pem.into()), ..TlsOptions::default() };
/// ```
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// Certificate authorities in PEM, in addition to those that the system trusts.
    pub ca_certificate_pem: Option<Vec<u8>>,
    /// Certificate authorities in a file, which is read again for each connection.
    pub ca_certificate_path: Option<PathBuf>,
    /// Trusts only the authorities above, and not those of the system.
    pub ca_certificate_only: bool,
    /// Our client certificate, for servers that ask for one.
    pub client: Option<ClientCertificate>,
    /// Our client certificate in files, which are read again for each connection. Takes precedence
    /// over `client`.
    pub client_paths: Option<ClientCertificatePaths>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca_certificate_pem", &self.ca_certificate_pem.as_ref().map(Vec::len))
            .field("ca_certificate_path", &self.ca_certificate_path)
            .field("ca_certificate_only", &self.ca_certificate_only)
            .field("client", &self.client)
            .field("client_paths", &self.client_paths)
            .finish()
    }
}

/// Paths of our client certificate and its private key.
#[derive(Clone, Debug)]
pub struct ClientCertificatePaths {
    /// The certificate and its chain up to the authority, in that order, as PEM.
    pub certificate: PathBuf,
    /// The private key of the first certificate, as PEM without a passphrase.
    pub key: PathBuf,
}

impl ClientCertificatePaths {
    fn read(&self) -> Result<ClientCertificate, TlsOptionsError> {
        let of = "client certificate";
        Ok(ClientCertificate::new(read(&self.certificate, of)?, read(&self.key, of)?))
    }
}

/// Our client certificate and its private key.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate and its chain up to the authority, in that order, as PEM.
    pub certificate_pem: Vec<u8>,
    /// The private key of the first certificate, as PEM without a passphrase.
    pub key_pem: Vec<u8>,
}

impl ClientCertificate {
    /// A certificate and its key, both as PEM.
    #[must_use]
    pub fn new(certificate_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        Self { certificate_pem: certificate_pem.into(), key_pem: key_pem.into() }
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate(…)")
    }
}

/// Why these options give no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsOptionsError {
    /// The input is PEM of something else, or not PEM.
    #[error("the PEM of the {of} holds no {wanted}")]
    Empty {
        /// The PEM: a certificate, a key or an authority.
        of: &'static str,
        /// The expected content.
        wanted: &'static str,
    },
    /// The input begins as PEM and cannot be parsed.
    #[error("the PEM of the {of} cannot be read: {cause}")]
    Pem {
        /// The PEM: a certificate, a key or an authority.
        of: &'static str,
        /// The cause.
        cause: pem::Error,
    },
    /// A file cannot be read.
    #[error("the PEM of the {of} cannot be read from {path}: {cause}")]
    File {
        /// The PEM: a certificate, a key or an authority.
        of: &'static str,
        /// The file.
        path: String,
        /// The cause.
        cause: io::Error,
    },
    /// No authority is trusted.
    #[error("no certificate authority to trust: the system has none; give one")]
    NobodyTrusted,
    /// An authority's certificate is invalid, or the system's authorities cannot be read.
    #[error("the authorities cannot be used: {0}")]
    Authorities(String),
    /// The client certificate is unusable, or the key does not belong to it.
    #[error("the client certificate cannot be used, or does not match its key: {0}")]
    Client(rustls::Error),
    /// The program has installed no provider, and longhaul was built without one.
    #[error(
        "TLS has no cryptography: build longhaul with the feature `ring`, or install a provider by `rustls::crypto::CryptoProvider::install_default` at the start of the program"
    )]
    NoProvider,
    /// The provider lacks what the TLS library needs.
    #[error(transparent)]
    Library(#[from] rustls::Error),
}

impl TlsOptions {
    /// The TLS configuration of a connection. Reads the named files and the system's authorities
    /// each time, so that new connections use their current content. Blocks meanwhile.
    ///
    /// # Errors
    /// A file cannot be read, or it holds no certificate or key.
    pub fn client_config(&self) -> Result<ClientConfig, TlsOptionsError> {
        let provider = crypto_provider()?;
        let verifier = self.verifier(&provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            // Both verifiers check chain, dates and name; the method is called dangerous because
            // others might not.
            .with_custom_certificate_verifier(verifier);
        let read = self.client_paths.as_ref().map(ClientCertificatePaths::read).transpose()?;
        let Some(client) = read.as_ref().or(self.client.as_ref()) else {
            return Ok(builder.with_no_client_auth());
        };
        let of = "client certificate";
        let chain = certificates(&client.certificate_pem, of)?;
        let key = PrivateKeyDer::from_pem_slice(&client.key_pem).map_err(|cause| {
            if matches!(cause, pem::Error::NoItemsFound) {
                TlsOptionsError::Empty { of, wanted: "private key that needs no passphrase" }
            } else {
                TlsOptionsError::Pem { of, cause }
            }
        })?;
        builder.with_client_auth_cert(chain, key).map_err(TlsOptionsError::Client)
    }

    /// As [`client_config`](Self::client_config), for an HTTP client, which needs a configuration
    /// even for `http`. Where TLS is not `required`, nobody need be trusted: a minimal container may
    /// have no certificates.
    ///
    /// # Errors
    /// As [`client_config`](Self::client_config).
    #[doc(hidden)]
    pub fn http_config(&self, required: bool) -> Result<ClientConfig, TlsOptionsError> {
        match self.client_config() {
            Err(TlsOptionsError::NobodyTrusted) if !required => without_trust(),
            config => config,
        }
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsOptionsError> {
        let of = "certificate authorities";
        let path = self.ca_certificate_path.as_ref();
        let read = path.map(|path| read(path, of)).transpose()?;
        let mut authorities = Vec::new();
        for pem in [read.as_ref(), self.ca_certificate_pem.as_ref()].into_iter().flatten() {
            authorities.extend(certificates(pem, of)?);
        }
        let unusable = |cause: rustls::Error| TlsOptionsError::Authorities(cause.to_string());
        let mut given = RootCertStore::empty();
        for authority in &authorities {
            given.add(authority.clone()).map_err(unusable)?;
        }
        if !self.ca_certificate_only {
            match Verifier::new_with_extra_roots(authorities, Arc::clone(provider)) {
                Ok(verifier) => return Ok(Arc::new(verifier)),
                // The given authorities are valid, so the error concerns the system's.
                Err(cause) => {
                    tracing::warn!(%cause, "no authority of the system is trusted, only the given ones");
                }
            }
        }
        let given = WebPkiServerVerifier::builder_with_provider(given.into(), Arc::clone(provider));
        match given.build() {
            Ok(verifier) => Ok(verifier),
            Err(VerifierBuilderError::NoRootAnchors) => Err(TlsOptionsError::NobodyTrusted),
            Err(cause) => Err(TlsOptionsError::Authorities(cause.to_string())),
        }
    }
}

fn read(path: &Path, of: &'static str) -> Result<Vec<u8>, TlsOptionsError> {
    let file = |cause| TlsOptionsError::File { of, path: path.display().to_string(), cause };
    read_file(path, PEM_BYTES_MAX).map(String::into_bytes).map_err(file)
}

/// The provider of the cryptography: the process's default, or ring.
fn crypto_provider() -> Result<Arc<CryptoProvider>, TlsOptionsError> {
    let installed = CryptoProvider::get_default().cloned();
    #[cfg(feature = "ring")]
    let installed = installed.or_else(|| Some(Arc::new(rustls::crypto::ring::default_provider())));
    installed.ok_or(TlsOptionsError::NoProvider)
}

/// A configuration that trusts nobody.
fn without_trust() -> Result<ClientConfig, TlsOptionsError> {
    let builder = ClientConfig::builder_with_provider(crypto_provider()?)
        .with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn certificates(
    pem: &[u8],
    of: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsOptionsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(none) if none.is_empty() => Err(TlsOptionsError::Empty { of, wanted: "certificate" }),
        Ok(some) => Ok(some),
        Err(cause) => Err(TlsOptionsError::Pem { of, cause }),
    }
}

#[cfg(test)]
mod tests;

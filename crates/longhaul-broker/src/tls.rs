//! TLS of the broker's ports: from files to what rustls needs.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where certificates and keys lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The broker's certificate and those that lead to its authority, in that order, as PEM.
    pub certificates: PathBuf,
    /// The private key that belongs to the first of them, as PEM.
    pub key: PathBuf,
    /// Authorities whose clients are let in, as PEM. Without it no client needs a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// A file is PEM, but of something else.
    #[error("{} holds no {wanted}", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// A certificate or key is of no use, or they do not belong together.
    #[error("{} cannot be used", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl TlsConfig {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`TlsError`]; each names the file.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = certificates(&self.certificates)?;
        let key = private_key(&self.key)?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|source| unusable(&self.certificates, source))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|source| unusable(path, source))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|source| unusable(path, source))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key);
        config.map(Arc::new).map_err(|source| {
            if let rustls::Error::InvalidCertificate(cause) = &source {
                let cause = format!("an X.509 certificate of version 3 is needed: {cause:?}");
                return unusable(&self.certificates, cause);
            }
            // Mostly the key is that of another certificate.
            unusable(&self.key, source)
        })
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let path = path.to_owned();
    PrivateKeyDer::from_pem_file(&path).map_err(|source| {
        if matches!(source, pem::Error::NoItemsFound) {
            TlsError::Empty { path, wanted: "private key" }
        } else {
            TlsError::Read { path, source }
        }
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = |source| TlsError::Read { path: path.to_owned(), source };
    let certificates = CertificateDer::pem_file_iter(path).map_err(read)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(read)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { path: path.to_owned(), wanted: "certificate" });
    }
    Ok(certificates)
}

fn unusable(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, ServerConnection};
    use std::io::Write;
    use tempfile::TempDir;

    struct Files {
        folder: TempDir,
        certificate: String,
    }

    impl Files {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            let certificate = params.self_signed(&key).unwrap().pem();
            let files = Self { folder: tempfile::tempdir().unwrap(), certificate };
            files.put("cert", &files.certificate);
            files.put("key", &key.serialize_pem());
            files
        }

        fn put(&self, name: &str, text: &str) {
            let mut file = std::fs::File::create(self.folder.path().join(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn config(&self, certificates: &str, key: &str, authorities: Option<&str>) -> TlsConfig {
            let path = |name: &str| self.folder.path().join(name);
            let client_authorities = authorities.map(path);
            TlsConfig { certificates: path(certificates), key: path(key), client_authorities }
        }

        #[track_caller]
        fn check(&self, certificates: &str, key: &str, authorities: Option<&str>, words: &str) {
            let error = self.config(certificates, key, authorities).load().unwrap_err();
            assert!(error.to_string().ends_with(words), "{error}");
        }
    }

    /// Whether both sides finish.
    fn shakes_hands(files: &Files, server: Arc<ServerConfig>) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(files.certificate.as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(server).unwrap();
        for _ in 0..10 {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            if server.process_new_packets().is_err() {
                return false;
            }
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            if client.process_new_packets().is_err() {
                return false;
            }
        }
        !client.is_handshaking() && !server.is_handshaking()
    }

    #[test]
    fn a_certificate_and_its_key_serve() {
        let files = Files::new();
        assert!(shakes_hands(&files, files.config("cert", "key", None).load().unwrap()));
        let strict = files.config("cert", "key", Some("cert")).load().unwrap();
        assert!(!shakes_hands(&files, strict), "this client has no certificate");
    }

    #[test]
    fn an_error_names_the_file() {
        let files = Files::new();
        files.put("nonsense", "no PEM");
        files.put("other", &KeyPair::generate().unwrap().serialize_pem());
        files.check("missing", "key", None, "missing");
        files.check("nonsense", "key", None, "nonsense holds no certificate");
        files.check("key", "key", None, "key holds no certificate");
        files.check("cert", "nonsense", None, "nonsense holds no private key");
        files.check("cert", "missing", None, "missing");
        files.check("cert", "other", None, "other cannot be used");
        files.check("cert", "key", Some("nonsense"), "nonsense holds no certificate");
    }

    /// Of a certificate of version 1, as `openssl x509 -req` makes it without extensions, its key was said to be of no use.
    #[test]
    fn an_old_certificate_is_not_blamed_on_its_key() {
        let files = Files::new();
        files.put("v1", V1);
        let error = files.config("v1", "key", None).load().unwrap_err();
        assert!(error.to_string().ends_with("v1 cannot be used"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("version 3 is needed"), "{cause}");
    }

    const V1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBJDCBywIUYQNUl5qDw0rhfHmntjP6lQKGWjQwCgYIKoZIzj0EAwIwFDESMBAG\n\
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTE4Mzc1MFoYDzIxMjYxMDI4MTgzNzUw\n\
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
AATBfzEawwzXMz61z28ueSqMZZxSblcu9MXRzWRnySUIr/GHK75xlh208ipJkTGz\n\
NLdVVuIRmtcQFQOhkDqLGSrdMAoGCCqGSM49BAMCA0gAMEUCIQCSr1rol8MRxDPZ\n\
Uitg80hM5jUZhFEEGBPjTJtdhCueQwIgQ4ATryLE/ePgYLR78wdVUDYMbxhIBPRk\n\
mFCwCMPxWjw=\n\
-----END CERTIFICATE-----\n\
";
}

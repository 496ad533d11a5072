//! TLS configuration: from PEM files to rustls.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of certificates and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate and its intermediates, in that order, as PEM.
    pub certificates: PathBuf,
    /// The private key of the first certificate, as PEM.
    pub key: PathBuf,
    /// The authorities of client certificates, as PEM. `None` if clients need no certificate.
    pub client_authorities: Option<PathBuf>,
}

/// A TLS file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS with {path}: {problem}", path = path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: String,
}

impl TlsConfig {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn load(&self) -> Result<ServerConfig, TlsError> {
        let chain = certificates(&self.certificates)?;
        let key = private_key(&self.key)?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificates, error))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| unusable(path, error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|error| unusable(path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder.with_single_cert(chain, key).map_err(|error| {
            if let rustls::Error::InvalidCertificate(cause) = &error {
                let cause = format!("an X.509 certificate of version 3 is needed: {cause:?}");
                return unusable(&self.certificates, cause);
            }
            // Usually the key is that of another certificate.
            unusable(&self.key, error)
        })
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            return unusable(path, "it has no private key");
        }
        unusable(path, error)
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(path, error))?;
    if all.is_empty() {
        return Err(unusable(path, "it has no certificate"));
    }
    Ok(all)
}

fn unusable(path: &Path, problem: impl Display) -> TlsError {
    TlsError { path: path.to_owned(), problem: problem.to_string() }
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
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    /// Whether both sides finish the handshake.
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
        assert!(shakes_hands(&files, Arc::new(files.config("cert", "key", None).load().unwrap())));
        let strict = Arc::new(files.config("cert", "key", Some("cert")).load().unwrap());
        assert!(!shakes_hands(&files, strict), "this client has no certificate");
    }

    #[test]
    fn an_error_names_the_file() {
        let files = Files::new();
        files.put("nonsense", "no PEM");
        files.put("other", &KeyPair::generate().unwrap().serialize_pem());
        files.check("missing", "key", None, "missing: ");
        files.check("nonsense", "key", None, "nonsense: it has no certificate");
        files.check("key", "key", None, "key: it has no certificate");
        files.check("cert", "nonsense", None, "nonsense: it has no private key");
        files.check("cert", "missing", None, "missing: ");
        files.check("cert", "other", None, "other: ");
        files.check("cert", "key", Some("nonsense"), "nonsense: it has no certificate");
    }

    /// The error for a version 1 certificate, as `openssl x509 -req` creates it without extensions,
    /// must not blame the key.
    #[test]
    fn an_old_certificate_is_not_blamed_on_its_key() {
        let files = Files::new();
        files.put("v1", V1);
        let error = files.config("v1", "key", None).load().unwrap_err().to_string();
        assert!(error.contains("v1: ") && error.contains("version 3 is needed"), "{error}");
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

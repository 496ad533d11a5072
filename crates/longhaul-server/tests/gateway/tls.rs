//! TLS, and client certificates.

use crate::support::{config, with_gateway};
use longhaul_server::{Server, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A certificate authority.
fn authority() -> Issuer {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate issued by an authority, and its key.
fn issued(by: &Issuer, is_expired: bool) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    if is_expired {
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let certificate = parameters.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn client(trusted: &Issuer, own: Option<&(String, String)>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// The answer to a request, or the error.
async fn ask(server: &Server, client: &TlsConnector) -> std::io::Result<String> {
    let stream = TcpStream::connect(server.address()).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = client.connect(name, stream).await?;
    stream.write_all(crate::support::get("/healthz").as_bytes()).await?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        // A peer may close without a TLS close notification.
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(String::from_utf8(answer).unwrap()),
    }
}

fn tls(folder: &TempDir, own: &(String, String), clients: Option<&Issuer>) -> TlsConfig {
    let (certificates, key) = (file(folder, "cert.pem", &own.0), file(folder, "key.pem", &own.1));
    let client_authorities = clients.map(|issuer| file(folder, "clients.pem", &issuer.pem()));
    TlsConfig { certificates, key, client_authorities }
}

#[test]
fn tls_is_served_and_nothing_else_on_its_port() {
    let (folder, issuer) = (TempDir::new().unwrap(), authority());
    let mut config = config();
    config.limits.handshake_time = Duration::from_millis(300);
    config.tls = Some(tls(&folder, &issued(&issuer, false), None));
    with_gateway(config, async |server| {
        assert!(server.url().starts_with("https://"));
        let answer = ask(&server, &client(&issuer, None)).await.unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
        assert!(ask(&server, &client(&authority(), None)).await.is_err(), "another authority");
        let mut plain = TcpStream::connect(server.address()).await.unwrap();
        plain.write_all(crate::support::get("/healthz").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        plain.read_to_end(&mut answer).await.ok();
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        // A silent connection is closed.
        let mut silent = TcpStream::connect(server.address()).await.unwrap();
        let closed = tokio::time::timeout(Duration::from_secs(20), silent.read(&mut [0; 1])).await;
        assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
    });
}

#[test]
fn clients_without_a_good_certificate_are_refused() {
    let folder = TempDir::new().unwrap();
    let (issuer, clients) = (authority(), authority());
    let mut config = config();
    config.tls = Some(tls(&folder, &issued(&issuer, false), Some(&clients)));
    with_gateway(config, async |server| {
        let good = issued(&clients, false);
        let answer = ask(&server, &client(&issuer, Some(&good))).await.unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
        for (what, own) in [
            ("none", None),
            ("of another authority", Some(issued(&authority(), false))),
            ("expired", Some(issued(&clients, true))),
        ] {
            let refused = ask(&server, &client(&issuer, own.as_ref())).await;
            assert!(refused.is_err() || refused.is_ok_and(|it| it.is_empty()), "{what}");
        }
    });
}

#[test]
fn a_certificate_that_was_renewed_is_shown() {
    let (folder, first, second) = (TempDir::new().unwrap(), authority(), authority());
    let mut config = config();
    config.tls = Some(tls(&folder, &issued(&first, false), None));
    with_gateway(config, async |server| {
        assert!(ask(&server, &client(&first, None)).await.is_ok());
        tls(&folder, &issued(&second, false), None);
        let renewed = async {
            while ask(&server, &client(&second, None)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), renewed).await.expect("the old one is shown");
    });
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let folder = TempDir::new().unwrap();
    let good = issued(&authority(), false);
    for (own, says) in [
        ((String::new(), good.1.clone()), "cert.pem"),
        ((good.0.clone(), "no key".to_owned()), "key.pem"),
        // The key of another certificate.
        ((good.0, issued(&authority(), false).1), "key.pem"),
    ] {
        let mut config = config();
        config.tls = Some(tls(&folder, &own, None));
        let client = longhaul::testing::TestEngine::new().client().clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(Server::start(client, config)).map(drop).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        assert!(!refused.to_string().contains("PRIVATE"), "{refused}");
    }
}

//! The admin interface with TLS, on a whole broker.

use longhaul_broker::{AuthConfig, Broker, BrokerConfig, TlsConfig, TokenKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

struct Guarded {
    broker: Broker,
    certificate: CertificateDer<'static>,
    admin: String,
    _files: tempfile::TempDir,
}

fn any() -> Option<SocketAddr> {
    Some("127.0.0.1:0".parse().unwrap())
}

fn certified(folder: &Path) -> (TlsConfig, CertificateDer<'static>) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (certificates, key) = (folder.join("certificate"), folder.join("key"));
    std::fs::write(&certificates, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (TlsConfig { certificates, key, client_authorities: None }, made.cert.der().clone())
}

impl Guarded {
    fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let (tls, certificate) = certified(files.path());
        let key = TokenKey::Secret(TokenKey::new_secret().unwrap());
        let admin = key.create_token("admin", None, None).unwrap();
        let config = BrokerConfig {
            admin_tls: any(),
            listen_tls: any(),
            tls: Some(tls),
            auth: Some(AuthConfig::new(key, ["admin".to_owned()].into())),
            ..BrokerConfig::default()
        };
        Self { broker: Broker::start(config).unwrap(), certificate, admin, _files: files }
    }

    fn address(&self) -> String {
        self.broker.admin_url_tls().unwrap().strip_prefix("https://").unwrap().to_owned()
    }

    /// Sends a request by TLS, with additional headers.
    fn ask(&self, path: &str, headers: &str) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(self.address()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let head = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The broker may close without a TLS close alert.
        stream.read_to_end(&mut answer).ok();
        String::from_utf8(answer).unwrap()
    }
}

/// The interface only existed without TLS, so tokens of operators on other machines were sent in
/// plain text.
#[test]
fn the_admin_interface_is_there_by_tls() {
    let guarded = Guarded::start();
    let host = format!("Host: {}\r\n", guarded.address());
    let token = format!("{host}Authorization: Bearer {}\r\n", guarded.admin);
    let tenants = "/admin/v2/tenants";
    let answer = guarded.ask(tenants, &token);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("public"), "{answer}");
    assert!(guarded.ask(tenants, &host).starts_with("HTTP/1.1 401 "));
    assert!(guarded.ask(tenants, "Host: evil.test\r\n").starts_with("HTTP/1.1 421 "));
    for (origin, status) in [("https", "200"), ("http", "403")] {
        let page = format!("{token}Origin: {origin}://{}\r\n", guarded.address());
        let answer = guarded.ask(tenants, &page);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {answer}");
    }
    // Clients with an `https` service URL look up topics here.
    let lookup = guarded.ask("/lookup/v2/topic/persistent/public/default/t", &token);
    let url = guarded.broker.service_url_tls().unwrap();
    assert!(lookup.contains(&format!(r#""brokerUrlTls":"{url}""#)), "{lookup}");
    let own = format!(r#""httpUrlTls":"https://{}""#, guarded.address());
    assert!(lookup.contains(&own), "{lookup}");
    guarded.broker.shutdown().unwrap();
}

#[test]
fn who_does_not_encrypt_gets_nothing_from_the_port_for_tls() {
    let guarded = Guarded::start();
    let mut stream = TcpStream::connect(guarded.address()).unwrap();
    stream.write_all(b"GET /status.html HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn a_port_for_tls_needs_a_certificate() {
    let refused = Broker::start(BrokerConfig { admin_tls: any(), ..BrokerConfig::default() });
    assert!(refused.unwrap_err().to_string().contains("a certificate and a key"));
}

use super::*;
use crate::ClientCertificate;
use crate::keys::{Authority, server};
use rustls::ServerConfig;
use std::future::pending;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const LOOPBACK: &str = "127.0.0.1";
/// Longer than any dial in these tests takes.
const LONG: Duration = Duration::from_secs(8);

fn endpoint(tls: bool, host: &str, port: u16) -> Endpoint {
    Endpoint { tls, host: host.to_owned(), port }
}

/// Serves one connection: sends a text, and waits until the client has left.
struct Server {
    port: u16,
    _serving: JoinSet<()>,
}

impl Server {
    async fn new(config: Option<ServerConfig>, word: &'static [u8]) -> Self {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut stream: Wire = match config {
                // Reads the client's bytes first: a connection that is closed with unread bytes may
                // lose the text.
                None => {
                    assert!(tcp.read(&mut [0; 1024]).await.unwrap() > 0);
                    Box::new(tcp)
                }
                Some(config) => match TlsAcceptor::from(Arc::new(config)).accept(tcp).await {
                    Ok(tls) => Box::new(tls),
                    Err(_) => return,
                },
            };
            stream.write_all(word).await.ok();
            stream.flush().await.ok();
            if !word.is_empty() {
                drop(stream.read(&mut [0; 1024]).await);
            }
        });
        Self { port, _serving: serving }
    }

    async fn dial(
        &self,
        host: &str,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Wire, TransportError> {
        dial_within(&endpoint(tls.is_some(), host, self.port), tls, LONG).await
    }
}

#[track_caller]
fn check<T>(dialled: Result<T, TransportError>, kind: TransportErrorKind, words: &str) {
    let Err(error) = dialled else { panic!("connected, and not `{words}`") };
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.cause.contains(words), "{error}");
    assert!(error.address.starts_with("pulsar"), "{error}");
}

#[test]
fn what_is_not_pulsar_is_named() {
    assert!(foreign(b"HTTP/1.1 400 Bad Request\r\n").unwrap().contains("HTTP server"));
    assert!(foreign(&[0x15, 3, 3, 0, 2, 2, 22]).unwrap().contains("pulsar+ssl://"));
    for may_be_pulsar in [&[0, 0, 0, 42][..], b"HT", &[0x15], b""] {
        assert_eq!(foreign(may_be_pulsar), None);
    }
}

#[tokio::test]
async fn a_trusted_server_of_the_right_name_is_spoken_to() {
    let authority = Authority::new("ours");
    let server = Server::new(Some(server(&authority.certify(LOOPBACK))), b"word").await;
    let mut wire = server.dial(LOOPBACK, Some(&authority.client(None))).await.unwrap();
    let mut word = [0; 4];
    wire.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"word");
}

#[tokio::test]
async fn certificates_that_prove_nothing_are_refused() {
    use TransportErrorKind::Refused;
    let (authority, other) = (Authority::new("ours"), Authority::new("other"));
    let (good, past) = (authority.certify(LOOPBACK), authority.certify_the_past(LOOPBACK));
    let elsewhere = authority.certify("elsewhere");
    let ours = authority.client(None);
    for (shown, client, words) in [
        (&good, &other.client(None), "UnknownIssuer"),
        (&past, &ours, "expired"),
        (&elsewhere, &ours, "not valid for name"),
    ] {
        let server = Server::new(Some(server(shown)), b"").await;
        check(server.dial(LOOPBACK, Some(client)).await, Refused, words);
    }
    // The certificate is for the address, not for the host name.
    let server = Server::new(Some(server(&good)), b"").await;
    check(server.dial("localhost", Some(&ours)).await, Refused, "localhost");
}

#[tokio::test]
async fn a_port_without_tls_is_recognised() {
    let client = Authority::new("ours").client(None);
    for (word, kind) in [
        (&b""[..], TransportErrorKind::Unreachable),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", TransportErrorKind::Refused),
    ] {
        let server = Server::new(None, word).await;
        check(server.dial(LOOPBACK, Some(&client)).await, kind, "a port with TLS?");
    }
}

/// Connects, with or without a client certificate, to a server that requires one; returns how the
/// first read ends.
async fn first_read(
    authority: &Authority,
    client: Option<ClientCertificate>,
) -> Result<usize, TransportError> {
    let config = authority.demanding_server(&authority.certify(LOOPBACK));
    let server = Server::new(Some(config), b"word").await;
    let mut wire = server.dial(LOOPBACK, Some(&authority.client(client))).await?;
    let read = wire.read(&mut [0; 16]).await;
    read.map_err(|failure| greeting_failed(&endpoint(true, LOOPBACK, server.port), &failure))
}

#[tokio::test]
async fn a_server_may_refuse_our_certificate() {
    use TransportErrorKind::Unauthorized;
    let authority = Authority::new("ours");
    let good = authority.certify("client");
    assert_eq!(first_read(&authority, Some(good)).await.unwrap(), 4);
    let past = Some(authority.certify_the_past("client"));
    check(first_read(&authority, past).await, Unauthorized, "CertificateExpired");
    check(first_read(&authority, None).await, Unauthorized, "CertificateRequired");
    // Certified by an authority that the server does not know, or that only has the right name.
    for (name, words) in [("other", "UnknownCA"), ("ours", "our client certificate: Decrypt")] {
        let stranger = Some(Authority::new(name).certify("client"));
        check(first_read(&authority, stranger).await, Unauthorized, words);
    }
}

#[tokio::test]
async fn a_closed_port_is_named_with_its_address() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let dialled = dial_within(&endpoint(false, LOOPBACK, port), None, LONG).await;
    check(dialled, TransportErrorKind::Unreachable, &format!("{LOOPBACK}:{port}: "));
}

#[tokio::test]
async fn an_endpoint_with_tls_is_never_spoken_to_without() {
    let dialled = dial_within(&endpoint(true, LOOPBACK, 1), None, LONG).await;
    check(dialled, TransportErrorKind::Invalid, "not set up");
}

/// Accepts connections, as the kernel does for a frozen process, and sends nothing.
async fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn a_dead_address_leaves_time_for_the_next() {
    let authority = Authority::new("ours");
    let config = authority.client(None);
    let at = endpoint(true, LOOPBACK, 1);
    let encryption = Encryption::new(&at, &config).unwrap();
    let (_frozen, dead) = silent().await;
    let server = Server::new(Some(server(&authority.certify(LOOPBACK))), b"word").await;
    let alive = SocketAddr::from(([127, 0, 0, 1], server.port));
    let left = || Duration::from_secs(2);
    let dialled = dial_addresses(&at, &[dead, alive], Some(&encryption), left).await;
    assert!(dialled.is_ok(), "{:?}", dialled.err());
}

#[tokio::test]
async fn each_address_that_was_tried_is_told() {
    let at = endpoint(true, LOOPBACK, 1);
    let encryption = Encryption::new(&at, &Authority::new("ours").client(None)).unwrap();
    let ((_frozen, one), (_too, two)) = (silent().await, silent().await);
    let left = || Duration::from_millis(100);
    let dialled = dial_addresses(&at, &[one, two], Some(&encryption), left).await;
    let Err(error) = dialled else { panic!("connected") };
    let expected = [
        format!("{one}: no TLS handshake within 50 ms"),
        format!("{two}: no TLS handshake within 100 ms"),
    ];
    assert_eq!(error.cause, expected.join("; "));
    assert_eq!(error.kind, TransportErrorKind::Unreachable);
}

#[test]
fn a_hang_up_at_the_greeting_hints_at_tls_only_without_it() {
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    for (tls, hinted) in [(false, true), (true, false)] {
        let error = greeting_failed(&endpoint(tls, LOOPBACK, 1), &reset);
        assert_eq!(error.kind, TransportErrorKind::Unreachable);
        assert_eq!(error.cause.contains("use pulsar+ssl://"), hinted, "{error}");
    }
}

#[tokio::test]
async fn small_requests_wait_for_nothing() {
    let (_listener, address) = silent().await;
    assert!(connect(address).await.unwrap().nodelay().unwrap());
}

#[tokio::test]
async fn a_name_without_an_address_is_told() {
    let at = endpoint(false, "nowhere", 1);
    let dialled = dial_addresses(&at, &[], None, || LONG).await;
    check(dialled, TransportErrorKind::Unreachable, "the name has no address");
}

/// The error says which step timed out, which points to the network or to the broker.
#[tokio::test]
async fn what_is_waited_for_in_vain_is_named() {
    let Err(failure) = open(pending(), None, Duration::ZERO).await else { panic!("connected") };
    assert_eq!(failure.cause, "no connection within 0 ms");
}

/// An invalid certificate was hidden by a timeout of the next address.
#[tokio::test]
async fn a_refusal_by_one_address_is_not_hidden_by_the_silence_of_another() {
    let authority = Authority::new("ours");
    let server = Server::new(Some(server(&authority.certify(LOOPBACK))), b"").await;
    let refusing = SocketAddr::from(([127, 0, 0, 1], server.port));
    let at = endpoint(true, LOOPBACK, 1);
    let encryption = Encryption::new(&at, &Authority::new("other").client(None)).unwrap();
    let (listener, closed) = silent().await;
    drop(listener);
    let dialled = dial_addresses(&at, &[refusing, closed], Some(&encryption), || LONG).await;
    check(dialled, TransportErrorKind::Refused, "UnknownIssuer");
}

fn alert(alert: AlertDescription) -> io::Error {
    io::Error::other(rustls::Error::AlertReceived(alert))
}

/// The same alert comes during the handshake before TLS 1.3, and after it with TLS 1.3.
#[test]
fn what_a_server_says_about_our_certificate_is_told_in_words() {
    use TransportErrorKind::{Refused, Unauthorized};
    for (description, kind, words) in [
        (AlertDescription::CertificateRequired, Unauthorized, "requires a client certificate"),
        (AlertDescription::UnknownCA, Unauthorized, "does not accept our client certificate"),
        (AlertDescription::InternalError, Refused, "does the server know its authority?"),
    ] {
        let at = endpoint(true, LOOPBACK, 1);
        let error = greeting_failed(&at, &alert(description));
        assert!(error.kind == kind && error.cause.contains(words), "{error}");
        let failure = no_handshake(&alert(description));
        assert!(failure.kind == kind && failure.cause.contains(words), "{failure:?}");
        assert!(failure.cause.starts_with("TLS handshake: "), "{failure:?}");
    }
}

#[test]
fn another_failure_is_told_without_a_hint() {
    let failure = no_handshake(&alert(AlertDescription::ProtocolVersion));
    assert_eq!(failure.kind, TransportErrorKind::Refused);
    assert!(failure.cause.ends_with("ProtocolVersion"), "{failure:?}");
    let error = greeting_failed(&endpoint(false, LOOPBACK, 1), &io::Error::other("odd"));
    assert_eq!((error.kind, error.cause.as_str()), (TransportErrorKind::Refused, "odd"));
}

use super::*;
use futures::future::join_all;
use std::fs;
use std::sync::{Arc, Mutex as StdMutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Longer than any issuer in these tests takes.
const LONG: Duration = Duration::from_secs(15);

/// An issuer that answers the discovery and gives, or refuses, numbered tokens.
pub(in super::super) struct FakeIssuer {
    url: String,
    /// The bodies of the token requests.
    asked: Arc<StdMutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

/// A key whose issuer the options override.
const KEY: &str = r#"{"client_id": "me", "client_secret": "s&cret", "issuer_url": "http://other"}"#;

/// The issuer's answers; `#` stands for the number of the request.
#[derive(Clone, Copy)]
pub(in super::super) struct Script {
    discovery: &'static str,
    status: &'static str,
    answer: &'static str,
}

pub(in super::super) const GRANTED: Script = Script {
    discovery: r#"{"token_endpoint": "URL/oauth/token"}"#,
    status: "200 OK",
    answer: r#"{"access_token": "token-#", "token_type": "Bearer", "expires_in": 3600}"#,
};

impl FakeIssuer {
    pub(in super::super) async fn new(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(StdMutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        let (base, bodies) = (url.clone(), Arc::clone(&asked));
        serving.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                let (status, body) =
                    if request.starts_with("GET /tenant/.well-known/openid-configuration ") {
                        ("200 OK", script.discovery.replace("URL", &base))
                    } else if request.starts_with("POST /oauth/token ") {
                        let body = request.split("\r\n\r\n").nth(1).unwrap().to_owned();
                        let mut bodies = bodies.lock().unwrap();
                        bodies.push(body);
                        (script.status, script.answer.replace('#', &bodies.len().to_string()))
                    } else {
                        ("404 Not Found", String::new())
                    };
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
                let answer = format!("{head}connection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        Self { url: format!("{url}/tenant/"), asked, _serving: serving }
    }

    fn key(&self) -> String {
        let Self { url, .. } = self;
        let key = serde_json::json!({"type": "client_credentials", "client_id": "me",
            "client_secret": "s&cret", "client_email": "a@b", "issuer_url": url});
        key.to_string()
    }

    fn key_of_type(&self, kind: &str) -> String {
        self.key().replace("client_credentials", kind)
    }

    pub(in super::super) fn options(&self) -> OAuth2 {
        OAuth2::key_json(self.key())
    }

    fn source(&self) -> TokenSource {
        TokenSource::new(self.options())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = String::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        request.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .split_once("content-length: ")
            .map_or(0, |(_, rest)| rest.split("\r\n").next().unwrap().parse().unwrap());
        if body.len() >= length {
            return request;
        }
    }
}

async fn check_refused(script: Script, kind: TransportErrorKind, words: &str) {
    let issuer = FakeIssuer::new(script).await;
    let error = issuer.source().token(LONG).await.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert_eq!(error.address, issuer.url);
    assert!(error.cause.contains(words) && !error.cause.contains("s&cret"), "{error}");
}

#[tokio::test]
async fn a_token_is_asked_for_as_the_key_says_and_kept() {
    let issuer = FakeIssuer::new(GRANTED).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    fs::write(&path, issuer.key()).unwrap();
    let options = OAuth2::key_file(&path).audience("urn:a b").scope("x y");
    let source = TokenSource::new(options);
    for _ in 0..2 {
        assert_eq!(source.token(LONG).await.unwrap(), "token-1");
    }
    let form = "grant_type=client_credentials&client_id=me&client_secret=s%26cret\
        &audience=urn%3Aa+b&scope=x+y";
    assert_eq!(issuer.asked(), [form]);
}

#[tokio::test]
async fn many_that_want_a_token_at_once_ask_once() {
    let issuer = FakeIssuer::new(GRANTED).await;
    let source = issuer.source();
    let tokens = join_all((0..50).map(|_| source.token(LONG))).await;
    assert!(tokens.into_iter().all(|token| token.unwrap() == "token-1"));
    assert_eq!(issuer.asked().len(), 1);
}

#[tokio::test]
async fn a_token_that_ends_or_says_nothing_of_its_life_is_not_kept() {
    for answer in [
        r#"{"access_token": "token-#", "expires_in": 0}"#,
        r#"{"access_token": "token-#"}"#,
        r#"{"access_token": "token-#", "expires_in": -5.5}"#,
    ] {
        let issuer = FakeIssuer::new(Script { answer, ..GRANTED }).await;
        let source = issuer.source();
        assert_eq!(source.token(LONG).await.unwrap(), "token-1");
        assert_eq!(source.token(LONG).await.unwrap(), "token-2");
    }
}

#[test]
fn a_token_is_renewed_before_it_expires() {
    assert_eq!(lifetime(100.0), Some(Duration::from_secs(90)));
    assert_eq!(lifetime(f64::MAX), None);
    assert_eq!(lifetime(f64::NAN), None);
    assert_eq!(lifetime(1e12), Some(LIFETIME_MAX * 9 / 10));
}

#[tokio::test]
async fn refusals_are_told_in_the_issuers_words() {
    use TransportErrorKind::{Refused, Unauthorized, Unreachable};
    let answer = r#"{"error": "invalid_client", "error_description": "no s&cret of mine"}"#;
    let refused = Script { status: "401 Unauthorized", answer, ..GRANTED };
    check_refused(refused, Unauthorized, "invalid_client: no … of mine").await;
    let busy = Script { status: "503 Service Unavailable", answer: "<html>", ..GRANTED };
    check_refused(busy, Unreachable, "503").await;
    let moved = Script { status: "302 Found", answer: "", ..GRANTED };
    check_refused(moved, Refused, "302").await;
    check_refused(Script { answer: "<html>", ..GRANTED }, Refused, "not the JSON").await;
    let answer = r#"{"error": "slow_down"}"#;
    let many = Script { status: "429 Too Many Requests", answer, ..GRANTED };
    check_refused(many, Unreachable, "429 Too Many Requests: slow_down").await;
    for status in ["400 Bad Request", "403 Forbidden"] {
        check_refused(Script { status, answer, ..GRANTED }, Unauthorized, "slow_down").await;
    }
    let empty = Script { answer: r#"{"access_token": ""}"#, ..GRANTED };
    check_refused(empty, Refused, "token is empty").await;
    check_refused(Script { discovery: "{}", ..GRANTED }, Refused, "discovery").await;
    let odd = Script { discovery: r#"{"token_endpoint": "file:///a"}"#, ..GRANTED };
    check_refused(odd, Refused, "less safe").await;
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let with_token =
        |token: &str| -> &'static str { format!(r#"{{"access_token": "{token}"}}"#).leak() };
    let largest = "x".repeat(ANSWER_BYTES_MAX - with_token("").len());
    let issuer = FakeIssuer::new(Script { answer: with_token(&largest), ..GRANTED }).await;
    assert_eq!(issuer.source().token(LONG).await.unwrap(), largest);
    let script = Script { answer: with_token(&(largest + "x")), ..GRANTED };
    check_refused(script, TransportErrorKind::Refused, "too large").await;
}

fn issuer_at<'a>(url: &str, tls: &TlsOptions) -> Result<Issuer<'a>, TransportError> {
    Issuer::new(url, tls, "secret")
}

#[test]
fn an_issuer_has_a_url_without_secrets() {
    let tls = TlsOptions::default();
    let plain = issuer_at("http://127.0.0.1/a?secret#secret", &tls).map(|it| it.url);
    assert_eq!(plain.unwrap().as_str(), "http://127.0.0.1/a");
    for (url, words) in [
        ("ftp://a", "has an https:// URL"),
        ("mailto:secret@a", "has an https:// URL"),
        ("https://secret@a", "into the key"),
        ("https://:secret@a", "into the key"),
    ] {
        let Err(error) = issuer_at(url, &tls) else { panic!("{url}") };
        assert_eq!(error.kind, TransportErrorKind::Invalid);
        assert!(error.cause.contains(words) && !error.cause.contains("secret"), "{error}");
    }
}

/// A minimal container has no certificates, and an issuer without TLS needs none.
#[test]
fn an_issuer_with_tls_needs_somebody_to_be_trusted() {
    let nobody = TlsOptions { ca_certificate_only: true, ..TlsOptions::default() };
    assert!(issuer_at("http://127.0.0.1/", &nobody).is_ok());
    let Err(error) = issuer_at("https://127.0.0.1/", &nobody) else { panic!("nobody is trusted") };
    assert!(error.cause.contains("no certificate authority to trust"), "{error}");
    let ca_certificate_pem = Some(b"rubbish".to_vec());
    assert!(issuer_at("http://127.0.0.1/", &TlsOptions { ca_certificate_pem, ..nobody }).is_err());
}

#[test]
fn a_secret_that_others_could_read_is_noticed() {
    for (url, eavesdropped) in [
        ("http://issuer/", true),
        ("https://issuer/", false),
        ("http://localhost/", false),
        ("http://[::1]:1/", false),
        ("https://127.0.0.1/", false),
    ] {
        assert_eq!(is_eavesdropped(&Url::parse(url).unwrap()), eavesdropped, "{url}");
    }
}

/// The token endpoint may be on another host, with a safer scheme than that of the discovery
/// document.
#[tokio::test]
async fn an_issuer_without_tls_may_name_a_place_with_it() {
    let discovery = r#"{"token_endpoint": "https://127.0.0.1:1/token"}"#;
    check_refused(Script { discovery, ..GRANTED }, TransportErrorKind::Unreachable, "token: ")
        .await;
}

#[tokio::test]
async fn an_issuer_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error =
        TokenSource::new(OAuth2::key_json(KEY).issuer_url(&url)).token(LONG).await.unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Unreachable);
    assert_eq!(error.address, url);
    assert!(error.cause.to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn an_issuer_that_is_silent_is_named_when_the_time_is_over() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let source = TokenSource::new(OAuth2::key_json(KEY).issuer_url(&url));
    let error = source.token(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!((error.kind, &error.address), (TransportErrorKind::Unreachable, &url));
    assert_eq!(error.cause, "no token within 50 ms");
}

#[tokio::test]
async fn a_key_that_is_of_no_use_is_told_and_not_shown() {
    for (key, words) in [
        ("secret", "no JSON with"),
        (r#"{"client_id": "secret"}"#, "client_secret"),
        (r#"{"client_id": "a", "client_secret": "secret"}"#, "issuer_url"),
        (r#"{"client_id": "a", "client_secret": "b", "issuer_url": "secret"}"#, "not a URL"),
        (
            r#"{"client_id": "a", "client_secret": "b", "issuer_url": "https://a:secret@b"}"#,
            "into the key",
        ),
    ] {
        let options = OAuth2::key_json(key);
        assert!(!format!("{options:?}").contains("secret"));
        let error = TokenSource::new(options).token(LONG).await.unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Invalid);
        assert!(["OAuth2 key", "OAuth2 issuer"].contains(&error.address.as_str()), "{error}");
        // The error names a missing field, which is not secret.
        let shown = error.to_string().replace("client_secret", "");
        assert!(error.cause.contains(words) && !shown.contains("secret"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("key.json");
    let error = TokenSource::new(OAuth2::key_file(&missing)).token(LONG).await.unwrap_err();
    assert_eq!(error.address, missing.display().to_string());
}

/// The key files of StreamNative Cloud have their own type, `sn_service_account`, with the same
/// three fields. They were refused, and a test required that: no client could connect to that
/// cloud.
#[tokio::test]
async fn a_key_of_any_type_will_do() {
    let issuer = FakeIssuer::new(GRANTED).await;
    for (kind, token) in [("sn_service_account", "token-1"), ("what comes next", "token-2")] {
        let source = TokenSource::new(OAuth2::key_json(issuer.key_of_type(kind)));
        assert_eq!(source.token(LONG).await.unwrap(), token);
    }
}

/// A token that its issuer had revoked was used again and again, until it expired.
#[tokio::test]
async fn a_token_that_was_refused_is_not_shown_again() {
    let issuer = FakeIssuer::new(GRANTED).await;
    let source = issuer.source();
    let first = source.token(LONG).await.unwrap();
    source.forget(&first).await;
    assert_eq!(source.token(LONG).await.unwrap(), "token-2");
    // Another connection may report the same refused token later.
    source.forget(&first).await;
    assert_eq!(source.token(LONG).await.unwrap(), "token-2");
    assert_eq!(issuer.asked().len(), 2);
}

use super::hosts::HOSTS_MAX;
use super::*;
use longhaul_session::keys::Authority;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that reads one request per connection and returns the next of its answers.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinSet<()>,
}

impl Server {
    async fn new(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut serving = tokio::task::JoinSet::new();
        let requests = Arc::clone(&seen);
        serving.spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                requests.lock().unwrap().push(request);
                // The client may close before it has read everything.
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        Self { url, seen, serving }
    }

    fn http(&self, token: Option<&str>) -> Http {
        self.http_as(token.map_or_else(Credentials::none, Credentials::token))
    }

    fn http_as(&self, credentials: Credentials) -> Http {
        let options = AdminOptions { credentials, ..AdminOptions::default() };
        Http::new(&self.url, &options).unwrap()
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut request = String::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        if n == 0 {
            return request;
        }
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

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    )
}

fn redirect(to: &str) -> String {
    answer("307 Temporary Redirect", &format!("location: {to}\r\n"), "")
}

fn call(method: Method, path: &[&str], body: Option<&str>) -> AdminHttpCall {
    let path = path.iter().map(|segment| (*segment).to_owned()).collect();
    AdminHttpCall { method, path, query: None, body: body.map(str::to_owned) }
}

#[tokio::test]
async fn a_redirect_keeps_method_body_and_token() {
    for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE] {
        // More answers than requests: a test that tries a closed port again and again may find one
        // of these servers there, and take an answer.
        let owner = Server::new(vec![answer("200 OK", "", "7"); 3]).await;
        let to_owner = redirect(&format!("{}/a?authoritative=true", owner.url));
        let first = Server::new(vec![to_owner; 3]).await;
        let body = (method == Method::POST).then_some("{\"x\":1}");
        let number: u32 =
            first.http(Some("secret")).json(&call(method.clone(), &["a"], body)).await.unwrap();
        assert_eq!(number, 7);
        let start = format!("{method} /a?authoritative=true");
        let seen = owner.seen();
        let request = seen.iter().find(|request| request.starts_with(&start)).unwrap();
        assert!(request.contains("authorization: Bearer secret\r\n"), "{request}");
        assert_eq!(body.is_some(), request.ends_with("{\"x\":1}"), "{request}");
    }
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let server = Server::new((0..=REDIRECTS_MAX).map(|_| redirect("/again")).collect()).await;
    let failed = server.http(None).done(&call(Method::PUT, &["a"], None)).await.unwrap_err();
    assert_eq!(failed.kind, AdminErrorKind::Other);
    assert!(failed.to_string().contains("redirected more than 5 times"), "{failed}");
}

#[tokio::test]
async fn a_redirect_to_something_else_than_a_broker_is_refused() {
    for (to, words) in [("file:///etc/passwd", "less safe"), ("http://[", "invalid URL")] {
        let server = Server::new(vec![redirect(to)]).await;
        let failed = server.http(Some("secret")).done(&call(Method::GET, &["a"], None)).await;
        let failed = failed.unwrap_err().to_string();
        assert!(failed.contains(words) && !failed.contains("secret"), "{failed}");
    }
    let from = parse("https://broker/a").unwrap();
    let hop = |to| next_hop(&from, Some(&HeaderValue::from_static(to)));
    assert!(hop("http://other/a").unwrap_err().contains("less safe"));
    assert!(hop("https://user:secret@other/a").unwrap_err().contains("less safe"));
    assert_eq!(hop("https://other/a").unwrap(), "https://other/a");
    assert_eq!(hop("HTTPS://other/a").unwrap(), "https://other/a");
    assert_eq!(hop("/b?c=http://d").unwrap(), "https://broker/b?c=http://d");
    assert_eq!(next_hop(&from, None).unwrap_err(), "redirected nowhere");
}

#[tokio::test]
async fn answers_are_told_apart() {
    let cases = [
        ("401 Unauthorized", "", AdminErrorKind::Unauthorized, "401"),
        ("403 Forbidden", "{\"reason\":\"no role\"}", AdminErrorKind::Unauthorized, "403: no role"),
        (
            "404 Not Found",
            "{\"reason\":\"Topic x not found\"}",
            AdminErrorKind::NotFound,
            "Topic x",
        ),
        ("409 Conflict", "{\"reason\":\"exists\"}", AdminErrorKind::Conflict, "exists"),
        (
            "405 Method Not Allowed",
            "{\"reason\":\"Topic level policies is disabled, to enable\"}",
            AdminErrorKind::PoliciesDisabled,
            "disabled",
        ),
        ("405 Method Not Allowed", "", AdminErrorKind::Other, "405"),
        (
            "500 Oops",
            "<html>\n<b>stack\ttrace</b>",
            AdminErrorKind::Other,
            "<html> <b>stack trace</b>",
        ),
        ("302 Found", "", AdminErrorKind::Other, "302"),
        (
            "200 OK",
            "<html>login</html>",
            AdminErrorKind::Other,
            "not the JSON expected: <html>login",
        ),
        ("200 OK", "", AdminErrorKind::Other, "not the JSON expected"),
    ];
    for (status, body, kind, words) in cases {
        let server = Server::new(vec![answer(status, "", body)]).await;
        let failed =
            server.http(None).json::<u32>(&call(Method::GET, &["a"], None)).await.unwrap_err();
        assert_eq!(failed.kind, kind, "{failed}");
        let shown = failed.to_string();
        assert!(shown.contains(words) && shown.contains("GET http://127.0.0.1:"), "{shown}");
        assert!(!shown.contains('\n'), "{shown}");
    }
}

#[tokio::test]
async fn an_empty_answer_is_null() {
    let server = Server::new(vec![answer("204 No Content", "", "")]).await;
    let value: Option<u32> =
        server.http(None).json(&call(Method::GET, &["a"], None)).await.unwrap();
    assert_eq!(value, None);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let body = "x".repeat(ANSWER_BYTES_MAX + 1);
    let server = Server::new(vec![answer("200 OK", "", &body)]).await;
    let failed = server.http(None).done(&call(Method::GET, &["a"], None)).await.unwrap_err();
    assert!(failed.to_string().contains("too large"), "{failed}");
}

#[tokio::test]
async fn nobody_at_home_is_unreachable_and_keeps_its_cause() {
    let mut server = Server::new(Vec::new()).await;
    server.serving.join_next().await.unwrap().unwrap();
    let failed =
        server.http(Some("secret")).done(&call(Method::GET, &["a"], None)).await.unwrap_err();
    assert_eq!(failed.kind, AdminErrorKind::Unreachable);
    assert!(failed.source.is_some());
    assert!(!format!("{failed:?} {failed}").contains("secret"));
}

#[test]
fn nothing_is_sent_with_unusable_settings() {
    let none = AdminOptions::default();
    for url in ["", "localhost:8080", "ftp://a", "http://user:secret@a"] {
        let refused = Http::new(url, &none).unwrap_err();
        assert_eq!(refused.kind, AdminErrorKind::Invalid, "{url}");
        assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
    }
    for token in ["a\nsecret", " "] {
        let credentials = Credentials::token(token);
        let token = AdminOptions { credentials, ..AdminOptions::default() };
        let refused = Http::new("http://a", &token).unwrap_err();
        assert_eq!(refused.kind, AdminErrorKind::Invalid);
        assert!(!format!("{refused:?}{token:?}").contains("secret"));
    }
    let ca_certificate_pem = Some(b"nonsense".to_vec());
    let tls = TlsOptions { ca_certificate_pem, ..TlsOptions::default() };
    let ca = AdminOptions { tls, ..AdminOptions::default() };
    assert_eq!(Http::new("https://a", &ca).unwrap_err().kind, AdminErrorKind::Invalid);
}

#[tokio::test]
async fn each_kind_of_credentials_has_its_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    for (credentials, header) in [
        (Credentials::none(), None),
        (Credentials::client_certificate(), None),
        (Credentials::token(" text\n"), Some("Bearer text")),
        (Credentials::token_file(&path), Some("Bearer first")),
        (Credentials::basic("user", "password"), Some("Basic dXNlcjpwYXNzd29yZA==")),
    ] {
        let server = Server::new(vec![answer("204 No Content", "", "")]).await;
        server.http_as(credentials).done(&call(Method::GET, &["a"], None)).await.unwrap();
        let request = server.seen().remove(0);
        let sent = request.split("\r\n").find_map(|line| line.strip_prefix("authorization: "));
        assert_eq!(sent, header, "{request}");
    }
}

/// Serves one call with TLS, and requires a client certificate.
async fn call_with(authority: &Authority, tls: TlsOptions) -> Result<(), AdminError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let config = authority.demanding_server(&authority.certify("127.0.0.1"));
    let serve = async {
        let (tcp, _) = listener.accept().await.unwrap();
        let accepted = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(tcp).await;
        // Without a certificate the handshake fails here, and the client is told.
        let Ok(mut stream) = accepted else { return };
        let request = read_request(&mut stream).await;
        assert!(!request.contains("authorization"), "{request}");
        stream.write_all(answer("204 No Content", "", "").as_bytes()).await.unwrap();
        stream.shutdown().await.ok();
    };
    let credentials = Credentials::client_certificate();
    let http = Http::new(&url, &AdminOptions { credentials, tls }).unwrap();
    let called = call(Method::GET, &["a"], None);
    let ((), done) = tokio::join!(serve, http.done(&called));
    done
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_wanted() {
    let authority = Authority::new("ours");
    let ca_certificate_pem = Some(authority.pem().into_bytes());
    let client = Some(authority.certify("client"));
    let tls = TlsOptions {
        ca_certificate_pem,
        ca_certificate_only: true,
        client,
        ..TlsOptions::default()
    };
    call_with(&authority, tls.clone()).await.unwrap();
    let failed = call_with(&authority, TlsOptions { client: None, ..tls }).await.unwrap_err();
    assert_eq!(failed.kind, AdminErrorKind::Unreachable);
}

#[tokio::test]
async fn a_rotated_token_is_sent_and_a_missing_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let server = Server::new(vec![answer("204 No Content", "", ""); 2]).await;
    let http = server.http_as(Credentials::token_file(&path));
    for token in ["one", "two"] {
        std::fs::write(&path, token).unwrap();
        http.done(&call(Method::GET, &["a"], None)).await.unwrap();
        assert!(server.seen().pop().unwrap().contains(&format!("Bearer {token}\r\n")));
    }
    std::fs::remove_file(&path).unwrap();
    let failed = http.done(&call(Method::GET, &["a"], None)).await.unwrap_err();
    assert_eq!(failed.kind, AdminErrorKind::Invalid);
    assert!(failed.source.unwrap().to_string().contains(path.to_str().unwrap()));
}

#[test]
fn paths_are_encoded_once_and_below_the_prefix_of_the_base() {
    let http = Http::new("http://a:1/pulsar/?x=y", &AdminOptions::default()).unwrap();
    let url = url_of(&http.hosts.bases[0], &call(Method::GET, &["admin", "a b+c:é"], None));
    assert_eq!(url.unwrap(), "http://a:1/pulsar/admin/a%20b%2Bc%3A%C3%A9");
}

/// An address without a listener.
async fn dead() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

fn reading() -> AdminHttpCall {
    call(Method::GET, &["a"], None)
}

#[tokio::test]
async fn hosts_are_tried_in_turn_and_the_one_that_answered_comes_first_then() {
    let alive = Server::new(vec![answer("200 OK", "", "7"), answer("200 OK", "", "8")]).await;
    let address = alive.url.strip_prefix("http://").unwrap();
    let url = format!("http://{},{address}/base", dead().await);
    let http = Http::new(&url, &AdminOptions::default()).unwrap();
    assert_eq!(http.json::<u32>(&reading()).await.unwrap(), 7);
    assert_eq!(http.hosts.in_turn().next().unwrap().0, 1);
    assert_eq!(http.json::<u32>(&reading()).await.unwrap(), 8);
    assert!(alive.seen().iter().all(|request| request.starts_with("GET /base/a ")));
    let nobody = format!("http://{},{}", dead().await, dead().await);
    let failed = Http::new(&nobody, &AdminOptions::default()).unwrap().done(&reading()).await;
    assert_eq!(failed.unwrap_err().kind, AdminErrorKind::Unreachable);
}

/// A worker that was restarted next to a dead broker failed 22 times: the other broker redirected
/// to the dead one until the cluster had noticed, and the first such answer ended the setup.
#[tokio::test]
async fn a_redirect_to_a_dead_broker_is_tried_again() {
    let there = format!("http://{}/a", dead().await);
    let answers =
        [redirect(&there), redirect(&there), answer("503 x", "", ""), answer("200 OK", "", "7")];
    let survivor = Server::new(answers.into()).await;
    let failed = survivor.http(None).json::<u32>(&reading()).await.unwrap_err();
    assert_eq!(failed.kind, AdminErrorKind::Unavailable, "{failed}");
    assert!(failed.to_string().contains("it does not answer"), "{failed}");
    let number: u32 = survivor.http(None).retrying(REQUEST_TIMEOUT).json(&reading()).await.unwrap();
    assert_eq!(number, 7);
    // No time is left.
    let survivor = Server::new(vec![redirect(&there)]).await;
    let failed = survivor.http(None).retrying(Duration::ZERO).done(&reading()).await.unwrap_err();
    assert_eq!(failed.kind, AdminErrorKind::Unavailable);
}

#[tokio::test]
async fn another_host_may_know_the_new_owner_already() {
    let there = format!("http://{}/a", dead().await);
    let (old, new) = (
        Server::new(vec![redirect(&there)]).await,
        Server::new(vec![answer("200 OK", "", "7")]).await,
    );
    let url = format!("{},{}", old.url, new.url.strip_prefix("http://").unwrap());
    let http = Http::new(&url, &AdminOptions::default()).unwrap();
    assert_eq!(http.json::<u32>(&reading()).await.unwrap(), 7);
}

#[test]
fn what_passes_with_a_failover_is_told_from_what_stays() {
    let passing = [
        (503, ""),
        (500, "Failed to find ownership for topic"),
        (412, "Namespace bundle is being unloaded"),
    ];
    for (status, reason) in passing {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(kind_of(status, reason), AdminErrorKind::Unavailable, "{status} {reason}");
    }
    assert_eq!(kind_of(StatusCode::INTERNAL_SERVER_ERROR, "disk"), AdminErrorKind::Other);
    assert_eq!(kind_of(StatusCode::NOT_FOUND, "ownership"), AdminErrorKind::NotFound);
}

#[test]
fn each_host_of_an_admin_url_must_be_one() {
    let unusable = |url: &str| Http::new(url, &AdminOptions::default()).unwrap_err();
    for url in ["http://a:8080,", "http://a,b:x", "a:8080,b:8080", "http://a,user:secret@b"] {
        let refused = unusable(url);
        assert_eq!(refused.kind, AdminErrorKind::Invalid, "{url}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    let hosts = vec!["h"; HOSTS_MAX + 1].join(",");
    assert!(unusable(&format!("http://{hosts}")).to_string().contains("too many hosts"));
}

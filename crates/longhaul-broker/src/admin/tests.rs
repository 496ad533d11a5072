//! Tests the interface over a socket.

use super::answer::Advertised;
use super::rig::{AdminRig, START, SharedAdminRig, StuckCore};
use super::seats::Seats;
use super::serve::{AdminServerContext, AdminServerLimits, CONNECTIONS_MAX, Enter, serve};
use crate::auth::{AuthConfig, Authenticator, TokenKey};
use crate::policies::{AuthAction, Grants};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use longhaul_http::{HostGuard, TlsConfig};
use longhaul_wire::messages::{KeyValue, MessageMetadata};
use proptest::prelude::*;
use ring::hmac;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

const SECRET: [u8; 32] = [3; 32];

/// Room for this many connections.
pub(super) fn room(connections: usize) -> Enter {
    let seats = Arc::new(Semaphore::new(connections));
    Arc::new(move || Arc::clone(&seats).try_acquire_owned().ok())
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut AdminServerContext)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut admin = AdminServerContext {
            core: Arc::new(SharedAdminRig(Mutex::new(rig()))),
            advertised: Advertised {
                broker_url: "pulsar://broker:6650".to_owned(),
                broker_url_tls: None,
                http_url: format!("http://{address}"),
                http_url_tls: None,
                message_bytes_max: 5_242_880,
            },
            guard: HostGuard::new(address.ip(), &[], None, &[]),
            authenticator: None,
            tls: None,
            clock: Arc::new(|| 1_800_000_000),
            limits: AdminServerLimits::default(),
            seats: Seats::new(room(CONNECTIONS_MAX)),
            upkeep: Arc::default(),
            backup: None,
            refused: Arc::default(),
        };
        change(&mut admin);
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, admin, stop.clone()));
        Self { address, stop, serving }
    }

    async fn guarded() -> Self {
        let superusers = BTreeSet::from(["root".to_owned()]);
        let mut config = AuthConfig::new(TokenKey::Secret(SECRET.to_vec()), superusers);
        config.monitors.insert("watcher".to_owned());
        let authenticator = Arc::new(Authenticator::new(&config).unwrap());
        Self::with(|admin| admin.authenticator = Some(authenticator)).await
    }

    /// Sends bytes, and returns everything that comes back.
    async fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may close before it has read everything.
        stream.write_all(bytes).await.ok();
        stream.shutdown().await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        answer
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        let answer = String::from_utf8(self.raw(request.as_bytes()).await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), body.to_owned())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.send("GET", path, "", "").await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.serving.join_next().await.unwrap().unwrap();
    }
}

/// A rig with the topics `a` of `public/default`, which has two messages, and `p`, which has one
/// partition.
fn rig() -> AdminRig {
    let mut rig = AdminRig::new();
    let mut put = |method: &str, path: &str, body: &str| {
        let (status, answer) = rig.ask(method, path, body);
        assert!(status < 300, "{path}: {answer}");
    };
    put("PUT", A, "");
    put("PUT", &format!("{A}/subscription/s"), "\"earliest\"");
    put("PUT", &format!("{A}/subscription/a%20b"), "\"earliest\"");
    put("PUT", "/admin/v2/persistent/public/default/p/partitions", "1");
    put("POST", "/admin/v2/namespaces/public/default/messageTTL", "3");
    put("POST", "/admin/v2/schemas/public/default/a/schema", r#"{"type":"JSON","schema":"{}"}"#);
    rig.call(|machine| {
        let grant = |grants: &mut Grants| grants.grant("tasks", vec![AuthAction::Consume]);
        machine.set_namespace_grants("public/default", grant).unwrap();
    });
    let producer = rig.produce("a");
    rig.publish(producer, &MessageMetadata::default(), b"first");
    let metadata = MessageMetadata {
        producer_name: "p\nx".to_owned(),
        partition_key: Some("k".to_owned()),
        properties: vec![KeyValue::new("a", "é")],
        ..MessageMetadata::default()
    };
    rig.publish(producer, &metadata, b"body");
    rig
}

const A: &str = "/admin/v2/persistent/public/default/a";

#[tokio::test]
async fn replies_have_the_form_that_tools_read() {
    let server = Server::start().await;
    let get = async |tail: &str| server.get(&format!("{A}{tail}")).await.1;
    assert_eq!(get("/partitions").await, json!({"partitions": 0, "deleted": false}));
    let stats = get("/stats").await;
    assert_eq!(stats["ownerBroker"], server.address.to_string());
    assert_eq!((&stats["msgInCounter"], &stats["waitingPublishers"]), (&json!(2), &json!(0)));
    let whole = server.get("/admin/v2/persistent/public/default/p/partitioned-stats").await.1;
    let partition = "persistent://public/default/p-partition-0";
    assert_eq!(whole["partitions"][partition]["storageSize"], 0);
    assert_eq!(whole["metadata"], json!({"partitions": 1, "deleted": false}));
    let internal = get("/internalStats").await;
    assert_eq!(internal["cursors"]["a+b"]["markDeletePosition"], "0:-1");
    assert_eq!(internal["lastConfirmedEntry"], "0:1");
    assert_eq!(internal["lastLedgerCreatedTimestamp"], "2023-11-14T22:13:20.000Z");
    assert_eq!(internal["compactedLedger"]["entries"], -1);
    assert_eq!(get("/compaction").await, json!({"status": "NOT_RUN", "lastError": ""}));
    let last = json!({"ledgerId": 0, "entryId": 1, "partitionIndex": -1});
    assert_eq!(get("/lastMessageId").await, last);
    assert_eq!(get("/messageTTL?applied=true").await, 3);
    assert_eq!(server.get(&format!("{A}/messageTTL")).await, (204, json!("")));
    let schemas = "/admin/v2/schemas/public/default/a";
    let schema =
        json!({"version": 0, "type": "JSON", "timestamp": START, "data": "{}", "properties": {}});
    assert_eq!(server.get(&format!("{schemas}/schema")).await.1, schema);
    assert_eq!(server.get(&format!("{schemas}/schemas")).await.1["getSchemaResponses"][0], schema);
    let body = r#"{"type":"JSON","schema":"[]","properties":{}}"#;
    let (_, posted) = server.send("POST", &format!("{schemas}/schema"), "", body).await;
    assert_eq!(posted, r#"{"version":{"version":1}}"#);
    let namespace = server.get("/admin/v2/namespaces/public/default").await.1;
    assert_eq!(namespace["message_ttl_in_seconds"], 3);
    let grants = server.get("/admin/v2/namespaces/public/default/permissions").await.1;
    assert_eq!(grants, json!({"tasks": ["consume"]}));
    server.end().await;
}

#[tokio::test]
async fn the_broker_tells_where_it_is() {
    let server = Server::start().await;
    let http_url = format!("http://{}", server.address);
    let lookup = json!({"brokerUrl": "pulsar://broker:6650", "httpUrl": http_url,
        "nativeUrl": "pulsar://broker:6650", "brokerUrlSsl": ""});
    assert_eq!(server.get("/lookup/v2/topic/persistent/public/default/a").await, (200, lookup));
    assert_eq!(server.get("/admin/v2/clusters").await.1, json!(["standalone"]));
    assert_eq!(server.get("/admin/v2/brokers/health").await, (200, json!("ok")));
    assert_eq!(server.get("/status.html").await, (200, json!("ok")));
    let configuration = server.get("/admin/v2/brokers/configuration/runtime").await.1;
    assert_eq!(configuration["maxMessageSize"], "5242880");
    assert_eq!(server.get("/admin/v2/tenants/public").await.0, 200);
    assert_eq!(server.get("/admin/v2/tenants/other").await.0, 404);
    let (status, metrics) = server.send("GET", "/metrics", "", "").await;
    assert!(status == 200 && metrics.starts_with("# HELP "), "{metrics}");
    server.end().await;
}

#[tokio::test]
async fn refusals_say_why() {
    let server = Server::start().await;
    let (status, answer) = server.send("PUT", A, "", "").await;
    assert_eq!((status, answer.as_str()), (409, r#"{"reason":"This topic already exists"}"#));
    let (status, answer) = server.get("/admin/v2/functions").await;
    assert_eq!(status, 404);
    assert!(answer["reason"].as_str().unwrap().contains("not part of this broker"), "{answer}");
    assert_eq!(server.get("/admin/v2/persistent/public/default/b/stats").await.0, 404);
    assert_eq!(server.get("/%ff").await.0, 400);
    server.end().await;
}

/// Any web page could empty a backlog: a browser sends a POST without a body to any host, and the
/// page need not read the answer.
#[tokio::test]
async fn web_pages_of_others_and_unknown_hosts_are_refused() {
    let server = Server::start().await;
    let skip = format!("{A}/subscription/s/skip_all");
    assert_eq!(server.send("POST", &skip, "", "").await.0, 204);
    for page in ["origin: http://evil.test\r\n", "sec-fetch-site: cross-site\r\n"] {
        let (status, answer) = server.send("POST", &skip, page, "").await;
        assert!(status == 403 && answer.contains("another origin"), "{page}: {answer}");
    }
    let rebound = format!("POST {skip} HTTP/1.1\r\nhost: evil.test\r\nconnection: close\r\n\r\n");
    let answer = String::from_utf8(server.raw(rebound.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 ") && answer.contains("--admin-hosts"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn a_message_is_shown_without_its_bad_headers() {
    let server = Server::start().await;
    let request = format!("GET {A}/ledger/0/entry/1 HTTP/1.0\r\nhost: localhost\r\n\r\n");
    let answer = String::from_utf8(server.raw(request.as_bytes()).await).unwrap();
    assert!(answer.ends_with("\r\n\r\nbody"), "{answer}");
    assert!(answer.contains("x-pulsar-message-id: 0:1\r\n"), "{answer}");
    assert!(answer.contains("x-pulsar-partition-key: k\r\n"), "{answer}");
    assert!(answer.contains("x-pulsar-property: {\"a\":\"é\"}\r\n"), "{answer}");
    assert!(!answer.contains("x-pulsar-producer-name"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn it_is_served_over_tls() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificates, key_file) = (folder.path().join("cert"), folder.path().join("key"));
    std::fs::write(&certificates, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let config = TlsConfig { certificates, key: key_file, client_authorities: None };
    let (_shown, tls) = watch::channel(TlsAcceptor::from(Arc::new(config.load().unwrap())));
    let server = Server::with(|admin| admin.tls = Some(tls)).await;

    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
    stream.write_all(b"GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(stream);

    // A client without TLS gets no answer, and does not affect others.
    let plain = server.raw(b"GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(!plain.starts_with(b"HTTP"), "{plain:?}");
    server.end().await;
}

fn bearer(role: &str) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let claims = json!({ "sub": role }).to_string();
    let text = format!("{}.{}", encode(br#"{"alg":"HS256"}"#), encode(claims.as_bytes()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), text.as_bytes());
    format!("authorization: Bearer {text}.{}\r\n", encode(tag.as_ref()))
}

#[tokio::test]
async fn a_token_opens_what_its_role_may_do() {
    let server = Server::guarded().await;
    let status = async |path: &str, headers: &str| server.send("GET", path, headers, "").await.0;
    let (root, tasks, stranger) = (bearer("root"), bearer("tasks"), bearer("stranger"));
    let lookup = "/lookup/v2/topic/persistent/public/default/a";
    let (stats, tenants) = (&format!("{A}/stats"), "/admin/v2/tenants");
    let watcher = bearer("watcher");
    let cases = [
        ("", [200, 401, 401, 401, 401, 401]),
        ("authorization: Bearer nonsense\r\n", [401; 6]),
        ("authorization: Basic x\r\n", [401; 6]),
        (stranger.as_str(), [200, 200, 403, 403, 403, 404]),
        (tasks.as_str(), [200, 200, 200, 200, 403, 404]),
        (watcher.as_str(), [200, 200, 403, 200, 403, 404]),
        (root.as_str(), [200, 200, 200, 200, 200, 404]),
    ];
    for (headers, expected) in cases {
        let health = "/admin/v2/brokers/health";
        let paths = [health, "/metrics", lookup, stats, tenants, "/nowhere"];
        for (path, expected) in paths.into_iter().zip(expected) {
            assert_eq!(status(path, headers).await, expected, "{path} {headers}");
        }
    }
    for (role, sees_all) in [(&stranger, false), (&tasks, false), (&watcher, true), (&root, true)] {
        let (_, page) = server.send("GET", "/metrics", role, "").await;
        assert_eq!(page.contains("pulsar_active_connections"), sees_all, "{page}");
        assert!(page.contains("pulsar_producers_count"), "{page}");
    }
    let (_, refused) = server.send("GET", tenants, &tasks, "").await;
    assert_eq!(refused, r#"{"reason":"the role `tasks` is not a superuser"}"#);
    server.end().await;
}

/// A gateway whose role may only produce and consume could not list its queues, as it can on
/// Pulsar, and so knew of none.
#[tokio::test]
async fn whoever_may_use_a_namespace_may_list_its_topics() {
    let server = Server::guarded().await;
    let list = "/admin/v2/persistent/public/default";
    let grant = "/admin/v2/namespaces/public/default/permissions/gateway";
    let of_topic = "/admin/v2/persistent/public/default/a/permissions/gateway";
    server.send("POST", of_topic, &bearer("root"), r#"["consume"]"#).await;
    for place in [list.to_owned(), format!("{list}/partitioned")] {
        assert_eq!(server.send("GET", &place, &bearer("gateway"), "").await.0, 403, "{place}");
    }
    let granted = server.send("POST", grant, &bearer("root"), r#"["consume"]"#).await.0;
    assert!((200..300).contains(&granted), "{granted}");
    for place in [list.to_owned(), format!("{list}/partitioned")] {
        assert_eq!(server.send("GET", &place, &bearer("gateway"), "").await.0, 200, "{place}");
        assert_eq!(server.send("GET", &place, &bearer("stranger"), "").await.0, 403, "{place}");
    }
    server.end().await;
}

/// The roles that a tenant was created with were dropped: only superusers could create its
/// namespaces.
#[tokio::test]
async fn a_tenant_is_administered_by_its_roles() {
    let server = Server::guarded().await;
    let send = async |method: &str, path: &str, role: &str, body: &str| {
        server.send(method, &format!("/admin/v2/{path}"), &bearer(role), body).await.0
    };
    let tenant = r#"{"adminRoles":["boss"],"allowedClusters":["standalone"]}"#;
    assert_eq!(send("PUT", "tenants/x", "boss", tenant).await, 403, "whoever administers none");
    assert_eq!(send("PUT", "tenants/x", "root", tenant).await, 204);
    for (method, path) in [
        ("PUT", "namespaces/x/n"),
        ("GET", "namespaces/x"),
        ("PUT", "persistent/x/n/t"),
        ("GET", "persistent/x/n/t/stats"),
        ("GET", "schemas/x/n/t/schemas"),
        ("DELETE", "namespaces/x/n/messageTTL"),
    ] {
        assert_eq!(send(method, path, "stranger", "").await, 403, "{path}");
        let status = send(method, path, "boss", "").await;
        assert!((200..300).contains(&status), "{path}: {status}");
    }
    for (method, path, body) in [
        ("PUT", "namespaces/public/n", ""),
        ("GET", "persistent/public/default/a/stats", ""),
        ("POST", "tenants/x", tenant),
        ("DELETE", "tenants/x", ""),
    ] {
        assert_eq!(send(method, path, "boss", body).await, 403, "{path}");
    }
    let other = r#"{"adminRoles":[]}"#;
    assert_eq!(send("POST", "tenants/x", "root", other).await, 204);
    assert_eq!(send("GET", "namespaces/x", "boss", "").await, 403, "it does so no longer");
    server.end().await;
}

/// Regression: a client without a token, or without permission, could make the broker hold 1 MiB.
#[tokio::test]
async fn a_body_is_not_read_without_a_token_and_a_permission() {
    let server = Server::guarded().await;
    let stranger = bearer("stranger");
    for (path, header, status) in [
        ("admin/v2/tenants/x", "", "401"),
        ("admin/v2/schemas/public/default/a/schema", stranger.as_str(), "403"),
        ("nowhere", stranger.as_str(), "404"),
    ] {
        let request = format!(
            "POST /{path} HTTP/1.1\r\nhost: localhost\r\n{header}connection: close\r\ncontent-length: 1000000\r\n\r\n"
        );
        let answer = String::from_utf8(server.raw(request.as_bytes()).await).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    server.end().await;
}

#[tokio::test]
async fn what_is_too_large_or_too_slow_is_cut_off() {
    let short = Duration::from_millis(100);
    let server = Server::with(|admin| {
        let limits = AdminServerLimits { body_bytes: 100, ..AdminServerLimits::default() };
        admin.core = Arc::new(StuckCore);
        admin.limits = AdminServerLimits { head_timeout: short, request_timeout: short, ..limits };
    })
    .await;
    let (status, _) = server.send("POST", &format!("{A}/retention"), "", &"x".repeat(101)).await;
    assert_eq!(status, 413);
    let header = format!("x: {}\r\n", "y".repeat(100_000));
    assert_eq!(server.send("GET", "/status.html", &header, "").await.0, 431);
    let headers: String = (0..100).map(|n| format!("x{n}: y\r\n")).collect();
    assert_eq!(server.send("GET", "/status.html", &headers, "").await.0, 431);
    let (status, reason) = server.send("PUT", &format!("{A}/compaction"), "", "").await;
    assert_eq!(status, 503);
    assert!(reason.contains("may still take effect"), "{reason}");
    server.end().await;
}

#[tokio::test]
async fn who_says_nothing_is_hung_up_on() {
    let short = Duration::from_millis(100);
    let server = Server::with(|admin| admin.limits.head_timeout = short).await;
    let whole = "GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // No bytes, half a head, and silence after an answer.
    for said in ["", "GET / HT", whole] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "{said:?} keeps a connection for ever");
    }
    server.end().await;
}

/// A few hundred sockets that sent nothing, half a request, or nothing after an answer blocked
/// everybody for 30 s, including health checks and metrics.
#[tokio::test]
async fn sockets_that_wait_for_their_clients_keep_nobody_out() {
    let server = Server::with(|admin| admin.seats = Seats::new(room(10))).await;
    let whole = "GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let half_body =
        "PUT /admin/v2/tenants/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    for said in ["", "GET / HTTP/1.1\r\nx: ", half_body, whole] {
        let mut crowd = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            if said == whole {
                stream.read_exact(&mut [0; 12]).await.unwrap();
            }
            crowd.push(stream);
        }
        assert_eq!(server.get("/status.html").await.0, 200, "beside {said:?}");
        // The oldest connections were closed.
        crowd[0].read_to_end(&mut Vec::new()).await.ok();
    }
    server.end().await;
}

/// A connection whose request is being answered is not closed for others.
#[tokio::test]
async fn one_connection_too_many_is_closed_while_all_others_are_answered() {
    let (seats, short) = (Seats::new(room(2)), Duration::from_millis(500));
    let admin = |admin: &mut AdminServerContext| {
        admin.core = Arc::new(StuckCore);
        admin.limits.request_timeout = short;
        admin.seats = Arc::clone(&seats);
    };
    let server = Server::with(admin).await;
    let mut asked = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        asked.push(stream);
    }
    seats.all_are_asked(2).await;
    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(third.read(&mut [0; 8]).await.unwrap_or(0), 0);
    for mut stream in asked {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 503");
    }
    server.end().await;
}

#[tokio::test]
async fn the_end_does_not_wait_for_idle_connections() {
    let server = Server::start().await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /status.html HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    idle.read_exact(&mut [0; 12]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(1), server.end()).await.unwrap();
}

#[test]
fn random_bytes_never_break_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let heads = prop::sample::select(vec![
        "",
        "GET ",
        "GET / HTTP/1.1\r\nhost: localhost\r\n",
        "PUT /admin/v2/tenants/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
    ]);
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    runner
        .run(&(heads, bytes), |(head, bytes)| {
            let sent = [head.as_bytes(), &bytes].concat();
            runtime.block_on(server.raw(&sent));
            Ok(())
        })
        .unwrap();
    assert_eq!(runtime.block_on(server.get("/status.html")).0, 200);
    runtime.block_on(server.end());
}

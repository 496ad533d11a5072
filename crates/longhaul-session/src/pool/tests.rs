mod moving;
mod opening;

use super::*;
use crate::Credentials;
use bytes::BytesMut;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandAuthChallenge, CommandCloseProducer, CommandConnected, CommandError,
    CommandLookupTopic, CommandLookupTopicResponse, CommandProducerSuccess, LookupType,
    ServerError,
};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Behaviour of a host.
#[derive(Clone, Copy)]
enum Host {
    /// Does not answer: it is frozen.
    Silent,
    /// Refuses the credentials.
    Refusing,
    /// Accepts the connection, and is not ready for a lookup.
    Unready,
    /// Accepts the connection, and serves every topic.
    Serving,
    /// Redirects to the last host of the service URL.
    Redirecting,
    /// Serves clients that another host redirected, and redirects all others.
    Deciding,
    /// Goes down at the first lookup, and is back at once.
    Dying,
    /// Asks for fresh credentials before it answers a lookup.
    Challenging,
    /// Moves its topics to the last host of the service URL after the first publish.
    Moving,
}

/// Hosts of one service URL.
struct Hosts {
    /// `host:port` of each.
    places: Vec<String>,
    /// Credentials that clients showed to the hosts, and the listeners that they asked for.
    seen: Seen,
    _serving: JoinSet<()>,
}

type Seen = Arc<Mutex<Vec<String>>>;

/// One host.
#[derive(Clone)]
struct Role {
    host: Host,
    place: String,
    last: String,
    seen: Seen,
}

impl Role {
    fn saw(&self, what: &[u8]) {
        self.seen.lock().unwrap().push(String::from_utf8_lossy(what).into_owned());
    }
}

impl Hosts {
    async fn new(hosts: &[Host]) -> Self {
        let (mut places, mut listeners, mut serving) = (Vec::new(), Vec::new(), JoinSet::new());
        for _ in hosts {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            places.push(listener.local_addr().unwrap().to_string());
            listeners.push(listener);
        }
        let (last, seen) = (places.last().unwrap().clone(), Seen::default());
        for ((listener, host), place) in listeners.into_iter().zip(hosts).zip(places.clone()) {
            let role = Role { host: *host, place, last: last.clone(), seen: Arc::clone(&seen) };
            serving.spawn(listen(listener, role));
        }
        Self { places, seen, _serving: serving }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn place(&self, index: usize) -> &str {
        &self.places[index]
    }
}

async fn listen(listener: TcpListener, role: Role) {
    let mut talks = JoinSet::new();
    let mut is_first = true;
    while let Ok((stream, _)) = listener.accept().await {
        let is_dying = matches!(role.host, Host::Dying) && std::mem::take(&mut is_first);
        talks.spawn(talk(stream, role.clone(), is_dying));
    }
}

async fn talk(mut stream: TcpStream, role: Role, is_dying: bool) {
    let (mut inbox, mut outbox) = (BytesMut::new(), BytesMut::new());
    let mut waits = None;
    while stream.read_buf(&mut inbox).await.is_ok_and(|count| count > 0) {
        while let Some(frame) = frame::decode(&mut inbox, 1 << 20).unwrap() {
            match (frame.command, role.host) {
                (_, Host::Silent) => {}
                (Command::Connect(shown), Host::Refusing) => {
                    role.saw(&shown.auth_data.unwrap_or_default());
                    let (error, message) = (ServerError::AuthenticationError, "who?".to_owned());
                    let refusal = CommandError { request_id: 0, error: error as i32, message };
                    frame::encode(refusal, &mut outbox);
                }
                (Command::Connect(shown), _) => {
                    role.saw(&shown.auth_data.unwrap_or_default());
                    let protocol_version = Some(21);
                    let taken_in =
                        CommandConnected { protocol_version, ..CommandConnected::default() };
                    frame::encode(taken_in, &mut outbox);
                }
                (Command::Lookup(_), _) if is_dying => return,
                (Command::Lookup(asked), Host::Challenging) if waits.is_none() => {
                    frame::encode(CommandAuthChallenge::default(), &mut outbox);
                    waits = Some(asked);
                }
                (Command::AuthResponse(shown), _) => {
                    role.saw(&shown.response.unwrap().auth_data.unwrap_or_default());
                    let asked = waits.take().unwrap();
                    frame::encode(answer(&asked, &role), &mut outbox);
                }
                (Command::Lookup(asked), _) => {
                    if let Some(listener) = &asked.advertised_listener_name {
                        role.saw(listener.as_bytes());
                    }
                    frame::encode(answer(&asked, &role), &mut outbox);
                }
                (Command::Producer(asked), Host::Moving) => {
                    let (request_id, producer_name) = (asked.request_id, "name".to_owned());
                    let opened = CommandProducerSuccess {
                        request_id,
                        producer_name,
                        ..CommandProducerSuccess::default()
                    };
                    frame::encode(opened, &mut outbox);
                    let url = Some(format!("pulsar://{}", role.last));
                    let moves = CommandCloseProducer {
                        assigned_broker_service_url: url,
                        ..CommandCloseProducer::new(asked.producer_id, u64::MAX)
                    };
                    frame::encode(moves, &mut outbox);
                }
                (other, _) => panic!("{other:?}"),
            }
        }
        stream.write_all_buf(&mut outbox).await.unwrap();
    }
}

fn answer(asked: &CommandLookupTopic, role: &Role) -> CommandLookupTopicResponse {
    let answer = CommandLookupTopicResponse {
        request_id: asked.request_id,
        ..CommandLookupTopicResponse::default()
    };
    let knows = asked.authoritative();
    let (response, place) = match role.host {
        Host::Unready => (LookupType::Failed, &role.place),
        Host::Deciding if !knows => (LookupType::Failed, &role.place),
        Host::Redirecting => (LookupType::Redirect, &role.last),
        Host::Silent
        | Host::Refusing
        | Host::Serving
        | Host::Deciding
        | Host::Dying
        | Host::Challenging
        | Host::Moving => (LookupType::Connect, &role.place),
    };
    let failed = response == LookupType::Failed;
    CommandLookupTopicResponse {
        response: Some(response as i32),
        error: failed.then_some(ServerError::ServiceNotReady as i32),
        broker_service_url: Some(format!("pulsar://{place}")),
        authoritative: Some(true),
        ..answer
    }
}

/// An address without a listener.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

fn pool(places: &[&str]) -> Pool {
    Pool::in_order(options(places)).unwrap()
}

fn options(places: &[&str]) -> ConnectOptions {
    ConnectOptions::new(format!("pulsar://{}", places.join(",")))
}

const TOPIC: &str = "persistent://public/default/t";
/// Longer than any operation in these tests.
const LONG: Duration = Duration::from_secs(30);

/// The address of a connection.
fn address(link: &ConnectionHandle) -> String {
    link.cause().address
}

/// All callers of a connection gave up before it was refused. The next caller, an hour later, got
/// that refusal.
#[test]
fn what_nobody_waited_for_to_the_end_is_over_all_the_same() {
    let refused = ConnectFailure::Host(error::unreachable("there", "refused"));
    let opening: ConnectionOpening = async { Err(refused) }.boxed().shared();
    assert!(is_over(&opening));
    let under_way: ConnectionOpening = futures::future::pending().boxed().shared();
    assert!(!is_over(&under_way));
}

/// One host refused the token, and the other was down. The error only said that the second one
/// cannot be reached, and the client tried again for ever, although only another token would help.
#[tokio::test]
async fn a_refusal_by_one_host_is_not_hidden_by_the_silence_of_another() {
    let hosts = Hosts::new(&[Host::Refusing]).await;
    let (refusing, closed) = (hosts.place(0), closed().await);
    for places in [[refusing, &closed], [&closed, refusing]] {
        let error = pool(&places).greet().await.unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Unauthorized);
        assert_eq!(error.address, format!("pulsar://{}", places.join(",")));
        let (first, rest) = error.cause.split_once("; pulsar://").unwrap();
        assert!(first.contains(refusing) && first.contains("AuthenticationError"), "{error}");
        assert!(rest.starts_with(&closed), "{error}");
    }
    // With one host, its own error is reported.
    let error = pool(&[refusing]).greet().await.unwrap_err();
    assert_eq!(error.address, format!("pulsar://{refusing}"));
}

/// Each host had the same share of the time, even if the others had failed at once. With seven
/// hosts down, a slow one was given up after a second.
#[tokio::test]
async fn a_host_that_fails_at_once_leaves_its_time_to_the_others() {
    let (hosts, closed) = (Hosts::new(&[Host::Silent]).await, closed().await);
    let service = pool(&[&closed, &closed, hosts.place(0)]);
    let waiting = service.service_within((Duration::from_millis(600), LONG)).await;
    let Err(error) = waiting else { panic!("connected") };
    let (_, waited) = error.cause.split_once("no connection within ").unwrap();
    let (waited, _) = waited.split_once(" ms: no greeting").unwrap();
    assert!(waited.parse::<u64>().unwrap() > 200, "{error}");
}

/// A silent host took four seconds before the next one was asked: a gateway reported its broker as
/// away while the other one worked.
#[tokio::test]
async fn whoever_asks_for_any_broker_does_not_wait_for_those_that_are_silent() {
    let hosts = Hosts::new(&[Host::Silent, Host::Silent, Host::Serving]).await;
    let pool = pool(&[hosts.place(0), hosts.place(1), hosts.place(2)]);
    let begin = Clock::System.now();
    let link = pool.connected().await.unwrap();
    let waited = Clock::System.now().since(begin);
    assert!(waited < Duration::from_secs(2), "{waited:?}: a gateway waits for no longer");
    assert_eq!(address(&link), format!("pulsar://{}", hosts.place(2)));
    // Other requests go there at once, too.
    let service = pool.service().await.unwrap();
    assert!(Arc::ptr_eq(&service.link, &link));
}

/// A broker had lost its cluster: it accepted connections, answered PINGs, and failed every lookup.
/// It was asked again and again, while the other hosts of the service URL worked.
#[tokio::test]
async fn a_host_that_cannot_look_up_is_not_asked_again_before_the_others() {
    let hosts = Hosts::new(&[Host::Unready, Host::Serving]).await;
    let pool = pool(&[hosts.place(0), hosts.place(1)]);
    let failed = pool.owner(TOPIC, Purpose::Records).await;
    assert_eq!(failed.unwrap_err().kind, TransportErrorKind::Unreachable);
    // A caller that asked the same host at the same time does not advance again.
    let late = Err::<(), _>(error::unreachable("there", "not ready"));
    let endpoint = pool.hosts[0].clone();
    let link = pool.service().await.unwrap().link;
    pool.judge(&ConnectedHost { index: 0, endpoint, link }, &late);
    for _ in 0..2 {
        pool.owner(TOPIC, Purpose::Records).await.unwrap();
    }
}

/// After a host that cannot help, the next one in the service URL is asked; after the last one, the
/// first.
#[tokio::test]
async fn the_host_behind_the_one_that_cannot_look_up_is_asked_next() {
    let hosts = Hosts::new(&[Host::Serving, Host::Unready]).await;
    let (closed, serving, unready) = (closed().await, hosts.place(0), hosts.place(1));
    for places in [[&closed, unready, serving], [serving, &closed, unready]] {
        let pool = pool(&places);
        let index = places.iter().position(|it| *it == unready).unwrap();
        pool.preferred.store(index - 1, Ordering::Relaxed);
        let question = || {
            let (topic, listener_name) = (TOPIC.to_owned(), None);
            BrokerRequest::Lookup(LookupQuestion { topic, authoritative: false, listener_name })
        };
        assert_eq!(pool.ask(question()).await.unwrap_err().kind, TransportErrorKind::Unreachable);
        pool.ask(question()).await.unwrap();
        assert_eq!(pool.service().await.unwrap().endpoint.authority(), serving);
    }
}

#[tokio::test]
async fn without_credentials_no_host_is_asked() {
    let options = ConnectOptions::new("pulsar://127.0.0.1:1,127.0.0.1:2");
    let missing = Path::new("/nowhere/token");
    let options = options.credentials(Credentials::token_file(missing));
    let error = Pool::new(options).unwrap().greet().await.unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Invalid);
    assert_eq!(error.address, missing.display().to_string());
}

/// A silent token issuer was waited for once per host.
#[cfg(feature = "oauth2")]
#[tokio::test]
async fn credentials_are_waited_for_within_the_time_for_connecting() {
    use crate::OAuth2;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}/", silent.local_addr().unwrap());
    let key = r#"{"client_id": "me", "client_secret": "secret"}"#;
    let credentials = Credentials::oauth2(OAuth2::key_json(key).issuer_url(&issuer));
    let options = ConnectOptions::new("pulsar://127.0.0.1:1,127.0.0.1:2").credentials(credentials);
    let pool = Pool::new(options).unwrap();
    let connecting = pool.service_within((LONG, Duration::from_millis(300)));
    let Ok(Err(error)) = timeout(Duration::from_secs(5), connecting).await else {
        panic!("waits for the issuer")
    };
    assert_eq!((error.kind, error.address), (TransportErrorKind::Unreachable, issuer));
}

fn lookup(url: &str, url_tls: &str, proxied: bool) -> Lookup {
    let (url, url_tls) = (url.to_owned(), url_tls.to_owned());
    Lookup { url, url_tls, redirect: false, authoritative: true, proxied }
}

#[test]
fn a_lookup_names_a_broker_or_one_behind_the_proxy() {
    let service = endpoints("pulsar://proxy").unwrap().swap_remove(0);
    let to = |proxied| {
        let (endpoint, behind) = next(&lookup("pulsar://broker:1", "", proxied), &service).unwrap();
        (endpoint.to_string(), behind)
    };
    assert_eq!(to(false), ("pulsar://broker:1".to_owned(), None));
    assert_eq!(to(true), ("pulsar://proxy:6650".to_owned(), Some("broker:1".to_owned())));
}

#[test]
fn a_broker_without_the_port_we_need_is_named() {
    let service = endpoints("pulsar+ssl://broker").unwrap().swap_remove(0);
    let error = next(&lookup("pulsar://broker:1", "", false), &service).unwrap_err();
    assert!(error.cause.contains("with TLS"), "{error}");
}

/// A broker named its plain port in place of the TLS one, because of a wrong setting or an
/// attacker. The user had written `pulsar+ssl://`, and the token was sent in plain text.
#[test]
fn a_lookup_leads_nobody_from_tls_to_plain_text() {
    let (plain, encrypted) = ("pulsar://broker:1", "pulsar+ssl://broker:2");
    for (service, url, url_tls, words) in [
        ("pulsar+ssl://service", plain, plain, "pulsar://broker:1 must be reached with TLS"),
        (
            "pulsar://service",
            encrypted,
            encrypted,
            "pulsar+ssl://broker:2 must be reached without TLS",
        ),
    ] {
        let service = endpoints(service).unwrap().swap_remove(0);
        let error = next(&lookup(url, url_tls, false), &service).unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Refused);
        assert!(error.cause.contains(words), "{error}");
        // A proxy names the broker as the proxy reaches it, with TLS or without; our connection to
        // the proxy does not change.
        let (endpoint, behind) = next(&lookup(url, url_tls, true), &service).unwrap();
        assert_eq!(endpoint, service);
        assert!(behind.is_some_and(|broker| broker.starts_with("broker:")));
    }
}

/// An issuer that took more than eight seconds could never be used: its time was that of the hosts,
/// and the token came too late.
#[test]
fn what_credentials_take_is_not_taken_from_the_hosts() {
    let budget = Budget::new((Duration::from_secs(8), Duration::from_secs(15)), 1);
    assert!(budget.for_credentials() > Duration::from_secs(14));
    let of_the_next_host = budget.clone().without_one_host();
    budget.record_credentials(Duration::from_secs(12));
    assert!(budget.left() > Duration::from_secs(18), "the twelve seconds are not over yet");
    assert_eq!(budget.for_credentials(), Duration::from_secs(3));
    assert_eq!(of_the_next_host.for_credentials(), Duration::from_secs(3));
}

/// Every client tried the first host of the service URL first, so all of them used it.
#[test]
fn hosts_are_tried_in_an_order_that_chance_decides() {
    let order = |seed| {
        let options = options(&["a", "b", "c"]);
        let pool = Pool::shuffled(options, &mut fastrand::Rng::with_seed(seed)).unwrap();
        pool.hosts.iter().map(|it| it.host.clone()).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    let orders: std::collections::HashSet<_> = (0..100).map(order).collect();
    assert_eq!(orders.len(), 6);
}

/// The last broker of a chain of redirects owns the topic if the question is authoritative.
/// Otherwise it redirects again, in a circle.
#[tokio::test]
async fn a_broker_that_is_redirected_to_is_told_that_it_decides() {
    let hosts = Hosts::new(&[Host::Redirecting, Host::Deciding]).await;
    let link = pool(&[hosts.place(0)]).owner(TOPIC, Purpose::Records).await.unwrap();
    assert!(address(&link).ends_with(hosts.place(1)));
}

/// A broker goes down and is back at once. The next caller must not get the dead connection.
#[tokio::test]
async fn a_connection_that_has_ended_is_not_handed_out() {
    let hosts = Hosts::new(&[Host::Dying]).await;
    let pool = pool(&[hosts.place(0)]);
    let error = pool.owner(TOPIC, Purpose::Records).await.unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Unreachable);
    pool.owner(TOPIC, Purpose::Records).await.unwrap();
}

#[tokio::test]
async fn a_token_file_is_read_again_when_the_broker_asks() {
    let hosts = Hosts::new(&[Host::Challenging]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "one").unwrap();
    let options = options(&[hosts.place(0)]).credentials(Credentials::token_file(&path));
    let pool = Pool::in_order(options).unwrap();
    pool.greet().await.unwrap();
    std::fs::write(&path, "two").unwrap();
    pool.owner(TOPIC, Purpose::Records).await.unwrap();
    assert_eq!(hosts.seen(), ["one", "two"]);
}

/// A host, and a pool that uses the tokens of an issuer.
#[cfg(feature = "oauth2")]
async fn with_tokens(host: Host) -> (Hosts, Pool, impl Sized) {
    use crate::oauth2::tests::{FakeIssuer, GRANTED};
    let (issuer, hosts) = (FakeIssuer::new(GRANTED).await, Hosts::new(&[host]).await);
    let options = options(&[hosts.place(0)]).credentials(Credentials::oauth2(issuer.options()));
    (hosts, Pool::in_order(options).unwrap(), issuer)
}

/// A broker that asked for a newer token, or had refused one, got the same token again for as long
/// as it was valid by its own expiry.
#[cfg(feature = "oauth2")]
#[tokio::test]
async fn a_broker_that_does_not_take_a_token_is_shown_another() {
    for host in [Host::Challenging, Host::Refusing] {
        let (hosts, pool, _issuer) = with_tokens(host).await;
        let first = pool.greet().await;
        let second = pool.owner(TOPIC, Purpose::Records).await;
        assert_eq!(first.is_ok() && second.is_ok(), matches!(host, Host::Challenging));
        assert_eq!(hosts.seen(), ["token-1", "token-2"]);
    }
}

/// The token is kept, because the issuer may be down together with the broker.
#[cfg(feature = "oauth2")]
#[tokio::test]
async fn a_token_is_kept_when_a_connection_merely_breaks() {
    let (hosts, pool, _issuer) = with_tokens(Host::Dying).await;
    pool.owner(TOPIC, Purpose::Records).await.unwrap_err();
    pool.owner(TOPIC, Purpose::Records).await.unwrap();
    assert_eq!(hosts.seen(), ["token-1", "token-1"]);
}

#[tokio::test]
async fn a_lookup_names_the_listener_that_is_wanted() {
    let hosts = Hosts::new(&[Host::Serving]).await;
    let listener_name = Some("outside".to_owned());
    let options = ConnectOptions { listener_name, ..options(&[hosts.place(0)]) };
    Pool::in_order(options).unwrap().owner(TOPIC, Purpose::Records).await.unwrap();
    assert_eq!(hosts.seen(), ["", "outside"]);
}

/// Tasks are large, and heartbeats must not wait behind them.
#[tokio::test]
async fn tasks_come_on_a_connection_of_their_own() {
    for (purpose, connections) in [(Purpose::Records, 1), (Purpose::Tasks, 2)] {
        let hosts = Hosts::new(&[Host::Serving]).await;
        pool(&[hosts.place(0)]).owner(TOPIC, purpose).await.unwrap();
        assert_eq!(hosts.seen().len(), connections, "{purpose:?}");
    }
}

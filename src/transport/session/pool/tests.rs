use super::*;
use crate::transport::session::Credentials;
use bytes::BytesMut;
use longhaul_wire::frame;
use longhaul_wire::messages::{
    Command, CommandConnected, CommandError, CommandLookupTopic, CommandLookupTopicResponse,
    LookupType, ServerError,
};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What a host does with those who connect.
#[derive(Clone, Copy)]
enum Host {
    /// Nothing: it is frozen.
    Silent,
    /// Refuses their credentials.
    Refusing,
    /// Takes them in, and is not ready for any lookup.
    Unready,
    /// Takes them in, and serves every topic.
    Serving,
}

/// Hosts of one service URL.
struct Hosts {
    /// `host:port` of each.
    places: Vec<String>,
    _serving: JoinSet<()>,
}

impl Hosts {
    async fn new(hosts: &[Host]) -> Self {
        let (mut places, mut serving) = (Vec::new(), JoinSet::new());
        for host in hosts {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = listener.local_addr().unwrap().to_string();
            serving.spawn(listen(listener, *host, place.clone()));
            places.push(place);
        }
        Self { places, _serving: serving }
    }

    fn place(&self, index: usize) -> &str {
        &self.places[index]
    }
}

async fn listen(listener: TcpListener, host: Host, place: String) {
    let mut talks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        talks.spawn(talk(stream, host, place.clone()));
    }
}

async fn talk(mut stream: TcpStream, host: Host, place: String) {
    let (mut inbox, mut outbox) = (BytesMut::new(), BytesMut::new());
    while stream.read_buf(&mut inbox).await.is_ok_and(|count| count > 0) {
        while let Some(frame) = frame::decode(&mut inbox, 1 << 20).unwrap() {
            match (frame.command, host) {
                (_, Host::Silent) => {}
                (Command::Connect(_), Host::Refusing) => {
                    let (error, message) = (ServerError::AuthenticationError, "who?".to_owned());
                    let refusal = CommandError { request_id: 0, error: error as i32, message };
                    frame::encode(refusal, &mut outbox);
                }
                (Command::Connect(_), _) => {
                    let protocol_version = Some(21);
                    let taken_in =
                        CommandConnected { protocol_version, ..CommandConnected::default() };
                    frame::encode(taken_in, &mut outbox);
                }
                (Command::Lookup(asked), _) => {
                    frame::encode(answer(&asked, host, &place), &mut outbox);
                }
                (other, _) => panic!("{other:?}"),
            }
        }
        stream.write_all_buf(&mut outbox).await.unwrap();
    }
}

fn answer(asked: &CommandLookupTopic, host: Host, place: &str) -> CommandLookupTopicResponse {
    let answer = CommandLookupTopicResponse {
        request_id: asked.request_id,
        ..CommandLookupTopicResponse::default()
    };
    if matches!(host, Host::Unready) {
        let (response, error) = (LookupType::Failed as i32, ServerError::ServiceNotReady as i32);
        CommandLookupTopicResponse { response: Some(response), error: Some(error), ..answer }
    } else {
        let (response, url) = (LookupType::Connect as i32, format!("pulsar://{place}"));
        CommandLookupTopicResponse {
            response: Some(response),
            broker_service_url: Some(url),
            ..answer
        }
    }
}

/// A place where nobody listens.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

fn pool(places: &[&str]) -> Pool {
    Pool::new(ConnectOptions::new(format!("pulsar://{}", places.join(",")))).unwrap()
}

/// Whoever had asked for a connection gave up before it was refused. The next one to ask, an hour later, was told of that refusal.
#[test]
fn what_nobody_waited_for_to_the_end_is_over_all_the_same() {
    let refused = Failure::Host(error::unreachable("there", "refused"));
    let opening: Opening = async { Err(refused) }.boxed().shared();
    assert!(is_over(&opening));
    let under_way: Opening = futures::future::pending().boxed().shared();
    assert!(!is_over(&under_way));
}

/// One host refused the token and the other was down. The user read that the second one cannot be reached, and was tried again for
/// ever, while nothing would help but another token.
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
    // Of one host there is no more to tell than its own words.
    let error = pool(&[refusing]).greet().await.unwrap_err();
    assert_eq!(error.address, format!("pulsar://{refusing}"));
}

/// Each host had the same part of the time, however soon the others had failed. With seven hosts down, a slow one was given up after
/// a second.
#[tokio::test]
async fn a_host_that_fails_at_once_leaves_its_time_to_the_others() {
    let hosts = Hosts::new(&[Host::Silent]).await;
    let closed = closed().await;
    let service = pool(&[&closed, &closed, hosts.place(0)]);
    let waiting = service.service_within(Duration::from_millis(600)).await;
    let Err(error) = waiting else { panic!("connected") };
    let (_, waited) = error.cause.split_once("no connection within ").unwrap();
    let (waited, _) = waited.split_once(" ms: no greeting").unwrap();
    assert!(waited.parse::<u64>().unwrap() > 200, "{error}");
}

/// A broker had lost its cluster: it took everybody in, answered PINGs, and failed every lookup. It was asked again and again, while
/// its neighbours in the service URL worked.
#[tokio::test]
async fn a_host_that_cannot_look_up_is_not_asked_again_before_the_others() {
    let hosts = Hosts::new(&[Host::Unready, Host::Serving]).await;
    let pool = pool(&[hosts.place(0), hosts.place(1)]);
    let failed = pool.owner("persistent://public/default/t", Purpose::Records).await;
    assert_eq!(failed.unwrap_err().kind, TransportErrorKind::Unreachable);
    // Who had asked the same host meanwhile does not move on once more.
    let late = Err::<(), _>(error::unreachable("there", "not ready"));
    let endpoint = pool.prepared.endpoints[0].clone();
    let link = pool.service().await.unwrap().link;
    pool.judge(&Service { index: 0, endpoint, link }, &late);
    for _ in 0..2 {
        pool.owner("persistent://public/default/t", Purpose::Records).await.unwrap();
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

/// Connecting returns within ten seconds, its documentation said. A silent issuer of tokens was waited for fifteen, once for each host.
#[cfg(feature = "oauth2")]
#[tokio::test]
async fn credentials_are_waited_for_within_the_time_for_connecting() {
    use crate::transport::session::OAuth2;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}/", silent.local_addr().unwrap());
    let key = r#"{"client_id": "me", "client_secret": "secret"}"#;
    let credentials = Credentials::oauth2(OAuth2::key_json(key).issuer_url(&issuer));
    let options = ConnectOptions::new("pulsar://127.0.0.1:1,127.0.0.1:2").credentials(credentials);
    let pool = Pool::new(options).unwrap();
    let connecting = pool.service_within(Duration::from_millis(100));
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
    let behind = Some("broker:1".to_owned());
    assert_eq!(to(true), ("pulsar://proxy:6650".to_owned(), behind));
}

#[test]
fn a_broker_without_the_port_we_need_is_named() {
    let service = endpoints("pulsar+ssl://broker").unwrap().swap_remove(0);
    let error = next(&lookup("pulsar://broker:1", "", false), &service).unwrap_err();
    assert!(error.cause.contains("with TLS"), "{error}");
}

/// A broker named its plain port where the one with TLS belongs, by a wrong setting or because somebody wanted to listen. The user had
/// written `pulsar+ssl://`, and the token went there for all to read.
#[test]
fn a_lookup_leads_nobody_from_tls_to_plain_text() {
    let (plain, encrypted) = ("pulsar://broker:1", "pulsar+ssl://broker:2");
    for (service, url, url_tls, words) in [
        ("pulsar+ssl://service", plain, plain, "is pulsar://broker:1, and not with TLS"),
        ("pulsar://service", encrypted, encrypted, "is pulsar+ssl://broker:2, and not without TLS"),
    ] {
        let service = endpoints(service).unwrap().swap_remove(0);
        let error = next(&lookup(url, url_tls, false), &service).unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Refused);
        assert!(error.cause.contains(words), "{error}");
        // A proxy names the broker as the proxy reaches it, with TLS or without, and we go to the proxy as before.
        let (endpoint, behind) = next(&lookup(url, url_tls, true), &service).unwrap();
        assert_eq!(endpoint, service);
        assert!(behind.is_some_and(|broker| broker.starts_with("broker:")));
    }
}

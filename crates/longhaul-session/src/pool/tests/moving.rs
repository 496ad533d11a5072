//! Topics that move.

use super::*;
use crate::driver::EndSignal;
use crate::machine::call::ProducerOptions;
use longhaul_transport::Batching;

/// A topic whose new place the broker has named needs no lookup.
#[tokio::test]
async fn a_topic_that_moves_is_followed() {
    let hosts = Hosts::new(&[Host::Moving, Host::Serving]).await;
    let pool = pool(&[hosts.place(0)]);
    let link = pool.owner(TOPIC, Purpose::Records).await.unwrap();
    let (topic, batching) = (TOPIC.to_owned(), Batching::Off);
    let options = ProducerOptions { topic, batching, schema: None };
    let end = EndSignal::default();
    link.open_producer(options, end.clone()).await.unwrap();
    end.wait().await;
    let next = pool.owner(TOPIC, Purpose::Records).await.unwrap();
    assert!(address(&next).ends_with(hosts.place(1)));
    // The report is used once; after that, a lookup at the host of the service URL decides.
    let later = pool.owner(TOPIC, Purpose::Records).await.unwrap();
    assert_eq!(address(&later), address(&link));
}

fn detour(url: &str, url_tls: &str, by: &str, migrated: bool) -> Detour {
    let (url, url_tls) = (url.to_owned(), url_tls.to_owned());
    let moved = TopicRedirect { topic: TOPIC.to_owned(), url, url_tls, migrated };
    Detour { moved, by: endpoints(by).unwrap().swap_remove(0), proxied: false }
}

#[tokio::test]
async fn after_a_migration_the_other_cluster_is_asked_from_then_on() {
    let hosts = Hosts::new(&[Host::Redirecting, Host::Serving]).await;
    let closed = closed().await;
    let pool = pool(&[&closed]);
    let there = format!("pulsar://{}", hosts.place(0));
    pool.detours.note(detour(&there, "", "pulsar://old", true), Clock::System.now());
    for _ in 0..2 {
        let link = pool.owner(TOPIC, Purpose::Records).await.unwrap();
        assert!(address(&link).ends_with(hosts.place(1)));
    }
}

/// A broker may name any new place for a topic: a client with TLS never switches to plain text.
#[tokio::test]
async fn a_topic_that_moves_leads_nobody_from_tls_to_plain_text() {
    let pool = pool(&["unused"]);
    for migrated in [false, true] {
        let detour =
            detour("pulsar://there:1", "pulsar://there:1", "pulsar+ssl://service", migrated);
        let error = pool.follow(&detour, TOPIC, Purpose::Records).await.unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Refused);
        assert!(error.cause.contains("reached with TLS"), "{error}");
    }
}

#[tokio::test]
async fn a_move_that_leads_nowhere_is_forgotten() {
    let hosts = Hosts::new(&[Host::Serving]).await;
    let pool = pool(&[hosts.place(0)]);
    let nowhere = format!("pulsar://{}", closed().await);
    pool.detours.note(detour(&nowhere, "", "pulsar://old", false), Clock::System.now());
    let link = pool.owner(TOPIC, Purpose::Records).await.unwrap();
    assert!(address(&link).ends_with(hosts.place(0)));
    assert_eq!(pool.detours.take(TOPIC, Clock::System.now()), None);
}

#[tokio::test]
async fn a_topic_that_moves_has_its_tasks_on_a_connection_of_their_own() {
    let hosts = Hosts::new(&[Host::Serving]).await;
    let pool = pool(&[&closed().await]);
    let there = format!("pulsar://{}", hosts.place(0));
    for purpose in [Purpose::Tasks, Purpose::Records] {
        pool.detours.note(detour(&there, "", "pulsar://old", false), Clock::System.now());
        pool.owner(TOPIC, purpose).await.unwrap();
    }
    assert_eq!(hosts.seen().len(), 2);
}

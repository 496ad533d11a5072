//! Key_Shared subscriptions: a key belongs to one consumer at a time, in order.

use super::{GROUP, at, consumer, keys, message, quiet, received};
use crate::{MemoryBroker, MemoryTransport};
use longhaul_transport::{Consumer, Message, Outgoing, SubscriptionType, Transport};
use std::collections::BTreeMap;

const KEYS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

async fn keyed(transport: &MemoryTransport) -> Box<dyn Consumer> {
    transport.subscribe(&at(), GROUP, SubscriptionType::KeyShared).await.unwrap()
}

fn publish(broker: &MemoryBroker, key: &str, text: &str) {
    let payload = text.as_bytes().to_vec().into();
    broker.publish(&at(), Outgoing { key: Some(key.to_owned()), payload, ..Outgoing::default() });
}

/// The bodies by key, in the order of arrival.
fn by_key(messages: &[Message]) -> BTreeMap<&str, String> {
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    for message in messages {
        let text = std::str::from_utf8(&message.payload).unwrap();
        all.entry(message.key.as_deref().unwrap()).or_default().push_str(text);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn the_messages_of_a_key_go_to_one_consumer_in_order() {
    let (broker, first) = quiet();
    let (mut one, mut two) = (keyed(&first).await, keyed(&broker.connect("other")).await);
    for text in ["1", "2", "3"] {
        KEYS.iter().for_each(|key| publish(&broker, key, text));
    }
    let (ones, twos) = (received(&mut one).await, received(&mut two).await);
    let (ones, twos) = (by_key(&ones), by_key(&twos));
    assert!(!ones.is_empty() && !twos.is_empty(), "{ones:?} {twos:?}");
    assert_eq!(ones.len() + twos.len(), KEYS.len());
    assert!(ones.values().chain(twos.values()).all(|texts| texts == "123"), "{ones:?} {twos:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_moves_when_its_consumer_has_none_of_it_any_more() {
    let (broker, first) = quiet();
    let mut one = keyed(&first).await;
    KEYS.iter().for_each(|key| publish(&broker, key, "1"));
    let held = received(&mut one).await;
    assert_eq!(held.len(), KEYS.len());
    let mut two = keyed(&broker.connect("other")).await;
    KEYS.iter().for_each(|key| publish(&broker, key, "2"));
    let stay = received(&mut one).await;
    assert!(received(&mut two).await.is_empty(), "the first one holds messages of all keys");
    let moved: Vec<_> =
        held.iter().filter(|it| stay.iter().all(|other| other.key != it.key)).collect();
    assert!(!moved.is_empty());
    for message in &moved {
        one.ack(message.position.entry_id()).await.unwrap();
    }
    let come = received(&mut two).await;
    assert_eq!(by_key(&come).len(), moved.len(), "{come:?}");
    drop(one);
    let back = received(&mut two).await;
    let texts = by_key(&back);
    assert!(texts.values().all(|texts| texts == "12"), "{texts:?}");
    assert_eq!(texts.len(), KEYS.len() - moved.len());
}

#[tokio::test(start_paused = true)]
async fn consumers_of_two_types_do_not_go_together() {
    let (broker, first) = quiet();
    let shared = consumer(&first).await;
    let other = broker.connect("other");
    let error = other.subscribe(&at(), GROUP, SubscriptionType::KeyShared).await.err().unwrap();
    assert!(error.to_string().contains("of another type"), "{error}");
    drop(shared);
    let mut keyed = keyed(&other).await;
    broker.publish(&at(), message("a"));
    assert_eq!(keys(&received(&mut keyed).await), "a");
}

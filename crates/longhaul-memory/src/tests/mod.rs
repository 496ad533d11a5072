//! Each behaviour and each fault of the broker in memory, and that one seed gives one history.

mod consuming;
mod deterministic;
mod following;
mod keyed;
mod logs;
mod outages;
mod processes;
mod publishing;

use super::{Faults, MemoryBroker, MemoryTransport};
use longhaul_transport::{
    Batching, Consumer, EntryId, Follow, Follower, Message, Outgoing, Publisher, Receipt, Start,
    TopicPartition, TopicSchema, Transport, TransportError,
};
use std::time::Duration;
use tokio::time::timeout;

/// Longer than any operation in a quiet plan.
const SOON: Duration = Duration::from_millis(100);
const GROUP: &str = "group";

fn at() -> TopicPartition {
    TopicPartition { topic: "persistent://public/default/topic".to_owned(), partition: 0 }
}

/// A quiet broker with one topic of one partition, deduplicated, and one process.
fn quiet() -> (MemoryBroker, MemoryTransport) {
    with_faults(Faults::quiet())
}

fn with_faults(faults: Faults) -> (MemoryBroker, MemoryTransport) {
    let broker = MemoryBroker::new(1, faults);
    broker.create_topic(&at().topic, Some(1), true);
    let transport = broker.connect("worker");
    (broker, transport)
}

fn message(key: &str) -> Outgoing {
    let (key, payload) = (Some(key.to_owned()), key.as_bytes().to_vec().into());
    Outgoing { key, payload, ..Outgoing::default() }
}

fn tombstone(key: &str) -> Outgoing {
    Outgoing { key: Some(key.to_owned()), null: true, ..Outgoing::default() }
}

async fn publisher(transport: &MemoryTransport, batching: Batching) -> Box<dyn Publisher> {
    transport.publisher(&at(), batching, TopicSchema::None).await.unwrap()
}

async fn send(publisher: &mut Box<dyn Publisher>, key: &str) -> Receipt {
    publisher.send(message(key)).await.unwrap()
}

async fn consumer(transport: &MemoryTransport) -> Box<dyn Consumer> {
    transport.consumer(&at(), GROUP).await.unwrap()
}

async fn follower(transport: &MemoryTransport, compacted: bool) -> Box<dyn Follower> {
    let follow = Follow { start: Start::Earliest, compacted };
    transport.follower(&at(), follow).await.unwrap()
}

/// Returns the messages that come soon, up to a pause or the end of the session.
async fn received(consumer: &mut Box<dyn Consumer>) -> Vec<Message> {
    let mut all = Vec::new();
    while let Ok(Ok(message)) = timeout(SOON, consumer.next()).await {
        all.push(message);
    }
    all
}

async fn read(follower: &mut Box<dyn Follower>) -> Vec<Message> {
    let mut all = Vec::new();
    while let Ok(Ok(message)) = timeout(SOON, follower.next()).await {
        all.push(message);
    }
    all
}

fn keys(messages: &[Message]) -> String {
    messages.iter().filter_map(|message| message.key.as_deref()).collect::<Vec<_>>().join(" ")
}

fn entry(message: &Message) -> EntryId {
    message.position.entry_id()
}

/// Whether a session returned an error in time.
fn is_error<T>(result: &Result<Result<T, TransportError>, tokio::time::error::Elapsed>) -> bool {
    matches!(result, Ok(Err(_)))
}

fn is_silent<T>(result: &Result<Result<T, TransportError>, tokio::time::error::Elapsed>) -> bool {
    result.is_err()
}

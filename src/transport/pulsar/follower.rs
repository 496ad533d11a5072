//! Follows a partition with a consumer of the client crate that has an exclusive, non-durable subscription, which is what a
//! reader is; and fetches single messages with one.
//!
//! The crate's own reader acknowledges every message, which nobody asked for: while a ledger of 100,000 finished tasks was read,
//! 150 MB of acks were waiting to be written.

use super::client::{self, Client, Context, shielded};
use super::raw::Raw;
use super::{error, message};
use crate::task::{EntryId, Position};
use crate::transport::{Follow, Follower, Message, Start, TransportError};
use async_trait::async_trait;
use futures::StreamExt;
use pulsar::consumer::InitialPosition;
use pulsar::proto::MessageIdData;
use pulsar::{Consumer, ConsumerOptions, SubType, TokioExecutor};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Messages that the crate may hold before the follower's caller takes them.
const FOLLOW_PERMITS: u32 = 256;
/// The same for fetching one message.
const FETCH_PERMITS: u32 = 1;
/// How long fetching a message may take.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);

type Stream = Consumer<Vec<u8>, TokioExecutor>;

/// A reader on one partition.
pub(super) struct PulsarFollower {
    reader: Stream,
    raw: Arc<Raw>,
    topic: String,
    address: String,
    compacted: bool,
    /// What lies at or before it is not delivered: the end of the log at opening, for a follower from there.
    after: Option<EntryId>,
    /// Why there is nothing more.
    end: Option<TransportError>,
}

impl PulsarFollower {
    pub(super) async fn open(context: Context, follow: Follow) -> Result<Self, TransportError> {
        let Context { raw, tracker, topic, address } = context;
        // The crate's "latest" would be taken anew whenever it subscribes anew, and skip what came between; an id stays.
        let after = match follow.start {
            Start::Earliest => None,
            Start::Latest => raw.topic(&topic).await?.last_position(false).await?,
        };
        let name = topic.clone();
        let build = move |client| reader(client, name, after, follow.compacted, FOLLOW_PERMITS);
        let (reader, _) = client::open(&raw, &tracker, &topic, build).await?;
        let (after, compacted) = (after.map(Position::entry_id), follow.compacted);
        Ok(Self { reader, raw, topic, address, compacted, after, end: None })
    }

    fn skips(&self, message: &Message) -> bool {
        self.after.is_some_and(|after| message.position.entry_id() <= after)
            || (self.compacted && message::is_compacted_slot(message))
    }
}

#[async_trait]
impl Follower for PulsarFollower {
    async fn next(&mut self) -> Result<Message, TransportError> {
        if let Some(cause) = &self.end {
            return Err(cause.clone());
        }
        loop {
            // The stream reads a channel: dropping this future half-way loses nothing.
            let cause = match self.reader.next().await {
                Some(Ok(received)) => {
                    let message = message::from_crate(received);
                    if self.skips(&message) {
                        continue;
                    }
                    return Ok(message);
                }
                Some(Err(cause)) => error::client(&self.address, &cause),
                None => error::unreachable(&self.address, "the client gave up the reader"),
            };
            tracing::debug!(error = %cause, "follower is over");
            return Err(self.end.insert(cause).clone());
        }
    }

    async fn last_position(&mut self) -> Result<Option<Position>, TransportError> {
        if let Some(cause) = &self.end {
            return Err(cause.clone());
        }
        // Not through the crate: its engine answers no question while it waits for us to take a message.
        self.raw.topic(&self.topic).await?.last_position(self.compacted).await
    }
}

/// Reads the message at exactly this position.
pub(super) async fn fetch(
    context: Context,
    at: Position,
) -> Result<Option<Message>, TransportError> {
    // The whole log first, the compacted view next: trimming may have left an entry only there, and compaction only here.
    for compacted in [false, true] {
        let last = context.raw.topic(&context.topic).await?.last_position(compacted).await?;
        if last.is_none_or(|last| last.entry_id() < at.entry_id()) {
            continue;
        }
        let Context { raw, tracker, topic, address } = context.clone();
        let name = topic.clone();
        let build = move |client| reader(client, name, Some(at), compacted, FETCH_PERMITS);
        let (reader, _) = client::open(&raw, &tracker, &topic, build).await?;
        let place = address.clone();
        let read = async move {
            let found = timeout(FETCH_TIME_MAX, read_at(reader, at, &place)).await;
            found.unwrap_or_else(|_| Err(error::unreachable(&place, "no message came in time")))
        };
        let found = shielded(&tracker, FETCH_TIME_MAX * 2, &address, read).await?;
        let found = found.filter(|message| !compacted || !message::is_compacted_slot(message));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

async fn read_at(
    mut reader: Stream,
    at: Position,
    address: &str,
) -> Result<Option<Message>, TransportError> {
    loop {
        let received = match reader.next().await {
            Some(received) => received.map_err(|cause| error::client(address, &cause))?,
            None => return Err(error::unreachable(address, "the client gave up the reader")),
        };
        let message = message::from_crate(received);
        let is_entry = message.position.entry_id() == at.entry_id();
        match message.position.cmp(&at) {
            // Perhaps nothing ever follows the entry.
            Ordering::Less if is_entry && message::ends_entry(&message) => return Ok(None),
            Ordering::Less => {}
            Ordering::Equal => return Ok(Some(message)),
            Ordering::Greater => return Ok(None),
        }
    }
}

/// Opens a reader, from the entry of a position on or from the beginning.
///
/// The broker takes a start id for inclusive, at the level of entries; leaving out what lies before is up to the client, and
/// the crate does not do it.
async fn reader(
    client: Client,
    topic: String,
    start: Option<Position>,
    compacted: bool,
    permits: u32,
) -> Result<Stream, pulsar::Error> {
    let mut options = ConsumerOptions::default()
        .durable(false)
        .read_compacted(compacted)
        .with_initial_position(InitialPosition::Earliest)
        .with_receiver_queue_size(permits);
    if let Some(start) = start {
        options = options.starting_on_message(MessageIdData {
            ledger_id: start.ledger,
            entry_id: start.entry,
            ..MessageIdData::default()
        });
    }
    let name = format!("longhaul-reader-{:016x}", fastrand::u64(..));
    let builder = client.consumer().with_topic(topic).with_options(options).with_subscription(name);
    let builder = builder.with_subscription_type(SubType::Exclusive).with_batch_size(permits);
    Box::pin(builder.build()).await
}

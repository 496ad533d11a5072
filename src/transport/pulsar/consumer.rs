//! Consumes a durable Shared subscription through the client crate, and acknowledges beside it.
//!
//! Prefetch: with one permit and a queue of one the crate still fetches two entries before the caller asks for the first (as
//! the broker counts them), and keeps two ahead of the caller. While the caller does not ask, nothing else is fetched.
//!
//! Acks go over a connection of our own, on a consumer without permits: the crate's `ack` is only queued, is lost with
//! the connection, and waits while the engine waits for the caller. An ack whose receipt fails may still have been applied: a
//! broker that was frozen does so when it thaws.
//!
//! Invariant: a session that the broker has ended is over for the caller too. The crate subscribes again by itself and says
//! nothing; we notice by the end of our own session on the topic, and by an entry delivered again that is still held.

use super::client::{self, Context};
use super::raw::TopicSession;
use super::{error, message};
use crate::task::EntryId;
use crate::transport::{AckReceipt, Consumer, Message, TransportError};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use pulsar::consumer::{InitialPosition, Message as Received};
use pulsar::proto::MessageIdData;
use pulsar::{ConsumerOptions, SubType, TokioExecutor};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Permits and queue of the crate: the least it has.
const PERMITS: u32 = 1;
/// Acks that wait for the one on its way, and that one frame takes.
const ACKS_MAX: usize = 1_000;

type Stream = pulsar::Consumer<Vec<u8>, TokioExecutor>;

/// One consumer session.
pub(super) struct PulsarConsumer {
    stream: Stream,
    topic: String,
    address: String,
    /// Messages taken from the crate and not yet by the caller: the rest of a batch as a rule.
    ready: VecDeque<Message>,
    /// Whether the last message taken from the crate was the last of its entry.
    entry_is_complete: bool,
    /// Entries delivered, and neither acknowledged nor handed back.
    held: Held,
    acks: mpsc::Sender<Ack>,
    /// Our own session on the topic, which ends when the topic moves.
    session: Arc<TopicSession>,
    /// Why the session is over.
    end: Option<TransportError>,
}

struct Ack {
    entry: EntryId,
    done: oneshot::Sender<Result<(), TransportError>>,
}

/// Shared with the task that acknowledges; as large as what the caller holds.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<HashSet<EntryId>>>);

impl Held {
    /// False if the entry is held already.
    fn insert(&self, entry: EntryId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(entry)
    }

    fn remove(&self, entry: EntryId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry);
    }
}

impl PulsarConsumer {
    pub(super) async fn open(context: Context, subscription: &str) -> Result<Self, TransportError> {
        let Context { raw, tracker, topic, address } = context;
        let session = raw.topic(&topic).await?;
        let consumer_id = session.permitless_consumer(subscription).await?;
        let options = ConsumerOptions::default()
            .durable(true)
            .with_initial_position(InitialPosition::Earliest)
            .with_receiver_queue_size(PERMITS);
        let (name, subscription) = (topic.clone(), subscription.to_owned());
        let build = |client: client::Client| async move {
            let builder = client.consumer().with_topic(name).with_subscription(subscription);
            let builder = builder.with_subscription_type(SubType::Shared).with_options(options);
            Box::pin(builder.with_batch_size(PERMITS).build()).await
        };
        let (stream, _) = client::open(&raw, &tracker, &topic, build).await?;
        let held = Held::default();
        let (acks, queue) = mpsc::channel(ACKS_MAX);
        let run = acknowledge(Arc::clone(&session), consumer_id, queue, held.clone());
        tracker.spawn(run);
        Ok(Self {
            stream,
            topic,
            address,
            ready: VecDeque::new(),
            entry_is_complete: true,
            held,
            acks,
            session,
            end: None,
        })
    }

    /// Takes one message from the crate.
    async fn pull(&mut self) -> Result<(), TransportError> {
        // The stream reads a channel: dropping this future half-way loses nothing.
        let item = tokio::select! { biased;
            cause = self.session.ended() => return Err(self.fail(cause)),
            item = self.stream.next() => item,
        };
        self.accept(item)
    }

    fn accept(
        &mut self,
        item: Option<Result<Received<Vec<u8>>, pulsar::Error>>,
    ) -> Result<(), TransportError> {
        let received = match item {
            Some(Ok(received)) => received,
            Some(Err(cause)) => return Err(self.fail(error::client(&self.address, &cause))),
            None => {
                let cause = error::unreachable(&self.address, "the client gave up the consumer");
                return Err(self.fail(cause));
            }
        };
        let message = message::from_crate(received);
        let entry = message.position.entry_id();
        if self.entry_is_complete && !self.held.insert(entry) {
            let cause = "an entry that is held came again: the client has subscribed anew";
            return Err(self.fail(error::unreachable(&self.address, cause)));
        }
        self.entry_is_complete = message::ends_entry(&message);
        self.ready.push_back(message);
        Ok(())
    }

    fn fail(&mut self, cause: TransportError) -> TransportError {
        tracing::debug!(error = %cause, "consumer session is over");
        self.ready.clear();
        self.end.get_or_insert(cause).clone()
    }

    fn check(&self) -> Result<(), TransportError> {
        self.end.clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Consumer for PulsarConsumer {
    async fn next(&mut self) -> Result<Message, TransportError> {
        self.check()?;
        // What is left of a batch was void from the moment the session ended.
        if let Some(cause) = self.session.ended().now_or_never() {
            return Err(self.fail(cause));
        }
        // A batch is taken whole before its first message goes out, so that an entry is held as a whole or not at all.
        while self.ready.is_empty() || !self.entry_is_complete {
            self.pull().await?;
        }
        let ended = || error::unreachable(&self.address, "nothing was delivered");
        self.ready.pop_front().ok_or_else(ended)
    }

    fn ack(&mut self, entry: EntryId) -> AckReceipt {
        let (done, confirmed) = oneshot::channel();
        let lost = error::unreachable(&self.address, "the consumer has ended");
        let late = match self.acks.try_send(Ack { entry, done }) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(ack)) => Some((self.acks.clone(), ack)),
            Err(mpsc::error::TrySendError::Closed(_)) => return Box::pin(async { Err(lost) }),
        };
        Box::pin(async move {
            // Only an ack beyond the queue depends on being polled.
            if let Some((acks, ack)) = late
                && acks.send(ack).await.is_err()
            {
                return Err(lost);
            }
            confirmed.await.unwrap_or(Err(lost))
        })
    }

    async fn hand_back(&mut self, entry: EntryId) -> Result<(), TransportError> {
        self.check()?;
        self.held.remove(entry);
        self.ready.retain(|message| message.position.entry_id() != entry);
        let id = MessageIdData {
            ledger_id: entry.ledger,
            entry_id: entry.entry,
            ..MessageIdData::default()
        };
        if let Err(cause) = self.stream.nack_with_id(&self.topic, id).await {
            let cause = error::client(&self.address, &pulsar::Error::Consumer(cause));
            return Err(self.fail(cause));
        }
        // The crate's engine tells the broker only when it does not wait for us to take a message. So one entry is taken for
        // the one given back.
        if let Some(item) = self.stream.next().now_or_never() {
            self.accept(item)?;
            while !self.entry_is_complete {
                self.pull().await?;
            }
        }
        Ok(())
    }
}

/// Acknowledges what is queued, as many entries in one frame as wait, until the consumer is gone.
async fn acknowledge(
    session: Arc<TopicSession>,
    consumer_id: u64,
    mut queue: mpsc::Receiver<Ack>,
    held: Held,
) {
    let mut acks = Vec::new();
    while queue.recv_many(&mut acks, ACKS_MAX).await > 0 {
        let entries: Vec<EntryId> = acks.iter().map(|ack| ack.entry).collect();
        let result = session.ack(consumer_id, &entries).await;
        for ack in acks.drain(..) {
            if result.is_ok() {
                held.remove(ack.entry);
            }
            // Who no longer waits for the receipt does not take the ack back.
            drop(ack.done.send(result.clone()));
        }
    }
}

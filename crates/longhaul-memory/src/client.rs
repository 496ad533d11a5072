//! The client side of sessions.

use super::agenda::{ConnectionId, PartitionId, SessionId};
use super::history::Happening;
use super::lifecycle::Reachability;
use super::log::unstored;
use super::publish::OPERATION_TIMEOUT;
use super::session::{Consuming, FollowerState, Publishing, SessionRole};
use super::state::{MemoryBrokerState, lost};
use super::{Freezer, SharedBroker};
use async_trait::async_trait;
use longhaul_transport::{
    Backlog, Batching, Consumer, EntryId, Follow, Follower, Message, OnAck, OnReceipt, Outgoing,
    Position, PublishError, Publisher, Start, SubscriptionType, TopicPartition, TopicSchema,
    Transport, TransportError, gate::ProcessGate,
};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

/// The connection of one process to a [`MemoryBroker`](super::MemoryBroker). Clones share the fate
/// of the process.
#[derive(Clone)]
pub struct MemoryTransport {
    shared: Arc<SharedBroker>,
    connection: ConnectionId,
    name: Arc<str>,
    pub(super) freezer: Freezer,
    /// The tasks that wait for receipts.
    tasks: TaskTracker,
}

impl MemoryTransport {
    pub(super) fn new(
        shared: Arc<SharedBroker>,
        connection: ConnectionId,
        name: &str,
        freezer: Freezer,
    ) -> Self {
        Self { shared, connection, name: Arc::from(name), freezer, tasks: TaskTracker::new() }
    }

    /// The gate of the process: wrap every future of it.
    #[must_use]
    pub fn gate(&self) -> ProcessGate {
        self.freezer.gate()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, MemoryBrokerState> {
        self.shared.lock()
    }

    pub(super) const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// One round trip: `ask` is answered when the broker can be reached. `None` from it means that
    /// there is no answer for now.
    async fn request<T>(
        &self,
        mut ask: impl FnMut(&mut MemoryBrokerState) -> Option<Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let latency = {
            let mut state = self.lock();
            let span = state.faults.request_delay;
            state.draw(span)
        };
        let answer = async {
            sleep(latency).await;
            loop {
                // Created before asking, so that no change is missed.
                let changed = self.shared.signals.changed.notified();
                if let Some(answer) = self.try_request(&mut ask) {
                    return answer;
                }
                changed.await;
            }
        };
        let too_late = |_| Err(lost(&self.name, "no answer in time"));
        timeout(OPERATION_TIMEOUT, answer).await.unwrap_or_else(too_late)
    }

    fn try_request<T>(
        &self,
        ask: &mut impl FnMut(&mut MemoryBrokerState) -> Option<Result<T, TransportError>>,
    ) -> Option<Result<T, TransportError>> {
        let mut state = self.lock();
        match state.reach(self.connection) {
            Reachability::Yes => ask(&mut state),
            Reachability::No(error) => Some(Err(error)),
            Reachability::Wait => None,
        }
    }

    async fn open(
        &self,
        topic: &TopicPartition,
        mut role: impl FnMut(&MemoryBrokerState, PartitionId) -> Result<SessionRole, TransportError>,
    ) -> Result<Handle, TransportError> {
        let session = self.request(|state| {
            Some(state.reach_partition(topic).and_then(|partition| {
                let role = role(state, partition)?;
                Ok(state.open(self.connection, partition, role))
            }))
        });
        Ok(Handle { session: session.await?, transport: self.clone() })
    }
}

impl fmt::Debug for MemoryTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransport").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for MemoryTransport {
    async fn partitions(&self, topic: &str) -> Result<Option<u32>, TransportError> {
        let count =
            |state: &mut MemoryBrokerState| state.topics.get(topic).and_then(|it| it.partitions);
        self.request(|state| Some(Ok(count(state)))).await
    }

    fn partitions_may_grow(&self) -> bool {
        self.lock().missing_topics.is_none()
    }

    async fn publisher(
        &self,
        topic: &TopicPartition,
        batching: Batching,
        _schema: TopicSchema,
    ) -> Result<Box<dyn Publisher>, TransportError> {
        let role = |_: &MemoryBrokerState, _| {
            let (batch, in_flight) = (Vec::new(), BTreeMap::new());
            Ok(SessionRole::Publisher(Publishing { batching, sequence: 0, batch, in_flight }))
        };
        Ok(Box::new(MemoryPublisher(self.open(topic, role).await?)))
    }

    async fn subscribe(
        &self,
        topic: &TopicPartition,
        subscription: &str,
        subscription_type: SubscriptionType,
    ) -> Result<Box<dyn Consumer>, TransportError> {
        let prefetch = self.lock().faults.prefetch;
        let role = |state: &MemoryBrokerState, partition| {
            state.admit(partition, subscription, subscription_type)?;
            Ok(SessionRole::Consumer(Consuming {
                subscription: Arc::from(subscription),
                subscription_type,
                receipts: Vec::new(),
                permits: 0,
                prefetch,
            }))
        };
        Ok(Box::new(MemoryConsumer(self.open(topic, role).await?)))
    }

    async fn follower(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<Box<dyn Follower>, TransportError> {
        self.lock().happened(Happening::Followed {
            by: Arc::clone(&self.name),
            partition: Arc::from(topic.to_string()),
            from_start: follow.start == Start::Earliest,
        });
        let role = |_: &MemoryBrokerState, _| {
            Ok(SessionRole::Follower(FollowerState { follow, cursor: None, stalled: false }))
        };
        Ok(Box::new(MemoryFollower(self.open(topic, role).await?)))
    }

    async fn fetch(
        &self,
        topic: &TopicPartition,
        at: Position,
    ) -> Result<Option<Message>, TransportError> {
        let (by, partition) = (Arc::clone(&self.name), Arc::from(topic.to_string()));
        let fetched = Happening::Fetched { by, partition, position: at };
        self.lock().happened(fetched);
        let answer = self.request(|state| {
            let partition = state.reach_partition(topic);
            Some(partition.map(|id| state.partitions.get(&id)?.log.fetch(at).cloned()))
        });
        let answer = answer.await;
        if answer.is_err() {
            let (by, partition) = (Arc::clone(&self.name), Arc::from(topic.to_string()));
            self.lock().happened(Happening::Unread { by, partition, position: at });
        }
        answer
    }
}

/// A client's session. Dropping it tells the broker.
struct Handle {
    transport: MemoryTransport,
    session: SessionId,
}

impl Handle {
    async fn next(&self) -> Result<Message, TransportError> {
        loop {
            let bell = {
                let mut state = self.transport.lock();
                if let Some(message) = state.take(self.session) {
                    return Ok(message);
                }
                state.bell(self.session)?
            };
            bell.notified().await;
        }
    }

    fn more(&self) -> Option<Message> {
        self.transport.lock().take(self.session)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.transport.lock().close(self.session);
    }
}

struct MemoryPublisher(Handle);

#[async_trait]
impl Publisher for MemoryPublisher {
    async fn ended(&mut self) -> TransportError {
        let Handle { transport, session } = &self.0;
        loop {
            let bell = transport.lock().bell(*session);
            match bell {
                Ok(bell) => bell.notified().await,
                Err(error) => return error,
            }
        }
    }

    async fn ready(&mut self) -> Result<(), TransportError> {
        let Handle { transport, session } = &self.0;
        loop {
            let bell = {
                let mut state = transport.lock();
                let bell = state.bell(*session)?;
                if state.has_room(*session) {
                    return Ok(());
                }
                bell
            };
            bell.notified().await;
        }
    }

    fn put(&mut self, message: Outgoing, on_receipt: OnReceipt) -> bool {
        let Handle { transport, session } = &self.0;
        let mut state = transport.lock();
        match state.offer(*session, unstored(message)) {
            Ok(answer) => {
                let told = async move { on_receipt.tell(receipt(answer).await) };
                transport.tasks.spawn(transport.gate().wrap(told));
            }
            Err(error) => on_receipt.tell(Err(PublishError::NotStored(error.to_string()))),
        }
        state.has_room(*session)
    }
}

/// The time-out counts from the moment of sending, whether polled or not.
fn receipt(
    answer: oneshot::Receiver<Result<Position, PublishError>>,
) -> impl Future<Output = Result<Position, PublishError>> {
    let deadline = sleep(OPERATION_TIMEOUT);
    let unknown = |cause: &str| Err(PublishError::Unknown(cause.to_owned()));
    async move {
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| unknown("the publisher is gone")),
            () = deadline => unknown("no answer in time"),
        }
    }
}

struct MemoryConsumer(Handle);

#[async_trait]
impl Consumer for MemoryConsumer {
    fn request(&mut self, count: usize) {
        self.0.transport.lock().ask_for(self.0.session, count);
    }

    async fn backlog(&mut self) -> Result<Backlog, TransportError> {
        let Handle { transport, session } = &self.0;
        transport.request(|state| state.backlog(*session)).await
    }

    async fn next(&mut self) -> Result<Message, TransportError> {
        self.0.next().await
    }

    fn more(&mut self) -> Option<Message> {
        self.0.more()
    }

    fn acknowledge(&mut self, entry: EntryId, on_ack: OnAck) {
        let (sender, answer) = oneshot::channel();
        let Handle { transport, session } = &self.0;
        transport.lock().send_ack(*session, entry, sender);
        let deadline = sleep(OPERATION_TIMEOUT);
        let name = Arc::clone(&transport.name);
        let told = async move {
            let answer = tokio::select! {
                biased;
                answer = answer => {
                    answer.unwrap_or_else(|_| Err(lost(&name, "the consumer's session is over")))
                }
                () = deadline => Err(lost(&name, "no receipt for the ack in time")),
            };
            on_ack.tell(answer);
        };
        transport.tasks.spawn(transport.gate().wrap(told));
    }

    async fn hand_back(&mut self, entry: EntryId) -> Result<(), TransportError> {
        let Handle { transport, session } = &self.0;
        transport.lock().send_back(*session, entry)
    }
}

struct MemoryFollower(Handle);

#[async_trait]
impl Follower for MemoryFollower {
    async fn next(&mut self) -> Result<Message, TransportError> {
        self.0.next().await
    }

    fn more(&mut self) -> Option<Message> {
        self.0.more()
    }

    async fn last_position(&mut self) -> Result<Option<Position>, TransportError> {
        let Handle { transport, session } = &self.0;
        transport.request(|state| state.last_position(*session)).await
    }
}

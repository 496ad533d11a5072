//! A publisher, a follower and a consumer service. Each is a loop that works from session to
//! session. The machine is told what it must know: a lost consumer session, or an unknown result of
//! a publish.

mod publishing;
mod whole;

pub(super) use publishing::{Publish, publish};
pub(super) use whole::follow_whole;

use super::driver::WorkerEvent;
use super::mailbox::Mailbox;
use crate::clock::Clock;
use crate::supervise::{KeptFollower, Landmark, Monitor, SessionSupervisor};
use crate::transport::{
    Acked, Backlog, Consumer, Message, OnAck, SubscriptionType, TransportError, TransportErrorKind,
};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{EntryId, Position};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// A subscription may fall silent for good although there is a backlog, for example after an outage
/// of the broker's storage; subscribing anew heals it. So a consumer that waited this long for a
/// delivery asks for the backlog, and subscribes anew if the backlog exceeds the tasks that workers
/// hold or have begun according to the ledger. The rest may be held by others or be delayed; only
/// the broker knows.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A session without a delivery so far asks sooner: stalls begin when brokers and topics come back,
/// and the session holds nothing that would be redelivered. For 10 min after a lost session the
/// next ones ask sooner, too. The time doubles whenever subscribing anew did not help.
const IDLE_MIN: Duration = Duration::from_secs(15);

/// A session that holds many entries waits at least this long for each.
const PATIENCE_EACH: Duration = Duration::from_millis(10);

/// Maximum number of messages passed on to the driver together, and the number of bytes after which
/// no further one is added.
const AT_ONCE_MAX: usize = 256;
const BYTES_AT_ONCE_MAX: usize = 256 * 1024;

/// Passes the events of a service on to the driver.
pub(super) struct Sink<T> {
    events: mpsc::Sender<WorkerEvent>,
    wrap: Box<dyn Fn(T) -> WorkerEvent + Send + Sync>,
}

/// The driver has gone.
pub(super) struct Gone;

impl<T> Sink<T> {
    pub(super) fn new(
        events: mpsc::Sender<WorkerEvent>,
        wrap: impl Fn(T) -> WorkerEvent + Send + Sync + 'static,
    ) -> Self {
        Self { events, wrap: Box::new(wrap) }
    }

    async fn send(&self, item: T) -> Result<(), Gone> {
        self.events.send((self.wrap)(item)).await.map_err(|_| Gone)
    }
}

/// Events of a follower service for the driver.
pub(super) enum FollowerEvent {
    /// Messages, in order.
    Messages(Vec<Message>),
    /// The end of the topic, as of the request at this time.
    End(Moment, Option<Position>),
    /// The topic is gone, or was replaced.
    Gone,
}

/// A follower service. After an error it continues behind the entries passed on, if a landmark
/// shows that the topic is the same: a replacement is another topic. On request it looks up the end
/// of the topic; a request is lost with its session.
pub(super) async fn follow(
    follower: KeptFollower,
    landmark: Option<Landmark>,
    asked: Mailbox<Moment>,
    sink: Sink<FollowerEvent>,
) {
    let has_landmark = landmark.is_some();
    let mut follower = follower.only_where(landmark);
    loop {
        let followed = tokio::select! {
            biased;
            at = asked.take() => follower.last_position().await.map(|end| FollowerEvent::End(at, end)),
            message = follower.next() => message.map(|message| {
                FollowerEvent::Messages(with_more(message, AT_ONCE_MAX, || follower.more()))
            }),
        };
        let followed = match followed {
            Ok(followed) => followed,
            Err(error) if error.kind == TransportErrorKind::NotFound => {
                if !has_landmark || !follower.has_read() {
                    continue;
                }
                FollowerEvent::Gone
            }
            Err(_) => continue,
        };
        if sink.send(followed).await.is_err() {
            return;
        }
    }
}

/// A message and the available ones behind it, up to the limits for one event.
fn with_more(
    message: Message,
    count_max: usize,
    mut more: impl FnMut() -> Option<Message>,
) -> Vec<Message> {
    let mut bytes = message.payload.len();
    let mut some = vec![message];
    while some.len() < count_max
        && bytes < BYTES_AT_ONCE_MAX
        && let Some(message) = more()
    {
        bytes += message.payload.len();
        some.push(message);
    }
    some
}

/// Commands of the driver to the consumer service.
pub(super) enum ConsumerCommand {
    /// Grants this many more deliveries to the session of this number.
    Credit { session: u64, count: usize },
    /// Acknowledge, in this session or a later one, until the broker confirms it.
    Ack(EntryId),
    /// Give back to the broker.
    HandBack(EntryId),
    /// End the session and begin another one, of the type that is set by now.
    SubscribeAnew,
    /// End the session for good.
    Leave,
}

/// Events of the consumer service for the driver.
pub(super) enum Consumed {
    /// A session is open.
    Opened(u64),
    /// Deliveries.
    Deliveries(Vec<Message>),
    /// The session ended: its deliveries are void.
    Lost,
    /// The broker has confirmed acks.
    Acked(Vec<EntryId>),
}

/// A consumer service. The broker delivers only within the credit, so that tasks wait at the broker
/// and not here.
pub(super) async fn consume(
    mut service: SessionSupervisor,
    (subscription, by_key): (String, Arc<AtomicBool>),
    commands: Mailbox<ConsumerCommand>,
    events: Sink<Consumed>,
    open: Arc<AtomicU64>,
) {
    let (transport, topic) = (Arc::clone(&service.transport), service.topic.clone());
    let mut unconfirmed = BTreeSet::new();
    let (mut patience, mut was_lost) = (IDLE_MIN, false);
    let mut is_hasty_until = Moment::default();
    for session in 1.. {
        let (consumer, subscription_type) = loop {
            let subscription_type = if by_key.load(Ordering::Relaxed) {
                SubscriptionType::KeyShared
            } else {
                SubscriptionType::Shared
            };
            let opening = transport.subscribe(&topic, &subscription, subscription_type);
            if let Ok(consumer) = service.open(opening).await {
                break (consumer, subscription_type);
            }
        };
        if events.send(Consumed::Opened(session)).await.is_err() {
            return;
        }
        let mut running = ConsumerSession::new(
            session,
            consumer,
            patience,
            service.clock,
            Arc::clone(&open),
            Arc::clone(&service.monitor),
        );
        running.by_key = subscription_type == SubscriptionType::KeyShared;
        if std::mem::take(&mut was_lost) {
            is_hasty_until = running.silent_since + IDLE_MAX;
        }
        running.is_hasty_until = is_hasty_until;
        for entry in unconfirmed {
            running.ack(entry);
        }
        match running.run(&commands, &events).await {
            SessionEnd::Gone => return,
            SessionEnd::Left => return leave(running, &commands, &events).await,
            SessionEnd::Anew => service.ended(),
            SessionEnd::Stalled(backlog) => {
                tracing::info!(%topic, ?backlog, "no message for a long time although there is a backlog: subscribing again");
                service.monitor.stalled();
                service.ended();
                patience = (2 * patience).min(IDLE_MAX);
            }
            SessionEnd::Lost(error) => {
                service.lost(&error);
                (patience, was_lost) = (IDLE_MIN, true);
            }
        }
        unconfirmed = running.unconfirmed;
        if events.send(Consumed::Lost).await.is_err() {
            return;
        }
    }
}

/// Ends the session for good. Its tasks go to other workers, which acknowledge them at their end:
/// nothing is left to do for them here.
async fn leave(
    session: ConsumerSession,
    commands: &Mailbox<ConsumerCommand>,
    events: &Sink<Consumed>,
) {
    let unconfirmed = session.unconfirmed.iter().copied().collect();
    drop(session);
    if events.send(Consumed::Lost).await.is_err()
        || events.send(Consumed::Acked(unconfirmed)).await.is_err()
    {
        return;
    }
    loop {
        if let ConsumerCommand::Ack(entry) = commands.take().await
            && events.send(Consumed::Acked(vec![entry])).await.is_err()
        {
            return;
        }
    }
}

struct ConsumerSession {
    session: u64,
    consumer: Box<dyn Consumer>,
    credit: usize,
    /// Whether the broker assigns tasks by key: then tasks held by others may block the whole
    /// backlog.
    by_key: bool,
    /// How long to wait for the first delivery; below, since when the session has waited for the
    /// next one. Other work of the session does not interrupt the wait.
    patience: Duration,
    silent_since: Moment,
    has_delivered: bool,
    /// Whether the topic was terminated and nothing is left in it.
    is_drained: bool,
    /// Until this time the session waits for later deliveries no longer than for the first one.
    is_hasty_until: Moment,
    clock: Clock,
    /// Number of entries known to be held by any worker. The broker counts them in the backlog, and
    /// reports only the number held by the asking consumer.
    open: Arc<AtomicU64>,
    monitor: Arc<Monitor>,
    /// Entries that were delivered, and neither acknowledged nor handed back.
    held: BTreeSet<EntryId>,
    /// The broker's answers to acks.
    acks: Mailbox<(EntryId, Acked)>,
    /// Acks without a receipt: repeated in the next session. A second ack does no harm.
    unconfirmed: BTreeSet<EntryId>,
}

/// The reason for the end of a session.
enum SessionEnd {
    Lost(TransportError),
    /// The broker has messages to deliver and does not deliver them.
    Stalled(Backlog),
    /// The driver requested another session, or none.
    Anew,
    Left,
    Gone,
}

impl From<TransportError> for SessionEnd {
    fn from(error: TransportError) -> Self {
        Self::Lost(error)
    }
}

impl From<Gone> for SessionEnd {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl ConsumerSession {
    fn new(
        session: u64,
        consumer: Box<dyn Consumer>,
        patience: Duration,
        clock: Clock,
        open: Arc<AtomicU64>,
        monitor: Arc<Monitor>,
    ) -> Self {
        Self {
            session,
            consumer,
            credit: 0,
            by_key: false,
            patience,
            silent_since: clock.now(),
            has_delivered: false,
            is_drained: false,
            is_hasty_until: Moment::default(),
            clock,
            open,
            monitor,
            held: BTreeSet::new(),
            acks: Mailbox::new(),
            unconfirmed: BTreeSet::new(),
        }
    }

    fn ack(&mut self, entry: EntryId) {
        self.unconfirmed.insert(entry);
        let acks = self.acks.clone();
        self.consumer.acknowledge(entry, OnAck::new(move |acked| acks.put((entry, acked))));
    }

    async fn run(
        &mut self,
        commands: &Mailbox<ConsumerCommand>,
        events: &Sink<Consumed>,
    ) -> SessionEnd {
        loop {
            if let Err(end) = self.step(commands, events).await {
                return end;
            }
        }
    }

    async fn step(
        &mut self,
        commands: &Mailbox<ConsumerCommand>,
        events: &Sink<Consumed>,
    ) -> Result<(), SessionEnd> {
        let patient_until = self.silent_since + self.patience();
        tokio::select! {
            biased;
            command = commands.take() => self.obey(command).await?,
            () = self.acks.arrived() => {
                let (acked, end) = self.take_acks();
                if !acked.is_empty() {
                    events.send(Consumed::Acked(acked)).await?;
                }
                end?;
            }
            delivery = self.consumer.next(), if self.credit > 0 => {
                // A client that requests messages by itself may have more than the credit.
                let count_max = self.credit.min(AT_ONCE_MAX);
                let delivery = match delivery {
                    // Told twice, the consumer is over.
                    Err(error)
                        if error.kind == TransportErrorKind::Terminated && !self.is_drained =>
                    {
                        self.is_drained = true;
                        tracing::error!(%error, "all tasks of this topic have ended, and nobody can submit more: was it migrated to a scalable topic? Tasks that are submitted there reach no worker: create another queue");
                        return Ok(());
                    }
                    delivery => delivery?,
                };
                let some = with_more(delivery, count_max, || self.consumer.more());
                self.credit -= some.len();
                self.silent_since = self.clock.now();
                self.has_delivered = true;
                self.held.extend(some.iter().map(|message| message.position.entry_id()));
                events.send(Consumed::Deliveries(some)).await?;
            }
            () = self.clock.sleep_until(patient_until), if self.credit > 0 => {
                self.silent_since = self.clock.now();
                self.look_after_silence().await?;
            }
        }
        Ok(())
    }

    /// The time to wait for a delivery. Subscribing anew redelivers everything held, possibly a
    /// million tasks scheduled for next month, which must not keep the broker busy.
    fn patience(&self) -> Duration {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let is_patient = self.has_delivered && self.is_hasty_until <= self.clock.now();
        let patience = if is_patient { IDLE_MAX } else { self.patience };
        patience.max(PATIENCE_EACH * held)
    }

    /// The acks that the broker has confirmed, up to the first failed one.
    fn take_acks(&mut self) -> (Vec<EntryId>, Result<(), TransportError>) {
        let mut acked = Vec::new();
        while let Some((entry, result)) = self.acks.pop() {
            if let Err(error) = result {
                self.monitor.refused(&error);
                return (acked, Err(error));
            }
            self.monitor.accepted();
            self.unconfirmed.remove(&entry);
            self.held.remove(&entry);
            acked.push(entry);
        }
        (acked, Ok(()))
    }

    /// Checks the backlog after a long silence despite open credit.
    async fn look_after_silence(&mut self) -> Result<(), SessionEnd> {
        if self.by_key && !self.held.is_empty() {
            // Subscribing anew would have its lines assigned again.
            return Ok(());
        }
        let backlog = self.consumer.backlog().await?;
        if backlog.blocked {
            tracing::warn!(
                session = self.session,
                "the broker delivers nothing: too many unacknowledged messages; raise the limits of the task topic"
            );
        }
        let held = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        let held = held.max(self.open.load(Ordering::Relaxed));
        if backlog.entries > held { Err(SessionEnd::Stalled(backlog)) } else { Ok(()) }
    }

    async fn obey(&mut self, command: ConsumerCommand) -> Result<(), SessionEnd> {
        match command {
            ConsumerCommand::Credit { session, count } if session == self.session => {
                if self.credit == 0 {
                    self.silent_since = self.clock.now();
                }
                self.credit += count;
                self.consumer.request(count);
            }
            ConsumerCommand::Credit { .. } => {}
            ConsumerCommand::Ack(entry) => self.ack(entry),
            ConsumerCommand::HandBack(entry) => {
                self.held.remove(&entry);
                self.consumer.hand_back(entry).await?;
            }
            ConsumerCommand::SubscribeAnew => return Err(SessionEnd::Anew),
            ConsumerCommand::Leave => return Err(SessionEnd::Left),
        }
        Ok(())
    }
}

#[cfg(test)]
mod outages;
#[cfg(test)]
mod refusing;
#[cfg(test)]
mod tests;

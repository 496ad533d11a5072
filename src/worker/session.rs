//! A publisher, a follower and a consumer service, each a loop that works from session to session.
//! The machine is told what it must know: that a consumer session was lost, that the fate of a
//! publish is unknown.

mod publishing;
mod whole;

pub(super) use publishing::{Publish, publish};
pub(super) use whole::{FollowedWhole, follow_whole};

use super::driver::WorkerEvent;
use super::mailbox::Mailbox;
use crate::clock::Clock;
use crate::supervise::{KeptFollower, Landmark, Monitor, SessionSupervisor};
use crate::transport::{
    Acked, Backlog, Consumer, Follow, Message, OnAck, SubscriptionType, TransportError,
    TransportErrorKind,
};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{EntryId, Position};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// A subscription may fall silent for good although there is a backlog, after an outage of the
/// broker's storage for one; subscribing anew heals it. So a consumer that waited this long for a
/// delivery asks for the backlog, and subscribes anew if there is more than what workers hold or
/// have begun, as far as the ledger tells. Others may hold the rest, or it is delayed: only the
/// broker knows.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A session that has delivered nothing yet asks sooner: stalls begin when brokers and topics come
/// back, and it holds nothing that would be delivered again. For ten minutes behind a lost session the
/// next ones ask sooner, too. The time doubles whenever subscribing anew did not help.
const IDLE_MIN: Duration = Duration::from_secs(15);

/// A session that holds much waits so long for each entry at least.
const PATIENCE_EACH: Duration = Duration::from_millis(10);

/// Messages that are passed on to the driver together, and the bytes after which no further one is
/// added.
const AT_ONCE_MAX: usize = 256;
const BYTES_AT_ONCE_MAX: usize = 256 * 1024;

/// Passes what a service has to say on to the driver.
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

/// What a follower service tells the driver.
pub(super) enum FollowerEvent {
    /// Messages, in order.
    Messages(Vec<Message>),
    /// Where the topic ends, as was asked at this time.
    End(Moment, Option<Position>),
    /// The topic is not there any more, or another one is in its place.
    Gone,
}

/// A follower service. After an error it goes on behind what it has passed on, in the same topic
/// where a landmark tells: one that takes its place is another one. When it is asked it looks up
/// where the topic ends; a question is lost with a session.
pub(super) async fn follow(
    service: SessionSupervisor,
    follow: Follow,
    landmark: Option<Landmark>,
    asked: Mailbox<Moment>,
    sink: Sink<FollowerEvent>,
) {
    let has_landmark = landmark.is_some();
    let mut follower = KeptFollower::new(service, follow).only_where(landmark);
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

/// A message and those behind it that are there already, so many that the driver takes them at one
/// go.
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

/// What the driver tells the consumer service.
pub(super) enum ConsumerCommand {
    /// It wants so many more deliveries from the session of this number.
    Credit { session: u64, count: usize },
    /// Acknowledge, in this session or a later one, until the broker confirms it.
    Ack(EntryId),
    /// Give back to the broker.
    HandBack(EntryId),
    /// End the session and begin another one, of the type that is asked for by now.
    SubscribeAnew,
    /// End the session, and begin no other one.
    Leave,
}

/// What the consumer service tells the driver.
pub(super) enum Consumed {
    /// A session is open.
    Opened(u64),
    /// Deliveries.
    Deliveries(Vec<Message>),
    /// The session ended: what it delivered is void.
    Lost,
    /// The broker has confirmed acks.
    Acked(Vec<EntryId>),
}

/// A consumer service. Nothing is delivered beyond the credit, so that tasks wait at the broker and
/// not here.
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

/// The session is over for good. What it held goes to others, so that they acknowledge what ends:
/// here nothing is left to be done about it.
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
    /// The broker deals by key: what others hold may be in the way of the whole backlog.
    by_key: bool,
    /// How long to wait for the first delivery, and since when the session waits for the next one.
    /// Whatever else the session does meanwhile does not count.
    patience: Duration,
    silent_since: Moment,
    has_delivered: bool,
    /// Until then the session waits for later deliveries no longer than for the first one.
    is_hasty_until: Moment,
    clock: Clock,
    /// Entries that are known to be in the hands of some worker. The broker counts them with the
    /// backlog, and tells only how many the asking consumer holds, not the others.
    open: Arc<AtomicU64>,
    monitor: Arc<Monitor>,
    /// Entries that were delivered, and neither acknowledged nor given back.
    held: BTreeSet<EntryId>,
    /// What the broker has said to acks.
    acks: Mailbox<(EntryId, Acked)>,
    /// Acks without a receipt: repeated in the next session. A second ack does no harm.
    unconfirmed: BTreeSet<EntryId>,
}

/// Why a session ended.
enum SessionEnd {
    Lost(TransportError),
    /// The broker has something to deliver, and does not.
    Stalled(Backlog),
    /// Another one is to begin, or none.
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
                // A client that asks for more by itself may have more than there is credit for.
                let count_max = self.credit.min(AT_ONCE_MAX);
                let some = with_more(delivery?, count_max, || self.consumer.more());
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

    /// To subscribe anew has all that is held delivered again, a million tasks of next month
    /// perhaps: that must not be what the broker is busy with.
    fn patience(&self) -> Duration {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let is_patient = self.has_delivered && self.is_hasty_until <= self.clock.now();
        let patience = if is_patient { IDLE_MAX } else { self.patience };
        patience.max(PATIENCE_EACH * held)
    }

    /// What the broker has confirmed, up to the first ack that it did not.
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

    /// Nothing came for long although something was asked for.
    async fn look_after_silence(&mut self) -> Result<(), SessionEnd> {
        if self.by_key && !self.held.is_empty() {
            // To subscribe anew would have its lines dealt again.
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

//! Keeps sessions with the broker open: a publisher, a follower and a consumer service, each a loop that opens a session, works
//! until its first error, and opens the next one after a backoff. The machine is told what it must know: that a consumer session
//! was lost, that the fate of a publish is unknown.

mod landmark;
mod publishing;

pub(super) use landmark::{Landmark, Presence};
pub(super) use publishing::{Publish, publish};

use super::connection::Monitor;
use super::driver::Event;
use super::mailbox::Mailbox;
use crate::clock::Clock;
use crate::protocol::moment::Moment;
use crate::task::EntryId;
use crate::transport::{
    Acked, Backlog, Consumer, Follow, Follower, Message, OnAck, Start, TopicPartition, Transport,
    TransportError, TransportErrorKind,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// A subscription may fall silent for good although there is a backlog, after an outage of the broker's storage for one;
/// subscribing anew heals it. So a consumer that waited this long for a delivery asks for the backlog, and subscribes anew if
/// there is more than what workers hold or have begun, as far as the ledger tells. Others may hold the rest, or it is delayed: only
/// the broker knows.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A session that has delivered nothing yet asks sooner, for stalls begin when brokers and topics come back, and it holds nothing
/// that would be delivered again. The time doubles whenever that did not help.
const IDLE_MIN: Duration = Duration::from_secs(15);

/// Messages that are passed on to the driver together, and the bytes after which no further one is added.
const AT_ONCE_MAX: usize = 256;
const BYTES_AT_ONCE_MAX: usize = 256 * 1024;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Waits before sessions are opened again: from 100 ms, doubling to 5 s, less up to a half by chance.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
    rng: fastrand::Rng,
}

impl Backoff {
    pub(crate) const fn new(rng: fastrand::Rng) -> Self {
        Self { next: BACKOFF_MIN, max: BACKOFF_MAX, rng }
    }

    /// For a worker, whose heartbeats others wait for: after an outage of the broker, who came back first once took over the tasks
    /// of who still waited for the next try, because that was longer than the silence that others bear.
    pub(super) fn of_worker(rng: fastrand::Rng, heartbeat: Duration) -> Self {
        let max = (heartbeat / 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
        Self { max, ..Self::new(rng) }
    }

    pub(crate) const fn reset(&mut self) {
        self.next = BACKOFF_MIN;
    }

    /// What was open for as long as the longest wait was worth opening: the next wait is short again. What can be opened and then
    /// fails at once must not be tried at full speed.
    fn was_open_for(&mut self, time: Duration) {
        if time >= self.max {
            self.reset();
        }
    }

    pub(crate) async fn wait(&mut self) {
        let part = self.next.mul_f64(1.0 - self.rng.f64() / 2.0);
        self.next = (2 * self.next).min(self.max);
        tokio::time::sleep(part).await;
    }
}

/// What every service works with.
pub(super) struct Service {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) topic: TopicPartition,
    pub(super) monitor: Monitor,
    pub(super) backoff: Backoff,
    pub(super) clock: Clock,
}

/// Passes what a service has to say on to the driver.
pub(super) struct Sink<T> {
    events: mpsc::Sender<Event>,
    wrap: Box<dyn Fn(T) -> Event + Send + Sync>,
}

/// The driver has gone.
pub(super) struct Gone;

impl<T> Sink<T> {
    pub(super) fn new(
        events: mpsc::Sender<Event>,
        wrap: impl Fn(T) -> Event + Send + Sync + 'static,
    ) -> Self {
        Self { events, wrap: Box::new(wrap) }
    }

    async fn send(&self, item: T) -> Result<(), Gone> {
        self.events.send((self.wrap)(item)).await.map_err(|_| Gone)
    }
}

/// A follower service. After an error it goes on behind what it has passed on, in the same topic: one that takes its place is another
/// one.
pub(super) async fn follow(
    service: Service,
    mut follow: Follow,
    messages: Sink<Vec<Message>>,
    presence: Option<Presence>,
) {
    let Service { transport, topic, monitor, mut backoff, clock } = service;
    loop {
        let opening = open_follower(&*transport, &topic, follow, presence.as_ref());
        let error = match opening.await {
            Ok(mut follower) => {
                monitor.opened();
                let opened = clock.now();
                let Ok(error) = pass_on(&mut *follower, &mut follow, &messages).await else {
                    return;
                };
                tracing::debug!(%topic, %error, "follower lost");
                monitor.lost(&error);
                backoff.was_open_for(clock.now().since(opened));
                error
            }
            Err(error) => {
                tracing::debug!(%topic, %error, "cannot follow; trying again");
                monitor.failed(&error);
                error
            }
        };
        if tell_gone(&error, &follow, presence.as_ref()).await.is_err() {
            return;
        }
        backoff.wait().await;
    }
}

/// Passes on what is followed until the follower ends, and says why it did.
async fn pass_on(
    follower: &mut dyn Follower,
    follow: &mut Follow,
    messages: &Sink<Vec<Message>>,
) -> Result<TransportError, Gone> {
    loop {
        match follower.next().await {
            Ok(message) => {
                let some = with_more(message, AT_ONCE_MAX, || follower.more());
                if let Some(last) = some.last() {
                    follow.start = Start::After(last.position);
                }
                messages.send(some).await?;
            }
            Err(error) => return Ok(error),
        }
    }
}

/// A message and those behind it that are there already, so many that the driver takes them at one go.
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

/// Opens a follower. Nothing comes of one that would go on in another topic than before.
async fn open_follower(
    transport: &dyn Transport,
    topic: &TopicPartition,
    follow: Follow,
    presence: Option<&Presence>,
) -> Result<Box<dyn Follower>, TransportError> {
    let follower = transport.follower(topic, follow).await?;
    if has_read(&follow)
        && let Some(presence) = presence
        && presence.landmark.is_missing(transport, topic).await?
    {
        let cause = "another topic has taken its place";
        return Err(TransportError::new(TransportErrorKind::NotFound, topic, cause));
    }
    Ok(follower)
}

const fn has_read(follow: &Follow) -> bool {
    matches!(follow.start, Start::After(_))
}

async fn tell_gone(
    error: &TransportError,
    follow: &Follow,
    presence: Option<&Presence>,
) -> Result<(), Gone> {
    match presence {
        Some(presence) if has_read(follow) && error.kind == TransportErrorKind::NotFound => {
            presence.gone.send(()).await
        }
        _ => Ok(()),
    }
}

/// What the driver tells the consumer service.
pub(super) enum ConsumerCommand {
    /// It wants so many more deliveries from the session of this number.
    Credit { session: u64, count: usize },
    /// Acknowledge, in this session or a later one, until the broker confirms it.
    Ack(EntryId),
    /// Give back to the broker.
    HandBack(EntryId),
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

/// A consumer service. Nothing is delivered beyond the credit, so that tasks wait at the broker and not here.
pub(super) async fn consume(
    service: Service,
    subscription: String,
    commands: Mailbox<ConsumerCommand>,
    events: Sink<Consumed>,
    open: Arc<AtomicU64>,
) {
    let Service { transport, topic, monitor, mut backoff, clock } = service;
    let monitor = Arc::new(monitor);
    let mut unconfirmed = BTreeSet::new();
    let mut patience = IDLE_MIN;
    for session in 1.. {
        let consumer = match transport.consumer(&topic, &subscription).await {
            Ok(consumer) => consumer,
            Err(error) => {
                tracing::debug!(%topic, %error, "cannot consume; trying again");
                monitor.failed(&error);
                backoff.wait().await;
                continue;
            }
        };
        monitor.opened();
        let opened = clock.now();
        if events.send(Consumed::Opened(session)).await.is_err() {
            return;
        }
        let mut running = Session::new(
            session,
            consumer,
            patience,
            clock,
            Arc::clone(&open),
            Arc::clone(&monitor),
        );
        for entry in unconfirmed {
            running.ack(entry);
        }
        match running.run(&commands, &events).await {
            End::Gone => return,
            End::Stalled(backlog) => {
                tracing::info!(%topic, ?backlog, "nothing came for long, yet there is a backlog: subscribing anew");
                monitor.stalled();
                patience = (2 * patience).min(IDLE_MAX);
            }
            End::Lost(error) => {
                tracing::debug!(%topic, %error, "consumer session lost");
                monitor.lost(&error);
                patience = IDLE_MIN;
            }
        }
        unconfirmed = running.unconfirmed;
        if events.send(Consumed::Lost).await.is_err() {
            return;
        }
        backoff.was_open_for(clock.now().since(opened));
        backoff.wait().await;
    }
}

struct Session {
    session: u64,
    consumer: Box<dyn Consumer>,
    credit: usize,
    /// How long to wait for the next delivery, and since when we do. Whatever else the session does meanwhile does not count.
    patience: Duration,
    silent_since: Moment,
    clock: Clock,
    /// Entries that are known to be in the hands of some worker. The broker counts them with the backlog, and tells only how many the
    /// asking consumer holds, not the others.
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
enum End {
    Lost(TransportError),
    /// The broker has something to deliver, and does not.
    Stalled(Backlog),
    Gone,
}

impl From<TransportError> for End {
    fn from(error: TransportError) -> Self {
        Self::Lost(error)
    }
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Session {
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
            patience,
            silent_since: clock.now(),
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

    async fn run(&mut self, commands: &Mailbox<ConsumerCommand>, events: &Sink<Consumed>) -> End {
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
    ) -> Result<(), End> {
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
                self.patience = IDLE_MAX;
                self.held.extend(some.iter().map(|message| message.position.entry_id()));
                events.send(Consumed::Deliveries(some)).await?;
            }
            () = self.clock.sleep_until(self.silent_since + self.patience), if self.credit > 0 => {
                self.silent_since = self.clock.now();
                self.look_after_silence().await?;
            }
        }
        Ok(())
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
    async fn look_after_silence(&mut self) -> Result<(), End> {
        let backlog = self.consumer.backlog().await?;
        if backlog.blocked {
            tracing::warn!(
                session = self.session,
                "the broker delivers nothing, for too much is unacknowledged: raise the limits of the task topic"
            );
        }
        let held = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        let held = held.max(self.open.load(Ordering::Relaxed));
        if backlog.entries > held { Err(End::Stalled(backlog)) } else { Ok(()) }
    }

    async fn obey(&mut self, command: ConsumerCommand) -> Result<(), TransportError> {
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

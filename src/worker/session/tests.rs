//! Sessions with consumers that do only one thing.

use super::*;
use crate::captured::CapturedLog;
use crate::supervise::{ConnectionState, Connections};
use crate::worker::driver::LaneId;
use async_trait::async_trait;
use longhaul_core::task::Position;
use std::collections::VecDeque;

fn monitor(clock: Clock) -> Arc<Monitor> {
    Arc::new(Monitor::new(&Arc::new(Connections::new(clock))))
}

/// A consumer that gets these results, each at its time, and then nothing.
struct Stub {
    clock: Clock,
    results: VecDeque<(Moment, Result<Message, TransportError>)>,
    backlog: u64,
    refuses_acks: bool,
}

impl Stub {
    /// The consumer of a stalled subscription: nothing comes, whatever the backlog.
    fn stalled(clock: Clock, backlog: u64) -> Self {
        Self { clock, results: VecDeque::new(), backlog, refuses_acks: false }
    }

    fn with(mut self, at: Moment, result: Result<Message, TransportError>) -> Self {
        self.results.push_back((at, result));
        self
    }
}

#[async_trait]
impl Consumer for Stub {
    fn request(&mut self, _: usize) {}

    async fn next(&mut self) -> Result<Message, TransportError> {
        match self.results.front() {
            Some((at, _)) => self.clock.sleep_until(*at).await,
            None => std::future::pending().await,
        }
        let (_, result) = self.results.pop_front().expect("it was waited for");
        result
    }

    fn more(&mut self) -> Option<Message> {
        let now = self.clock.now();
        self.results.front().filter(|(at, result)| *at <= now && result.is_ok())?;
        self.results.pop_front()?.1.ok()
    }

    async fn backlog(&mut self) -> Result<Backlog, TransportError> {
        Ok(Backlog { entries: self.backlog, permits: 1, blocked: false })
    }

    fn acknowledge(&mut self, _: EntryId, on_ack: OnAck) {
        let refused = TransportError::new(TransportErrorKind::Unauthorized, "here", "no acks");
        on_ack.tell(if self.refuses_acks { Err(refused) } else { Ok(()) });
    }

    async fn hand_back(&mut self, _: EntryId) -> Result<(), TransportError> {
        Ok(())
    }
}

fn message(entry: u64) -> Message {
    Message::at(Position { ledger: 1, entry, batch_index: None })
}

fn session_of(consumer: Stub) -> ConsumerSession {
    let (clock, open) = (consumer.clock, Arc::default());
    ConsumerSession::new(1, Box::new(consumer), IDLE_MIN, clock, open, monitor(clock))
}

fn events() -> (Sink<Consumed>, mpsc::Receiver<WorkerEvent>) {
    let (sender, receiver) = mpsc::channel(8);
    let wrap = |event| WorkerEvent::Consumed { lane: LaneId::default(), service: 0, event };
    (Sink::new(sender, wrap), receiver)
}

fn credit(count: usize) -> Mailbox<ConsumerCommand> {
    let commands = Mailbox::new();
    commands.put(ConsumerCommand::Credit { session: 1, count });
    commands
}

/// Earlier, a worker waited in silence on a task topic that had been migrated, while tasks went to
/// the topic that had taken its place.
#[tokio::test(start_paused = true)]
async fn a_drained_topic_that_was_terminated_is_logged_and_no_outage() {
    let (log, _guard) = CapturedLog::capture();
    let clock = longhaul_memory::simulated_clock(0);
    let (events, mut receiver) = events();
    let commands = credit(1);
    let connections = Arc::new(Connections::new(clock));
    let monitor = Arc::new(Monitor::new(&connections));
    let told = TransportError::new(TransportErrorKind::Terminated, "a topic", "it was terminated");
    let drained = Stub::stalled(clock, 0).with(Moment::default(), Err(told));
    let mut session = ConsumerSession { monitor, ..session_of(drained) };
    let worker = async {
        tokio::time::sleep(IDLE_MIN / 2).await;
        commands.put(ConsumerCommand::Ack(EntryId { ledger: 0, entry: 0 }));
        receiver.recv().await
    };
    tokio::select! {
        _ = session.run(&commands, &events) => panic!("the session has ended"),
        acked = worker => assert!(acked.is_some()),
    }
    assert!(matches!(connections.state(), ConnectionState::Connected));
    let told = log.with(&["ERROR", "a topic", "scalable topic"]);
    assert_eq!(told.len(), 1, "{told:?}");
}

/// Earlier, a worker whose long tasks ended one after the other never noticed that its subscription
/// had stalled: each ack restarted the wait for the next delivery.
#[tokio::test(start_paused = true)]
async fn acks_do_not_pass_for_deliveries() {
    let clock = longhaul_memory::simulated_clock(0);
    let (events, mut receiver) = events();
    let commands = credit(1);
    let mut session = session_of(Stub::stalled(clock, 1));
    let worker = async {
        for entry in 0.. {
            tokio::time::sleep(IDLE_MIN / 2).await;
            commands.put(ConsumerCommand::Ack(EntryId { ledger: 0, entry }));
            receiver.recv().await;
        }
    };
    let end = tokio::select! {
        end = session.run(&commands, &events) => end,
        () = worker => unreachable!("it goes on for ever"),
        () = tokio::time::sleep(2 * IDLE_MIN) => panic!("nobody looked"),
    };
    assert!(matches!(end, SessionEnd::Stalled(_)));
}

/// A worker without room for a task waits for none: otherwise its sessions would be given up one
/// after the other.
#[tokio::test(start_paused = true)]
async fn who_asked_for_nothing_waits_for_nothing() {
    let clock = longhaul_memory::simulated_clock(0);
    let (events, _receiver) = events();
    let commands = Mailbox::new();
    let mut session = session_of(Stub::stalled(clock, 1));
    let end = tokio::time::timeout(2 * IDLE_MAX, session.run(&commands, &events)).await;
    assert!(end.is_err(), "it was given up");
}

/// Earlier, an idle worker beside one whose task ran for hours subscribed anew every 10 min, at
/// first every 15 s: it treated the other's task as one that the broker withheld.
#[tokio::test(start_paused = true)]
async fn what_other_workers_run_is_no_stall() {
    for (open, stalled) in [(0, true), (1, false)] {
        let clock = longhaul_memory::simulated_clock(0);
        let (events, _receiver) = events();
        let commands = credit(1);
        let known = Arc::new(AtomicU64::new(open));
        let mut session = ConsumerSession { open: known, ..session_of(Stub::stalled(clock, 1)) };
        let end = tokio::time::timeout(10 * IDLE_MIN, session.run(&commands, &events)).await;
        assert_eq!(end.is_ok(), stalled);
    }
}

/// Earlier, a refused ack was retried in session after session, and each session looked connected
/// once it was open.
#[tokio::test(start_paused = true)]
async fn a_refused_ack_is_told_until_it_is_accepted() {
    let clock = longhaul_memory::simulated_clock(0);
    let connections = Arc::new(Connections::new(clock));
    let monitor = Arc::new(Monitor::new(&connections));
    let (events, mut receiver) = events();
    for refuses in [true, true, false] {
        monitor.opened();
        let consumer = Stub { refuses_acks: refuses, ..Stub::stalled(clock, 0) };
        let seen = Arc::clone(&monitor);
        let mut session = ConsumerSession { monitor: seen, ..session_of(consumer) };
        session.ack(EntryId { ledger: 1, entry: 1 });
        let commands = Mailbox::new();
        let end = tokio::select! {
            end = session.run(&commands, &events) => Some(end),
            _ = receiver.recv() => None,
        };
        assert_eq!(matches!(end, Some(SessionEnd::Lost(_))), refuses);
        monitor.opened();
        let is_refused = matches!(connections.state(), ConnectionState::Refused { .. });
        assert_eq!(is_refused, refuses);
    }
    assert_eq!(connections.refusals(), 1);
}

/// Credit of an old session would let the broker deliver tasks without room for them; and the wait
/// begins with the credit.
#[tokio::test(start_paused = true)]
async fn credit_counts_for_its_session_and_begins_the_wait() {
    let clock = longhaul_memory::simulated_clock(0);
    let mut session = session_of(Stub::stalled(clock, 1));
    let credit = |session, count| ConsumerCommand::Credit { session, count };
    tokio::time::sleep(IDLE_MIN).await;
    assert!(session.obey(credit(2, 5)).await.is_ok());
    assert_eq!(session.credit, 0);
    let begun = clock.now();
    assert!(session.obey(credit(1, 1)).await.is_ok());
    assert_eq!((session.credit, session.silent_since), (1, begun));
    tokio::time::sleep(IDLE_MIN).await;
    assert!(session.obey(credit(1, 2)).await.is_ok());
    assert_eq!((session.credit, session.silent_since), (3, begun), "it waits already");
    let entry = EntryId { ledger: 1, entry: 1 };
    session.held.insert(entry);
    assert!(session.obey(ConsumerCommand::HandBack(entry)).await.is_ok());
    assert!(session.held.is_empty());
}

const DELIVERED: EntryId = EntryId { ledger: 1, entry: 1 };

/// How long after its one delivery, at 10 s, a session treats its subscription as stalled; `None`
/// if it does not within 2 h.
async fn stalled_after(
    is_hasty_until: Moment,
    backlog: u64,
    then: Option<ConsumerCommand>,
) -> Option<Duration> {
    let clock = longhaul_memory::simulated_clock(0);
    let (events, mut receiver) = events();
    let commands = credit(2);
    let delivered = Moment(Duration::from_secs(10));
    let consumer = Stub::stalled(clock, backlog).with(delivered, Ok(message(DELIVERED.entry)));
    let mut session = session_of(consumer);
    session.is_hasty_until = is_hasty_until;
    let worker = async {
        receiver.recv().await;
        then.into_iter().for_each(|command| commands.put(command));
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = session.run(&commands, &events) => end,
        () = worker => unreachable!("it listens for ever"),
        () = tokio::time::sleep(12 * IDLE_MAX) => return None,
    };
    assert!(matches!(end, SessionEnd::Stalled(_)));
    Some(clock.now().since(delivered))
}

/// The broker redelivers everything that a session holds when the session ends for a stall, so a
/// session with a delivery is patient. Earlier, a session that replaced a lost one was as patient:
/// where the failure had left the subscription silent, a worker with one long task kept its other
/// slots idle for 10 min.
#[tokio::test(start_paused = true)]
async fn who_was_delivered_to_waits_long_for_the_next_delivery_but_behind_a_failure() {
    for (is_hasty_until, patience) in [(Moment(IDLE_MAX), IDLE_MIN), (Moment::default(), IDLE_MAX)]
    {
        // One entry more than it holds.
        assert_eq!(stalled_after(is_hasty_until, 2, None).await, Some(patience));
        let never = stalled_after(is_hasty_until, 1, None).await;
        assert_eq!(never, None, "the backlog is what it holds");
        for gone in [ConsumerCommand::Ack(DELIVERED), ConsumerCommand::HandBack(DELIVERED)] {
            let stalled = stalled_after(is_hasty_until, 1, Some(gone)).await;
            assert_eq!(stalled, Some(patience), "it holds nothing any more");
        }
    }
}

/// Earlier, haste ended only with a delivery: hours after a failure the first delayed message
/// caused a redelivery of everything.
#[tokio::test(start_paused = true)]
async fn haste_ends_without_a_delivery() {
    let clock = longhaul_memory::simulated_clock(0);
    let mut session = session_of(Stub::stalled(clock, 1));
    session.is_hasty_until = Moment(IDLE_MAX);
    session.has_delivered = true;
    assert_eq!(session.patience(), IDLE_MIN);
    tokio::time::advance(IDLE_MAX).await;
    assert_eq!(session.patience(), IDLE_MAX);
}

/// Earlier, all messages of a client were passed on at once, whatever room the worker had: tasks
/// went back and forth for minutes between workers that could not run them.
#[tokio::test(start_paused = true)]
async fn no_more_is_passed_on_than_there_is_credit_for() {
    let clock = longhaul_memory::simulated_clock(0);
    let (events, mut receiver) = events();
    let commands = credit(3);
    let at_once = |stub: Stub, entry| stub.with(Moment::default(), Ok(message(entry)));
    let mut session = session_of((1..=10).fold(Stub::stalled(clock, 0), at_once));
    let end = tokio::time::timeout(IDLE_MIN, session.run(&commands, &events)).await;
    assert!(end.is_err(), "it goes on");
    let Some(WorkerEvent::Consumed { event: Consumed::Deliveries(some), .. }) =
        receiver.recv().await
    else {
        panic!("nothing is passed on")
    };
    assert_eq!(some.len(), 3);
    assert!(receiver.try_recv().is_err(), "more is passed on");
}

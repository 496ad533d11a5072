//! The services during outages, on the broker in memory.

use super::publishing::publish_until_lost;
use super::*;
use crate::supervise::{BACKOFF_MAX, Backoff, ConnectionState, Connections, KeptPublisher};
use crate::transport::{Batching, Follow, OnReceipt, Outgoing, Start, TopicPartition, TopicSchema};
use crate::worker::driver::LaneId;
use longhaul_memory::{Faults, Happening, Loss, MemoryBroker, MemoryTransport, Sessions};
use tokio::task::JoinSet;

const GROUP: &str = "group";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn at() -> TopicPartition {
    TopicPartition { topic: "tasks".to_owned(), partition: -1 }
}

/// A broker, a process with a connection to it, and its services.
struct ServiceBench {
    broker: MemoryBroker,
    transport: MemoryTransport,
    services: JoinSet<()>,
}

impl ServiceBench {
    fn new() -> Self {
        let broker = MemoryBroker::new(1, Faults::quiet());
        broker.create_topic(&at().topic, None, true);
        broker.create_subscription(&at(), GROUP);
        let transport = broker.connect("worker");
        Self { broker, transport, services: JoinSet::new() }
    }

    fn service(&self, at: TopicPartition) -> (SessionSupervisor, Arc<Connections>) {
        let clock = self.broker.clock();
        let connections = Arc::new(Connections::new(clock));
        let rng = fastrand::Rng::with_seed(1);
        let backoff = Backoff::of_worker(rng, Duration::from_secs(10));
        let monitor = Monitor::new(&connections);
        let transport = Arc::new(self.transport.clone());
        let service = SessionSupervisor::new(transport, at, monitor, backoff, clock);
        (service, connections)
    }

    /// Starts a consumer service. Returns the driver's end of its channels, and the state of the
    /// session.
    fn consume(
        &mut self,
    ) -> (mpsc::Receiver<WorkerEvent>, Mailbox<ConsumerCommand>, Arc<Connections>) {
        let (sender, events) = mpsc::channel(1_000);
        let sink = Sink::new(sender, |event| WorkerEvent::Consumed {
            lane: LaneId::default(),
            service: 0,
            event,
        });
        let commands = Mailbox::new();
        let (service, connections) = self.service(at());
        let group = (GROUP.to_owned(), Arc::default());
        self.services.spawn(consume(service, group, commands.clone(), sink, Arc::default()));
        (events, commands, connections)
    }

    fn publish(&mut self, mailbox: Mailbox<Publish>) -> Arc<Connections> {
        let (service, connections) = self.service(at());
        self.services.spawn(publish(service, Batching::Off, TopicSchema::None, mailbox));
        connections
    }

    /// Starts a follower service. Returns the driver's events, the mailbox for requests, and the
    /// state of the session.
    fn follow(&mut self) -> (mpsc::Receiver<WorkerEvent>, Mailbox<Moment>, Arc<Connections>) {
        let (sender, events) = mpsc::channel(1_000);
        let (lane, generation) = (LaneId::default(), 1);
        let sink =
            Sink::new(sender, move |followed| WorkerEvent::Ledger { lane, generation, followed });
        let (service, connections) = self.service(at());
        let from_start = Follow { start: Start::Earliest, compacted: false };
        let asked = Mailbox::new();
        let landmark = Some(Landmark::default());
        let follower = KeptFollower::new(service, from_start);
        self.services.spawn(follow(follower, landmark, asked.clone(), sink));
        (events, asked, connections)
    }
}

/// The follower's next event.
async fn followed(events: &mut mpsc::Receiver<WorkerEvent>) -> Option<FollowerEvent> {
    match tokio::time::timeout(MINUTE, events.recv()).await {
        Ok(Some(WorkerEvent::Ledger { followed, .. })) => Some(followed),
        _ => None,
    }
}

/// The consumer's next event. In simulated time a wait without a limit would never end.
async fn consumed(events: &mut mpsc::Receiver<WorkerEvent>) -> Consumed {
    let event = tokio::time::timeout(Duration::from_secs(3_600), events.recv()).await;
    let Ok(Some(WorkerEvent::Consumed { event, .. })) = event else { panic!("it says nothing") };
    event
}

/// Without this check, entries queued during an outage would be published after it, including
/// claims that must not run any more; no other test covered it.
#[tokio::test(start_paused = true)]
async fn what_has_expired_is_not_handed_over_after_an_outage() {
    let mut bench = ServiceBench::new();
    let mailbox = Mailbox::new();
    bench.broker.restart(Duration::from_secs(20), false, Loss::Error);
    bench.publish(mailbox.clone());
    let mut receipts = Vec::new();
    for (key, seconds) in [("claim", Some(10)), ("outcome", None), ("heartbeat", Some(60))] {
        let (on_receipt, answer) = OnReceipt::awaited();
        let expires =
            seconds.map(|seconds| bench.broker.clock().now() + Duration::from_secs(seconds));
        let message = Outgoing { key: Some(key.to_owned()), ..Outgoing::default() };
        mailbox.put(Publish { message, on_receipt, expires });
        receipts.push(answer);
    }
    let mut stored = Vec::new();
    for answer in receipts {
        stored.push(answer.await.is_ok());
    }
    assert_eq!(stored, [false, true, true]);
    let keys: Vec<_> =
        bench.broker.full_log(&at()).into_iter().filter_map(|message| message.key).collect();
    assert_eq!(keys, ["outcome", "heartbeat"]);
}

/// Without a repetition, an ack whose session ended before its receipt would be lost; no other test
/// covered it, because the entry is redelivered to some worker.
#[tokio::test(start_paused = true)]
async fn an_ack_without_a_receipt_is_repeated_in_the_next_session() {
    let mut bench = ServiceBench::new();
    let entry = bench.broker.publish(&at(), Outgoing::default()).entry_id();
    let (mut events, commands, _) = bench.consume();
    bench.broker.lose_acks(&at(), 1);
    let mut told = Vec::new();
    while !told.contains(&"acked") {
        // In simulated time the test would wait for ever without a limit.
        let event = tokio::time::timeout(Duration::from_secs(60), events.recv()).await;
        let Ok(Some(WorkerEvent::Consumed { event, .. })) = event else { panic!("only {told:?}") };
        told.push(match event {
            Consumed::Opened(session) => {
                commands.put(ConsumerCommand::Credit { session, count: 1 });
                "opened"
            }
            Consumed::Deliveries(_) => "delivered",
            Consumed::Lost => "lost",
            Consumed::Acked(entries) if entries == [entry] => "acked",
            Consumed::Acked(_) => "acked another",
        });
        if told == ["opened", "delivered"] {
            commands.put(ConsumerCommand::Ack(entry));
        }
        assert!(told.len() < 20, "{told:?}");
    }
    assert!(told.starts_with(&["opened", "delivered", "lost", "opened"]), "{told:?}");
    assert!(bench.broker.is_acked(&at(), GROUP, entry));
}

/// A session that opens and then fails at once must not be retried at full speed; no other test
/// covered the growing waits.
#[tokio::test(start_paused = true)]
async fn a_session_that_fails_at_once_is_tried_ever_more_rarely() {
    let mut bench = ServiceBench::new();
    bench.broker.publish_undecodable(&at());
    let (mut events, commands, _) = bench.consume();
    let mut opened = 0;
    while bench.broker.clock().now().0 < MINUTE
        && let Some(WorkerEvent::Consumed { event, .. }) = events.recv().await
    {
        if let Consumed::Opened(session) = event {
            commands.put(ConsumerCommand::Credit { session, count: 1 });
            opened += 1;
        }
    }
    // Waits that double from 100 ms to 5 s, reduced by up to a half each, and then waits of 2.5 s
    // to 5 s.
    assert!((12..=32).contains(&opened), "opened {opened} times in a minute");
}

/// Lost and stalled sessions are counted, and appear in the worker's connection state.
#[tokio::test(start_paused = true)]
async fn a_lost_session_is_counted_and_a_stalled_one_apart_from_it() {
    let mut bench = ServiceBench::new();
    let (mut events, commands, connections) = bench.consume();
    let counts = || (connections.lost(), connections.stalled());
    assert!(matches!(consumed(&mut events).await, Consumed::Opened(1)));
    commands.put(ConsumerCommand::Credit { session: 1, count: 1 });
    bench.broker.restart(Duration::from_secs(20), false, Loss::Error);
    assert!(matches!(consumed(&mut events).await, Consumed::Lost));
    assert_eq!(counts(), (1, 0));
    assert!(matches!(connections.state(), ConnectionState::Reconnecting { .. }));
    let Consumed::Opened(session) = consumed(&mut events).await else { panic!("not opened") };
    assert!(matches!(connections.state(), ConnectionState::Connected));
    commands.put(ConsumerCommand::Credit { session, count: 2 });
    bench.broker.publish(&at(), Outgoing::default());
    assert!(matches!(consumed(&mut events).await, Consumed::Deliveries(_)));
    // After a failure it is impatient, even if one session after the other falls silent.
    for stalls in 1..=2 {
        bench.broker.stall_subscription(&at(), GROUP);
        bench.broker.publish(&at(), Outgoing::default());
        let stalled = bench.broker.clock().now();
        assert!(matches!(consumed(&mut events).await, Consumed::Lost));
        assert!(bench.broker.clock().now().since(stalled) < MINUTE);
        assert_eq!(counts(), (1, stalls));
        assert!(matches!(connections.state(), ConnectionState::Connected), "it is no outage");
        let Consumed::Opened(session) = consumed(&mut events).await else { panic!("not opened") };
        commands.put(ConsumerCommand::Credit { session, count: 5 });
        assert!(matches!(consumed(&mut events).await, Consumed::Deliveries(_)));
    }
}

/// The grown waits of one outage must not apply to the next one.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_open_for_long_is_opened_again_at_once() {
    let mut bench = ServiceBench::new();
    bench.broker.restart(MINUTE, false, Loss::Error);
    let (mut events, commands, _) = bench.consume();
    let Consumed::Opened(session) = consumed(&mut events).await else { panic!("not opened") };
    commands.put(ConsumerCommand::Credit { session, count: 1 });
    tokio::time::sleep(MINUTE).await;
    bench.transport.lose(Sessions::Consumers, Loss::Error);
    let lost = bench.broker.clock().now();
    assert!(matches!(consumed(&mut events).await, Consumed::Lost));
    assert!(matches!(consumed(&mut events).await, Consumed::Opened(_)));
    // The last wait in the outage was 2.5 s to 5 s.
    let waited = bench.broker.clock().now().since(lost);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

/// A worker that cannot open its sessions must not look connected; no other test covered it.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_opened_is_told() {
    let mut bench = ServiceBench::new();
    bench.broker.restart(MINUTE, false, Loss::Error);
    let (_events, _commands, consumer) = bench.consume();
    let (_events, _, follower) = bench.follow();
    let publisher = bench.publish(Mailbox::new());
    let all = [consumer, follower, publisher];
    tokio::time::sleep(SECOND).await;
    for (index, part) in all.iter().enumerate() {
        let state = part.state();
        assert!(matches!(state, ConnectionState::Reconnecting { .. }), "{index}: {state:?}");
        assert_eq!(part.lost(), 0, "it was never open");
    }
    tokio::time::sleep(MINUTE + BACKOFF_MAX).await;
    for part in all {
        assert!(matches!(part.state(), ConnectionState::Connected));
    }
}

/// The grown waits of one outage must not apply to the next one, for publishers and followers
/// either; no other test covered it.
#[tokio::test(start_paused = true)]
async fn publishers_and_followers_that_were_open_for_long_are_opened_again_at_once() {
    let mut bench = ServiceBench::new();
    bench.broker.restart(MINUTE, false, Loss::Error);
    let (_events, _, follower) = bench.follow();
    let publisher = bench.publish(Mailbox::new());
    tokio::time::sleep(2 * MINUTE).await;
    bench.transport.lose(Sessions::All, Loss::Error);
    // The last wait in the outage was 2.5 s to 5 s.
    tokio::time::sleep(SECOND).await;
    for part in [follower, publisher] {
        assert_eq!(part.lost(), 1);
        assert!(matches!(part.state(), ConnectionState::Connected));
    }
}

/// A follower that cannot be opened must not be retried at full speed; no other test covered it.
#[tokio::test(start_paused = true)]
async fn a_follower_is_opened_ever_more_rarely_in_an_outage() {
    let mut bench = ServiceBench::new();
    bench.broker.restart(MINUTE, false, Loss::Error);
    let (_events, ..) = bench.follow();
    tokio::time::sleep(MINUTE).await;
    let is_try = |what: &Happening| matches!(what, Happening::Followed { .. });
    let tries = bench.broker.with_history(|history| {
        history.events().iter().filter(|event| is_try(&event.what)).count()
    });
    // Waits that double from 100 ms to 5 s, reduced by up to a half each, and then waits of 2.5 s
    // to 5 s.
    assert!((12..=32).contains(&tries), "{tries} tries in a minute");
}

/// A follower of a deleted topic continues behind the last entry read, and would treat later
/// entries as the whole topic.
#[tokio::test(start_paused = true)]
async fn a_followed_topic_that_has_gone_is_told_for_as_long_as_anybody_listens() {
    let mut bench = ServiceBench::new();
    let (mut events, ..) = bench.follow();
    bench.broker.publish(&at(), Outgoing::default());
    assert!(matches!(followed(&mut events).await, Some(FollowerEvent::Messages(_))));
    bench.broker.delete_topic(&at().topic, Loss::Error);
    for _ in 0..2 {
        assert!(matches!(followed(&mut events).await, Some(FollowerEvent::Gone)));
    }
    drop(events);
    let end = tokio::time::timeout(MINUTE, bench.services.join_next()).await;
    assert!(end.is_ok(), "it goes on for nobody");
}

/// The keeper of the metadata topic must know whether it has read the topic to its end.
#[tokio::test(start_paused = true)]
async fn a_follower_says_where_its_topic_ends_when_it_is_asked() {
    let mut bench = ServiceBench::new();
    let (mut events, asked, _) = bench.follow();
    asked.put(Moment(SECOND));
    let end = followed(&mut events).await;
    assert!(matches!(end, Some(FollowerEvent::End(Moment(SECOND), None))), "nothing stands there");
    bench.broker.publish(&at(), Outgoing::default());
    let Some(FollowerEvent::Messages(messages)) = followed(&mut events).await else {
        panic!("it is not followed any more")
    };
    asked.put(Moment(MINUTE));
    let Some(FollowerEvent::End(at, end)) = followed(&mut events).await else {
        panic!("no answer")
    };
    assert_eq!((at, end), (Moment(MINUTE), messages.last().map(|last| last.position)));
}

/// Earlier, a follower of a register or of the metadata topic that received nothing more over an
/// open connection waited for ever; that of a ledger waited until its worker gave up.
#[tokio::test(start_paused = true)]
async fn a_follower_that_falls_silent_is_opened_anew() {
    let mut bench = ServiceBench::new();
    let (mut events, _, connections) = bench.follow();
    for round in 1..=2 {
        bench.broker.publish(&at(), Outgoing::default());
        assert!(matches!(followed(&mut events).await, Some(FollowerEvent::Messages(_))));
        // The topic is empty: silence is no sign.
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(connections.stalled(), round - 1);
        bench.broker.stall_followers(&at());
        bench.broker.publish(&at(), Outgoing::default());
        tokio::time::sleep(2 * MINUTE).await;
        assert!(matches!(followed(&mut events).await, Some(FollowerEvent::Messages(_))));
        assert_eq!((connections.stalled(), connections.lost()), (round, 0));
        assert!(matches!(connections.state(), ConnectionState::Connected), "it is no outage");
    }
}

/// A view that has lost messages is read only as far back as the log does not go.
#[tokio::test(start_paused = true)]
async fn a_view_that_is_not_trusted_is_followed_by_the_log_from_where_that_begins() {
    let bench = ServiceBench::new();
    bench.broker.create_topic("view", None, true);
    let at = TopicPartition { topic: "view".to_owned(), partition: -1 };
    let publish = |key: &str| {
        let (key, payload) = (Some(key.to_owned()), "x".into());
        bench.broker.publish(&at, Outgoing { key, payload, ..Outgoing::default() });
    };
    let follow = || {
        let (service, _) = bench.service(at.clone());
        let from_start = Follow { start: Start::Earliest, compacted: true };
        KeptFollower::new(service, from_start).distrusting_view()
    };
    ["old", "kept"].into_iter().for_each(publish);
    bench.broker.compact(&at);
    bench.broker.trim(&at);
    // The log has nothing: all of the view is needed.
    let mut follower = follow();
    assert_eq!(keys(&mut follower, 2).await, ["old", "kept"]);
    ["lost", "gone"].into_iter().for_each(publish);
    bench.broker.compact_forgetting(&at, 2);
    publish("new");
    assert_eq!(bench.broker.view(&at, true).len(), 3, "two are lost");
    assert_eq!(keys(&mut follow(), 5).await, ["old", "kept", "lost", "gone", "new"]);
    // One that is opened again goes on in the log.
    let mut follower = follow();
    assert_eq!(keys(&mut follower, 3).await, ["old", "kept", "lost"]);
    bench.transport.lose(Sessions::All, Loss::Error);
    assert_eq!(keys(&mut follower, 2).await, ["gone", "new"]);
    // The log is trimmed after it was looked at: the view has what is missing there.
    let mut follower = follow();
    assert_eq!(keys(&mut follower, 1).await, ["old"]);
    publish("lost");
    bench.broker.compact(&at);
    bench.broker.trim(&at);
    publish("newest");
    assert_eq!(keys(&mut follower, 4).await, ["kept", "new", "lost", "newest"]);
}

/// The keys of the next messages.
async fn keys(follower: &mut KeptFollower, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let next = tokio::time::timeout(MINUTE, follower.next()).await.expect("more messages");
        // After an error it goes on with the next session.
        let Ok(next) = next else { continue };
        keys.extend(next.key);
        if keys.len() < count
            && let Some(more) = follower.more()
        {
            keys.extend(more.key);
        }
    }
    keys
}

/// A follower that has read nothing of a topic that does not exist yet waits for it.
#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_there_yet_has_not_gone() {
    let mut bench = ServiceBench::new();
    bench.broker.delete_topic(&at().topic, Loss::Error);
    let (mut events, _, follower) = bench.follow();
    assert!(tokio::time::timeout(MINUTE, events.recv()).await.is_err(), "it is told");
    assert!(!matches!(follower.state(), ConnectionState::Connected));
}

/// An entry that expires at this very moment is still published: it expires after it.
#[tokio::test(start_paused = true)]
async fn what_expires_now_is_still_handed_over() {
    let bench = ServiceBench::new();
    let clock = bench.broker.clock();
    let ((service, _), mailbox) = (bench.service(at()), Mailbox::new());
    let mut publisher = KeptPublisher::new(service, Batching::Off, TopicSchema::None);
    assert!(publisher.open().await.is_ok());
    let now = clock.now();
    for (key, expires) in [("past", now - SECOND), ("now", now), ("future", now + SECOND)] {
        let message = Outgoing { key: Some(key.to_owned()), ..Outgoing::default() };
        let on_receipt = OnReceipt::ignored();
        mailbox.put(Publish { message, on_receipt, expires: Some(expires) });
    }
    let publishing = publish_until_lost(&mut publisher, &mailbox, &clock);
    assert!(tokio::time::timeout(SECOND, publishing).await.is_err(), "it was lost");
    let keys: Vec<_> =
        bench.broker.full_log(&at()).into_iter().filter_map(|message| message.key).collect();
    assert_eq!(keys, ["now", "future"]);
}

//! Limits that hold over all workers of a queue, with one worker and with several.

use super::*;
use crate::client::Client;
use longhaul_core::protocol::register::{
    DocumentName, Gate, GateKind, RegisterEntry, RegisterKey, Stamp, Ticket,
};
use longhaul_core::settings::{Limit, QueueSettings, Rate};

/// The running attempts by limit key, and the start of each attempt.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    running: std::collections::BTreeMap<String, usize>,
    most: std::collections::BTreeMap<String, usize>,
    all: usize,
    most_of_all: usize,
    began_ms: Vec<u64>,
    keys: Vec<String>,
}

impl Gauge {
    fn with<T>(&self, look: impl FnOnce(&mut Counts) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self, key: &str, now_ms: u64) {
        self.with(|counts| {
            let running = counts.running.entry(key.to_owned()).or_default();
            *running += 1;
            let most = counts.most.entry(key.to_owned()).or_default();
            *most = (*most).max(*running);
            counts.all += 1;
            counts.most_of_all = counts.most_of_all.max(counts.all);
            counts.began_ms.push(now_ms);
            counts.keys.push(key.to_owned());
        });
    }

    fn end(&self, key: &str) {
        self.with(|counts| {
            *counts.running.entry(key.to_owned()).or_default() -= 1;
            counts.all -= 1;
        });
    }

    fn begun(&self) -> usize {
        self.with(|counts| counts.began_ms.len())
    }
}

/// Ends the count of an attempt, also when the attempt is dropped.
struct Begun(Gauge, String);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.end(&self.1);
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

fn config(concurrency: usize) -> WorkerConfig {
    WorkerConfig { concurrency, ..brisk() }
}

/// A worker of this name, beside another one, whose attempts take this time and are counted.
fn counting(
    beside: Option<&Bench>,
    name: &'static str,
    config: WorkerConfig,
    partitions: Option<u32>,
    (gauge, takes): (&Gauge, Duration),
) -> Bench {
    let gauge = gauge.clone();
    let clock: Arc<Mutex<Option<Clock>>> = Arc::default();
    let of_bench = Arc::clone(&clock);
    let body = move |context: TaskContext| {
        let key = context.properties().get("LIMIT_KEY").cloned().unwrap_or_default();
        let now_ms = of_bench.lock().unwrap().map_or(0, |clock| clock.wall_ms());
        gauge.begin(&key, now_ms);
        let begun = Begun(gauge.clone(), key);
        async move {
            tokio::time::sleep(takes).await;
            drop(begun);
            Ok(Text("done".to_owned()))
        }
    };
    let bench = match beside {
        None => Bench::new(config, partitions, body),
        Some(other) => Bench::on(other.broker.clone(), name, config, partitions, body),
    };
    *clock.lock().unwrap() = Some(bench.broker.clock());
    bench
}

/// A worker whose attempts take this time, and their counts.
fn counted(concurrency: usize, takes: Duration) -> (Bench, Gauge) {
    let gauge = Gauge::default();
    (counting(None, "", config(concurrency), None, (&gauge, takes)), gauge)
}

fn in_flight(max: u32) -> QueueSettings {
    let mut settings = QueueSettings::default();
    settings.limit.max_in_flight = Some(max);
    settings
}

fn rate(tokens: u32, per: Duration) -> Limit {
    Limit { max_in_flight: None, rate: Some(Rate::new(tokens, per)) }
}

impl Bench {
    /// Writes settings to the register, as a client does.
    pub(super) fn settle(&self, version: u64, settings: &QueueSettings) {
        let content = settings.to_document().unwrap();
        self.write_document(DocumentName::queue_settings(), version, version, content);
    }

    fn submit_limited(&self, partition: i32, key: &str) -> TaskId {
        let properties: &[_] = if key.is_empty() { &[] } else { &[("LIMIT_KEY", key)] };
        self.submit_to(&self.names.task, partition, properties)
    }

    fn submit_all(&self, count: usize, key: &str) -> Vec<TaskId> {
        (0..count).map(|_| self.submit_limited(-1, key)).collect()
    }

    fn tickets(&self) -> usize {
        self.driver.queues[0].core.register().gates().standing_tickets().count()
    }

    fn ticket_entries(&self) -> usize {
        let log = self.broker.full_log(&self.register());
        let is_ticket = |message: &&Message| {
            message.key.as_deref().is_some_and(|key| key.starts_with("ticket/"))
        };
        log.iter().filter(is_ticket).count()
    }

    fn is_over(&self, partition: i32, task: TaskId) -> bool {
        self.driver.lanes[partition].core.machine().fold(task).phase.is_terminal()
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_limits_has_no_tickets() {
    let (mut bench, gauge) = counted(4, SECOND);
    bench.settle(1, &QueueSettings::default());
    bench.submit_all(8, "a");
    bench.run_for(10 * SECOND).await;
    assert_eq!((gauge.begun(), bench.ticket_entries()), (8, 0));
    assert_eq!(gauge.with(|counts| counts.most_of_all), 4);
}

#[tokio::test(start_paused = true)]
async fn no_more_run_at_once_than_the_queue_allows_whatever_its_workers_and_partitions() {
    let gauge = Gauge::default();
    let mut one = counting(None, "", config(4), Some(3), (&gauge, SECOND));
    let mut other = counting(Some(&one), "other", config(4), Some(3), (&gauge, SECOND));
    one.settle(1, &in_flight(3));
    tokio::join!(one.run_for(5 * SECOND), other.run_for(5 * SECOND));
    let tasks: Vec<_> = (0..30).map(|number| one.submit_limited(number % 3, "")).collect();
    tokio::join!(one.run_for(8 * SECOND), other.run_for(8 * SECOND));
    assert_eq!(gauge.with(|counts| counts.most_of_all), 3, "the limit is used");
    assert!(gauge.begun() >= 18, "{}", gauge.begun());
    tokio::join!(one.run_for(20 * SECOND), other.run_for(20 * SECOND));
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (30, 3));
    assert!(tasks.iter().all(|task| one.is_over(task.partition, *task)));
    assert_eq!((one.tickets(), other.tickets()), (0, 0), "all were given back");
}

/// Otherwise all slots of a worker would wait for tasks of one key, and tasks of other keys would
/// wait behind them.
#[tokio::test(start_paused = true)]
async fn a_key_at_its_limit_holds_up_no_other_key() {
    let (mut bench, gauge) = counted(4, 10 * SECOND);
    let mut settings = QueueSettings::default();
    settings.per_key.max_in_flight = Some(1);
    settings.keys.insert("wide".to_owned(), Limit { max_in_flight: Some(2), rate: None });
    bench.settle(1, &settings);
    bench.submit_all(20, "a");
    for key in ["b", "wide", "wide", "wide"] {
        bench.submit_limited(-1, key);
    }
    bench.run_for(8 * SECOND).await;
    let mut begun = gauge.with(|counts| counts.keys.clone());
    begun.sort_unstable();
    assert_eq!(begun, ["a", "b", "wide", "wide"]);
    // A task without a limit key is under no limit of keys.
    bench.run_for(300 * SECOND).await;
    assert_eq!(gauge.begun(), 24);
    let most = gauge.with(|counts| counts.most.clone());
    let most: Vec<_> = most.iter().map(|(key, most)| (key.as_str(), *most)).collect();
    assert_eq!(most, [("a", 1), ("b", 1), ("wide", 2)]);
    assert_eq!(bench.tickets(), 0);
}

/// The most starts within any window of this length.
fn most_within(began_ms: &[u64], window_ms: u64) -> usize {
    let count =
        |from: &u64| began_ms.iter().filter(|at| (*from..=from + window_ms).contains(at)).count();
    began_ms.iter().map(count).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn no_more_begin_in_a_time_than_the_bucket_has() {
    let gauge = Gauge::default();
    let takes = 10 * MILLISECOND;
    let mut one = counting(None, "", config(4), Some(2), (&gauge, takes));
    let mut other = counting(Some(&one), "other", config(4), Some(2), (&gauge, takes));
    let mut settings = QueueSettings::default();
    settings.limit = rate(5, 5 * SECOND);
    one.settle(1, &settings);
    tokio::join!(one.run_for(5 * SECOND), other.run_for(5 * SECOND));
    for number in 0..20 {
        one.submit_limited(number % 2, "");
    }
    tokio::join!(one.run_for(SECOND / 2), other.run_for(SECOND / 2));
    assert_eq!(gauge.begun(), 5, "the burst");
    tokio::join!(one.run_for(25 * SECOND), other.run_for(25 * SECOND));
    let began_ms = gauge.with(|counts| counts.began_ms.clone());
    assert_eq!(began_ms.len(), 20);
    for window_ms in [100, 1_000, 2_000, 5_000, 10_000] {
        let most = most_within(&began_ms, window_ms);
        let allowed = 5 + usize::try_from(window_ms).unwrap() / 1_000;
        assert!(most <= allowed + 1, "{most} within {window_ms} ms");
    }
    let took = began_ms.iter().max().unwrap() - began_ms.iter().min().unwrap();
    assert!((14_900..16_500).contains(&took), "{took} ms: the rate is used");
    // The last token is forgotten when the bucket is full again.
    tokio::join!(one.run_for(10 * SECOND), other.run_for(10 * SECOND));
    assert_eq!(one.tickets(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_begins_nothing_and_goes_on_when_it_is_resumed() {
    let (mut bench, gauge) = counted(2, 5 * SECOND);
    bench.submit_limited(-1, "");
    bench.run_for(3 * SECOND).await;
    let client = Client::on_transport(Arc::new(bench.broker.connect("client")));
    let queue = client.queue("tasks");
    assert_eq!(queue.settings().await.unwrap().version, 0);
    assert_eq!(queue.pause().await.unwrap(), 1);
    assert_eq!(queue.pause().await.unwrap(), 1, "it is paused already");
    bench.run_for(SECOND / 2).await;
    let tasks = bench.submit_all(5, "");
    bench.run_for(30 * SECOND).await;
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.all)), (1, 0), "what ran has ended");
    assert_eq!(bench.unfinished(), 5);
    assert_eq!(queue.resume().await.unwrap(), 2);
    bench.run_for(SECOND).await;
    assert_eq!(gauge.begun(), 3, "within a second");
    bench.run_for(20 * SECOND).await;
    assert!(tasks.iter().all(|task| bench.is_over(-1, *task)));
}

#[tokio::test(start_paused = true)]
async fn somebody_who_has_read_an_older_version_changes_nothing() {
    let bench = counting(None, "", config(2), None, (&Gauge::default(), SECOND));
    let client = |name| Client::on_transport(Arc::new(bench.broker.connect(name)));
    let (one, other) = (client("one").queue("tasks"), client("other").queue("tasks"));
    let stands = one.settings().await.unwrap();
    let change = |settings: &mut QueueSettings| settings.limit.max_in_flight = Some(7);
    assert_eq!(other.update(stands.version, change).await.unwrap(), 1);
    let refused = one.update(stands.version, |settings| settings.paused = true).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, crate::client::ActionError::VersionConflict { current: 1 }), "{error}");
    let invalid = one.update(1, |settings| settings.limit.max_in_flight = Some(0)).await;
    let error = invalid.unwrap_err().to_string();
    assert!(error.contains("max_in_flight: must be at least 1"), "{error}");
    assert_eq!(one.resume().await.unwrap(), 1);
    assert_eq!(one.pause().await.unwrap(), 2);
    let stands = other.settings().await.unwrap();
    assert_eq!((stands.version, stands.settings.limit.max_in_flight), (2, Some(7)));
    assert!(stands.settings.paused);
}

/// The worker that holds all tickets dies. The others give its tickets back when it is silent, and
/// go on.
#[tokio::test(start_paused = true)]
async fn the_tickets_of_a_worker_that_dies_are_given_back() {
    let (lost, gauge) = (Gauge::default(), Gauge::default());
    let mut dies = counting(None, "", config(4), None, (&lost, 1_000 * SECOND));
    let mut settings = in_flight(2);
    settings.limit.rate = Some(Rate::new(4, 2 * SECOND));
    dies.settle(1, &settings);
    dies.submit_all(8, "");
    dies.run_for(5 * SECOND).await;
    assert_eq!(lost.begun(), 2);
    let mut other = counting(Some(&dies), "other", config(4), None, (&gauge, SECOND));
    tokio::join!(dies.run_for(4 * SECOND), other.run_for(4 * SECOND));
    assert_eq!(gauge.begun(), 0, "what stands counts");
    dies.transport.freeze();
    drop(dies);
    other.run_for(60 * SECOND).await;
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (8, 2));
    assert_eq!(other.tickets(), 0);
}

/// Regression: a worker that received no more entries of its ledger treated a worker that had
/// started since as silent, and gave its tickets back. More tasks ran at once than the limit
/// allows.
#[tokio::test(start_paused = true)]
async fn who_does_not_hear_of_a_worker_gives_none_of_its_tickets_back() {
    let gauge = Gauge::default();
    let patient = || WorkerConfig { self_fence: 60 * SECOND, ..config(4) };
    let mut deaf = counting(None, "", patient(), None, (&gauge, 8 * SECOND));
    deaf.settle(1, &in_flight(1));
    deaf.run_for(5 * SECOND).await;
    deaf.broker.stall_followers(&deaf.ledger());
    let mut young = counting(Some(&deaf), "young", patient(), None, (&gauge, 8 * SECOND));
    // It asks the deaf one what it knows, and waits for two seconds.
    tokio::join!(deaf.run_for(3 * SECOND), young.run_for(3 * SECOND));
    deaf.submit_all(6, "");
    tokio::join!(deaf.run_for(8 * SECOND), young.run_for(8 * SECOND));
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (1, 1));
    tokio::join!(deaf.run_for(90 * SECOND), young.run_for(90 * SECOND));
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_ticket_goes_on_when_the_limit_is_raised_or_gone() {
    let (mut bench, gauge) = counted(8, 100 * SECOND);
    bench.settle(1, &in_flight(1));
    bench.submit_all(6, "");
    bench.run_for(5 * SECOND).await;
    assert_eq!(gauge.begun(), 1);
    bench.settle(2, &in_flight(3));
    bench.run_for(SECOND).await;
    assert_eq!(gauge.begun(), 3);
    bench.settle(3, &in_flight(1));
    bench.run_for(5 * SECOND).await;
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.all)), (3, 3), "what runs goes on");
    bench.settle(4, &QueueSettings::default());
    bench.run_for(SECOND).await;
    assert_eq!(gauge.begun(), 6);
    bench.run_for(110 * SECOND).await;
    assert_eq!(bench.tickets(), 0);
}

/// Its settings are gone with the register: no task waits for a ticket that cannot be granted.
#[tokio::test(start_paused = true)]
async fn a_register_that_is_replaced_has_no_limits() {
    let (mut bench, gauge) = counted(4, 20 * SECOND);
    bench.settle(1, &in_flight(1));
    bench.submit_all(3, "");
    bench.run_for(5 * SECOND).await;
    assert_eq!(gauge.begun(), 1);
    bench.broker.replace_topic(&bench.names.register.clone(), longhaul_memory::Loss::Error);
    bench.run_for(10 * SECOND).await;
    assert_eq!(gauge.begun(), 3);
    // Limits that are set again count from then on.
    bench.settle(1, &in_flight(1));
    bench.run_for(30 * SECOND).await;
    bench.submit_limited(-1, "");
    bench.submit_limited(-1, "");
    bench.run_for(5 * SECOND).await;
    assert_eq!(gauge.begun(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_while_it_waits_leaves_the_line() {
    let (mut bench, gauge) = counted(4, 30 * SECOND);
    bench.settle(1, &in_flight(1));
    let first = bench.submit_limited(-1, "");
    bench.run_for(3 * SECOND).await;
    let cancelled = bench.submit_limited(-1, "");
    bench.run_for(3 * SECOND).await;
    let wall_ms = bench.broker.clock().wall_ms();
    let expires = bench.submit(&[("EXPIRES_AT", &(wall_ms + 8_000).to_string())]);
    let last = bench.submit_limited(-1, "");
    bench.run_for(3 * SECOND).await;
    assert_eq!((bench.tickets(), gauge.begun()), (4, 1));
    bench.write(&Entry::Cancel(cancelled));
    bench.run_for(10 * SECOND).await;
    assert!(bench.is_over(-1, cancelled) && bench.is_over(-1, expires));
    assert_eq!((bench.tickets(), bench.is_over(-1, first)), (2, false));
    bench.run_for(60 * SECOND).await;
    assert!(bench.is_over(-1, last));
    assert_eq!((bench.tickets(), gauge.begun()), (0, 2));
}

/// A ticket that was not stored, or whose fate is unknown, is taken again, and none is left over.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_is_lost_is_taken_again() {
    use longhaul_memory::PublishFate;
    for fate in [PublishFate::Lost, PublishFate::ReceiptLost, PublishFate::Refused] {
        let (mut bench, gauge) = counted(4, SECOND);
        bench.settle(1, &in_flight(1));
        bench.run_for(SECOND).await;
        bench.broker.next_publish(&bench.register(), fate);
        bench.submit_limited(-1, "");
        bench.run_for(20 * SECOND).await;
        assert_eq!(gauge.begun(), 1, "{fate:?}");
        // The entry that gives the ticket back is lost, too.
        bench.submit_limited(-1, "");
        bench.run_for(SECOND / 2).await;
        bench.broker.next_publish(&bench.register(), fate);
        bench.run_for(20 * SECOND).await;
        assert_eq!((gauge.begun(), bench.tickets()), (2, 0), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_back_what_waits_and_what_has_run() {
    let (mut bench, gauge) = counted(4, 100 * SECOND);
    bench.settle(1, &in_flight(2));
    bench.submit_all(4, "");
    bench.run_for(3 * SECOND).await;
    assert_eq!((gauge.begun(), bench.tickets()), (2, 4));
    bench.drain_for(5 * SECOND);
    bench.run_for(3 * SECOND).await;
    assert_eq!(bench.tickets(), 2, "what waits is given back at once");
    let mut next = counting(Some(&bench), "next", config(4), None, (&gauge, SECOND));
    tokio::join!(bench.run_for(10 * SECOND), next.run_for(10 * SECOND));
    assert!(bench.ended);
    drop(bench);
    next.run_for(20 * SECOND).await;
    assert_eq!((gauge.begun(), next.tickets()), (6, 0));
    assert_eq!(gauge.with(|counts| counts.most_of_all), 2);
}

/// Attempts outlive a self-fence of their worker, and so do their tickets.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_outlives_a_self_fence_counts() {
    let (mut bench, gauge) = counted(4, 40 * SECOND);
    bench.settle(1, &in_flight(2));
    bench.submit_all(4, "");
    bench.run_for(5 * SECOND).await;
    bench.transport.freeze();
    bench.run_for(10 * SECOND).await;
    bench.transport.thaw();
    bench.run_for(15 * SECOND).await;
    assert_eq!(bench.driver.stats.read().self_fenced, 1);
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.all)), (2, 2));
    bench.run_for(90 * SECOND).await;
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (4, 2));
    assert_eq!(bench.tickets(), 0);
}

/// Another worker treated this one as dead and has given its tickets back. This one takes new ones
/// as soon as it knows.
#[tokio::test(start_paused = true)]
async fn a_running_attempt_whose_ticket_was_given_back_takes_another_one() {
    let (mut bench, gauge) = counted(4, 20 * SECOND);
    bench.settle(1, &in_flight(1));
    bench.submit_limited(-1, "");
    bench.run_for(3 * SECOND).await;
    let gates = bench.driver.queues[0].core.register().gates();
    let ticket = gates.standing_tickets().next().unwrap().0.clone();
    bench.write_to_register(&RegisterEntry::Tombstone(RegisterKey::Ticket(ticket)));
    bench.run_for(SECOND).await;
    assert_eq!(bench.tickets(), 1);
    bench.submit_limited(-1, "");
    bench.run_for(5 * SECOND).await;
    assert_eq!(gauge.begun(), 1);
    bench.run_for(60 * SECOND).await;
    assert_eq!((gauge.begun(), bench.tickets()), (2, 0));
}

/// A failed attempt gives its tickets back, and the next attempt takes new ones.
#[tokio::test(start_paused = true)]
async fn each_attempt_takes_its_own_tickets() {
    let mut bench = Bench::new(config(4), None, |context| async move {
        tokio::time::sleep(SECOND).await;
        if context.attempt() < 3 {
            return Err(TaskError::retry_after(5 * SECOND, "again"));
        }
        Ok(Text("done".to_owned()))
    });
    let mut settings = in_flight(1);
    settings.limit.rate = Some(Rate::new(10, 10 * SECOND));
    settings.per_key.max_in_flight = Some(1);
    bench.settle(1, &settings);
    let task = bench.submit_limited(-1, "k");
    bench.run_for(4 * SECOND).await;
    let gate = Gate { kind: GateKind::Slots, key: None };
    assert_eq!(bench.driver.queues[0].core.register().gates().counts(&gate), (0, 0));
    bench.run_for(60 * SECOND).await;
    assert!(bench.is_over(-1, task));
    assert_eq!((bench.tickets(), bench.ticket_entries()), (0, 18));
}

#[tokio::test(start_paused = true)]
async fn the_levels_of_a_queue_share_its_limits() {
    let (mut bench, gauge) = counted(4, SECOND);
    let levels = crate::worker::shares::Levels::strict();
    bench.driver.shares = Shares::new(4);
    bench.driver.shares.add(levels.of(longhaul_core::task::Priority::Normal));
    bench.driver.shares.add_lane(0);
    let none = crate::topics::TopicOverrides::default();
    let high = longhaul_core::task::Priority::High;
    let names = bench.names.level(high, "longhaul", &none).unwrap();
    bench.create(&names, None);
    bench.driver.add_topic(names.clone(), levels.of(high), None);
    bench.settle(1, &in_flight(1));
    bench.run_for(3 * SECOND).await;
    for _ in 0..3 {
        bench.submit_limited(-1, "");
        bench.submit_to(&names.task, -1, &[]);
    }
    bench.run_for(20 * SECOND).await;
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (6, 1));
    assert_eq!(bench.tickets(), 0);
}

/// The task's property comes first, then the queue's settings, then those of the worker.
#[tokio::test(start_paused = true)]
async fn what_a_task_does_not_say_its_queue_says() {
    let (mut bench, diary) = Bench::with_diary(config(8), None, |context, notes| async move {
        notes.note(format!("{} {}", context.properties()["name"], context.attempt()));
        if context.properties().contains_key("silent") {
            context.cancelled().await;
        }
        Err(TaskError::from("no"))
    });
    let mut settings = QueueSettings::default();
    settings.retry = Some(crate::RetryPolicy::intervals([SECOND]));
    settings.no_progress_timeout = Some(5 * SECOND);
    settings.expires_after = Some(60 * SECOND);
    bench.settle(1, &settings);
    bench.run_for(2 * SECOND).await;
    bench.submit(&[("name", "queue")]);
    bench.submit(&[("name", "own"), ("RETRY_INTERVALS", "PT1S,PT1S,PT1S")]);
    let silent = bench.submit(&[("name", "silent"), ("silent", "1"), ("MAX_ATTEMPTS", "1")]);
    let later = (bench.broker.clock().wall_ms() + 70_000).to_string();
    let expires = bench.submit(&[("name", "late"), ("SCHEDULED_AT", &later)]);
    bench.run_for(20 * SECOND).await;
    let mut lines = diary.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["own 1", "own 2", "own 3", "own 4", "queue 1", "queue 2", "silent 1"]);
    assert_eq!(
        bench.last_of(silent).detail.as_deref(),
        Some("The attempt reported nothing for PT5S.")
    );
    bench.run_for(60 * SECOND).await;
    assert_eq!(bench.last_of(expires).outcome, Some(TaskOutcome::Expired));
}

/// A queue's setting for dead letters applies to all of its workers at once, whatever their own
/// settings.
#[tokio::test(start_paused = true)]
async fn a_queue_says_which_dead_letters_are_kept() {
    let config = WorkerConfig { max_attempts: 1, ..config(4) };
    let mut bench = Bench::new(config, None, |_| async { Err::<Text, _>(TaskError::fatal("no")) });
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    assert_eq!(bench.letters().len(), 1, "the worker's own setting");
    let mut settings = QueueSettings::default();
    settings.dead_letters.enabled = Some(false);
    bench.settle(1, &settings);
    bench.run_for(SECOND).await;
    bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    assert_eq!(bench.letters().len(), 1, "the queue keeps none");
    settings.dead_letters.enabled = None;
    settings.dead_letters.expired = Some(true);
    bench.settle(2, &settings);
    bench.run_for(SECOND).await;
    let over = (bench.broker.clock().wall_ms() - 1_000).to_string();
    bench.submit(&[("EXPIRES_AT", &over)]);
    bench.run_for(2 * SECOND).await;
    assert_eq!(bench.letters().len(), 2, "the queue keeps those of expired tasks");
}

/// Regression: an unreadable document lifted the limits of a queue and its pause. It must change
/// nothing, also for workers that start later.
#[tokio::test(start_paused = true)]
async fn settings_that_nobody_can_read_are_told_and_change_nothing() {
    let (mut bench, gauge) = counted(4, SECOND);
    let unreadable = |bench: &Bench, version| {
        let name = DocumentName::queue_settings();
        bench.write_document(name, version, version, r#"{"maxInFlight":"many"}"#);
    };
    unreadable(&bench, 1);
    bench.submit_all(4, "");
    bench.run_for(5 * SECOND).await;
    assert_eq!((gauge.begun(), gauge.with(|counts| counts.most_of_all)), (4, 4));
    let client = Client::on_transport(Arc::new(bench.broker.connect("client")));
    let error = client.queue("tasks").settings().await.unwrap_err().to_string();
    assert!(error.contains("invalid type") && error.contains("Queue::repair"), "{error}");
    let mut paused = in_flight(1);
    paused.paused = true;
    bench.settle(2, &paused);
    unreadable(&bench, 3);
    bench.submit_all(4, "");
    let mut later = counting(Some(&bench), "later", config(4), None, (&gauge, SECOND));
    tokio::join!(bench.run_for(20 * SECOND), later.run_for(20 * SECOND));
    assert_eq!(gauge.begun(), 4, "it is paused");
    // All other current settings remain.
    assert_eq!(client.queue("tasks").repair(|settings| settings.paused = false).await.unwrap(), 4);
    let stands = client.queue("tasks").settings().await.unwrap();
    assert_eq!((stands.version, stands.settings), (4, in_flight(1)));
    tokio::join!(bench.run_for(20 * SECOND), later.run_for(20 * SECOND));
    assert_eq!(gauge.begun(), 8);
}

/// A worker that reads the register during a compaction may read a ticket but not its return. It
/// returns the ticket itself when it sees that the task is over.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_stays_although_its_task_is_over_is_given_back_by_whoever_sees_it() {
    let (mut bench, gauge) = counted(4, SECOND);
    bench.settle(1, &in_flight(1));
    let task = bench.submit_limited(-1, "");
    bench.run_for(5 * SECOND).await;
    assert!(bench.is_over(-1, task));
    let owner = bench.driver.lanes[-1].core.machine().owner();
    let stamp = Stamp { writer: OwnerId(5), serial: 1 };
    let gate = Gate { kind: GateKind::Slots, key: None };
    let ticket = Ticket { gate, task, owner, stamp };
    let topic = bench.names.task.as_str().into();
    bench.write_to_register(&RegisterEntry::Ticket(ticket, topic));
    let last = bench.submit_limited(-1, "");
    bench.run_for(3 * SECOND).await;
    assert_eq!((bench.tickets(), gauge.begun()), (2, 1));
    bench.run_for(20 * SECOND).await;
    assert!(bench.is_over(-1, last));
    assert_eq!(bench.tickets(), 0);
}

/// Regression: a worker gave a ticket back, and compaction removed the ticket and its tombstone
/// while the worker's follower was silent. The worker waited for its own tombstone, which nobody
/// could read any more, so for this worker the slot was taken for ever.
#[tokio::test(start_paused = true)]
async fn a_ticket_whose_tombstone_is_compacted_away_unread_is_given_back_again() {
    let (mut bench, gauge) = counted(4, SECOND);
    bench.settle(1, &in_flight(1));
    let first = bench.submit_limited(-1, "");
    bench.run_for(SECOND / 2).await;
    assert_eq!((bench.tickets(), gauge.begun()), (1, 1));
    bench.broker.stall_followers(&bench.register());
    bench.run_for(3 * SECOND).await;
    assert!(bench.is_over(-1, first));
    assert_eq!(bench.tickets(), 1, "its tombstone is not read");
    bench.broker.compact(&bench.register());
    bench.broker.trim(&bench.register());
    let last = bench.submit_limited(-1, "");
    bench.run_for(120 * SECOND).await;
    assert!(bench.is_over(-1, last));
    assert_eq!((bench.tickets(), gauge.begun()), (0, 2));
}

/// Regression: tasks of one key that waited for its rate kept the slots of the queue while nothing
/// ran. One tenant stopped all others for minutes.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_rate_of_a_key_holds_no_slots_of_the_queue() {
    let gauge = Gauge::default();
    let takes = (&gauge, SECOND);
    let mut one = counting(None, "", config(8), None, takes);
    let mut other = counting(Some(&one), "other", config(8), None, takes);
    let mut settings = in_flight(4);
    settings.keys.insert("slow".to_owned(), rate(2, 60 * SECOND));
    one.settle(1, &settings);
    tokio::join!(one.run_for(5 * SECOND), other.run_for(5 * SECOND));
    one.submit_all(12, "slow");
    tokio::join!(one.run_for(10 * SECOND), other.run_for(10 * SECOND));
    assert_eq!(gauge.begun(), 2, "the burst of the key");
    one.submit_all(12, "");
    tokio::join!(one.run_for(10 * SECOND), other.run_for(10 * SECOND));
    assert_eq!(gauge.begun(), 14, "others have all slots");
    tokio::join!(one.run_for(320 * SECOND), other.run_for(320 * SECOND));
    let of = |counts: &Counts| {
        let all = counts.keys.iter().zip(&counts.began_ms);
        all.filter(|(key, _)| *key == "slow").map(|(_, at)| *at).collect::<Vec<_>>()
    };
    let began_ms = gauge.with(|counts| of(counts));
    assert_eq!(began_ms.len(), 12, "the rate of the key is used: {began_ms:?}");
    for window in [1, 31, 61, 121] {
        let most = most_within(&began_ms, window * 1_000);
        let allowed = 2 + usize::try_from(window / 30).unwrap();
        assert!(most <= allowed, "{most} within {window} s");
    }
    assert_eq!(gauge.with(|counts| counts.most_of_all), 4);
    tokio::join!(one.run_for(120 * SECOND), other.run_for(120 * SECOND));
    assert_eq!((one.tickets(), other.tickets()), (0, 0));
}

/// Tasks of a key that get their slots late begin at the key's rate: tokens do not pile up while
/// tasks wait for slots.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_slot_saves_no_tokens() {
    let (mut bench, gauge) = counted(8, 20 * SECOND);
    let mut settings = in_flight(2);
    settings.keys.insert("slow".to_owned(), rate(1, 10 * SECOND));
    bench.settle(1, &settings);
    for key in ["", "slow", "", "slow", "", "slow", "", "slow"] {
        bench.submit_limited(-1, key);
    }
    bench.run_for(200 * SECOND).await;
    let (keys, began_ms) = gauge.with(|counts| (counts.keys.clone(), counts.began_ms.clone()));
    assert_eq!(keys.len(), 8);
    let slow = keys.iter().zip(&began_ms).filter(|(key, _)| *key == "slow").map(|(_, at)| *at);
    let slow: Vec<_> = slow.collect();
    // An attempt begins some milliseconds after its token's instant.
    assert!(slow.windows(2).all(|pair| pair[1] + 100 >= pair[0] + 10_000), "{slow:?}");
    assert_eq!(gauge.with(|counts| counts.most_of_all), 2);
}

/// Regression: each partition requested as many tickets as the worker had free slots. The surplus
/// was granted and unused while others needed it.
#[tokio::test(start_paused = true)]
async fn a_worker_lines_up_no_more_tickets_than_it_has_free_slots_over_all_partitions() {
    let (runs, waits) = (Gauge::default(), Gauge::default());
    let mut one = counting(None, "", config(1), Some(8), (&runs, 60 * SECOND));
    one.settle(1, &in_flight(1));
    one.submit_limited(0, "");
    one.run_for(5 * SECOND).await;
    assert_eq!((runs.begun(), one.tickets()), (1, 1));
    let mut other = counting(Some(&one), "other", config(3), Some(8), (&waits, SECOND));
    tokio::join!(one.run_for(5 * SECOND), other.run_for(5 * SECOND));
    for number in 0..40 {
        one.submit_limited(number % 8, "");
    }
    for _ in 0..20 {
        tokio::join!(one.run_for(SECOND), other.run_for(SECOND));
        assert!(other.tickets() <= 1 + 3, "{} stand", other.tickets());
    }
    tokio::join!(one.run_for(40 * SECOND), other.run_for(40 * SECOND));
    assert!(runs.begun() + waits.begun() >= 2);
}

/// Regression: the tickets of killed workers, on a topic without workers, stayed forever. Tickets
/// of rates are removed when their tokens are forgotten.
#[tokio::test(start_paused = true)]
async fn a_token_of_a_topic_that_nobody_serves_is_forgotten() {
    let (mut bench, _) = counted(4, SECOND);
    let mut settings = QueueSettings::default();
    settings.limit = rate(1, 5 * SECOND);
    bench.settle(1, &settings);
    bench.run_for(SECOND).await;
    let stamp = Stamp { writer: OwnerId(78), serial: 1 };
    let gate = Gate { kind: GateKind::Pace, key: None };
    let task = TaskId { ledger: 3, entry: 7, partition: -1, batch_index: None };
    let owner = OwnerId(79);
    let ticket = Ticket { gate, task, owner, stamp };
    bench.write_to_register(&RegisterEntry::Ticket(ticket, "gone-high".into()));
    bench.run_for(3 * SECOND).await;
    assert_eq!(bench.tickets(), 1);
    bench.run_for(15 * SECOND).await;
    assert_eq!(bench.tickets(), 0);
}

//! Queues with an order: the tasks of a key run one at a time, in order, whatever happens to them
//! and to their workers. Checked against the ledger.

use super::*;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::{OrderJudge, Violation};
use longhaul_core::settings::{QueueOrder, QueueSettings};
use longhaul_memory::PublishFate;

fn by_key() -> QueueSettings {
    let mut settings = QueueSettings::default();
    settings.order = Some(QueueOrder::Key);
    settings
}

fn config(concurrency: usize) -> WorkerConfig {
    WorkerConfig { concurrency, ..brisk() }
}

/// Notes its begin and end, takes a second, and ends as its message says.
async fn tell(context: TaskContext, diary: Diary) -> Result<Text, TaskError> {
    let properties = context.properties();
    let (key, name) = (properties["ORDER_KEY"].clone(), properties["name"].clone());
    let ends = properties.get("ends").cloned().unwrap_or_default();
    diary.note(format!("{key}{name}+"));
    let takes = if ends == "never" { 100_000 * SECOND } else { SECOND };
    tokio::time::sleep(takes).await;
    diary.note(format!("{key}{name}-"));
    match &*ends {
        "dead" => Err(TaskError::fatal("dead")),
        "late" if context.attempt() == 1 => Err(TaskError::retry_after(5 * SECOND, "again")),
        "much later" => Err(TaskError::retry_after(600 * SECOND, "again")),
        _ => Ok(Text("done".to_owned())),
    }
}

fn ordered(config: WorkerConfig, diary: &Diary) -> Bench {
    let notes = diary.clone();
    let bench = Bench::new(config, None, move |context| tell(context, notes.clone()));
    bench.settle(1, &by_key());
    bench
}

fn beside(bench: &Bench, name: &'static str, config: WorkerConfig, diary: &Diary) -> Bench {
    let notes = diary.clone();
    let body = move |context| tell(context, notes.clone());
    Bench::on(bench.broker.clone(), name, config, None, body)
}

/// The notes on a key.
fn of_key(diary: &Diary, key: &str) -> String {
    let lines = diary.lines();
    let lines = lines.iter().filter_map(|line| line.strip_prefix(key));
    lines.collect::<Vec<_>>().join(" ")
}

impl Bench {
    /// Publishes like any Pulsar producer: the key of the message is the order key.
    fn publish(&self, key: &str, name: &str, more: &[(&str, &str)]) -> TaskId {
        let message = Outgoing {
            key: Some(key.to_owned()),
            properties: more.iter().copied().chain([("name", name)]).collect(),
            payload: "task".into(),
            ..Outgoing::default()
        };
        TaskId::new(self.broker.publish(&self.at(&self.names.task, -1), message), -1)
    }

    fn publish_each(&self, keys: &[&str], names: &[&str]) {
        for name in names {
            for key in keys {
                self.publish(key, name, &[]);
            }
        }
    }

    /// The number of tasks with a key that have begun. Asserts that none began too early.
    fn begun_in_order(&self) -> usize {
        let (begun, found) = self.judged();
        assert_eq!(found, []);
        begun
    }

    /// The number of tasks with a key that have begun, and those that began too early.
    fn judged(&self) -> (usize, Vec<Violation>) {
        let mut judge = OrderJudge::default();
        for message in self.broker.full_log(&self.at(&self.names.task, -1)) {
            if let Some(key) = message.order_key() {
                judge.add(TaskId::new(message.position, -1), key);
            }
        }
        let entries = self.broker.full_log(&self.ledger());
        let entries = entries.iter().filter_map(|message| ledger::read(message).ok());
        let found = entries.filter_map(|entry| judge.read(&entry)).collect();
        (judge.begun(), found)
    }
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_key_run_one_at_a_time_and_keys_beside_each_other() {
    let diary = Diary::default();
    let mut bench = ordered(config(8), &diary);
    bench.publish_each(&["a", "b", "c"], &["1", "2", "3"]);
    let took = bench.run_for(6 * SECOND).await;
    assert_eq!(took, 6 * SECOND);
    for key in ["a", "b", "c"] {
        assert_eq!(of_key(&diary, key), "1+ 1- 2+ 2- 3+ 3-");
    }
    assert_eq!(bench.begun_in_order(), 9);
}

/// Proof that the judge of these tests can fail: a queue without an order runs tasks of one key at
/// the same time.
#[tokio::test(start_paused = true)]
async fn without_the_setting_they_run_beside_each_other() {
    let mut bench = Bench::new(config(8), None, end);
    bench.publish_each(&["a"], &["1", "2", "3"]);
    bench.run_for(6 * SECOND).await;
    let (begun, found) = bench.judged();
    assert_eq!((begun, found.len()), (3, 2), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_its_place_and_a_dead_task_makes_room() {
    let diary = Diary::default();
    let mut bench = ordered(config(8), &diary);
    bench.publish("a", "1", &[("ends", "late")]);
    bench.publish("b", "1", &[("ends", "dead")]);
    bench.publish_each(&["a", "b"], &["2"]);
    bench.run_for(20 * SECOND).await;
    assert_eq!(of_key(&diary, "a"), "1+ 1- 1+ 1- 2+ 2-");
    assert_eq!(of_key(&diary, "b"), "1+ 1- 2+ 2-");
    let letters = bench.letters();
    let keys: Vec<_> = letters.iter().map(|letter| letter.properties.get("ORDER_KEY")).collect();
    assert_eq!(keys, [Some("b")], "a replay has its place in the line of the key");
    assert_eq!(bench.begun_in_order(), 4);
}

/// Regression: the payload of a task that waits for its retry is dropped, and read again for its
/// dead letter. That one lost the key, so a replay of it had no place in a line.
#[tokio::test(start_paused = true)]
async fn the_dead_letter_of_a_task_whose_payload_was_dropped_keeps_its_key() {
    let diary = Diary::default();
    let mut bench = ordered(config(8), &diary);
    bench.publish("b", "1", &[("ends", "much later"), ("MAX_TOTAL_DURATION", "PT30S")]);
    bench.run_for(60 * SECOND).await;
    assert_eq!(of_key(&diary, "b"), "1+ 1-");
    let letters = bench.letters();
    let keys: Vec<_> = letters.iter().map(|letter| letter.properties.get("ORDER_KEY")).collect();
    assert_eq!(keys, [Some("b")]);
}

#[tokio::test(start_paused = true)]
async fn what_is_cancelled_or_expires_in_line_makes_room() {
    let diary = Diary::default();
    let mut bench = ordered(config(8), &diary);
    bench.publish("a", "1", &[]);
    let cancelled = bench.publish("a", "2", &[]);
    let soon = (bench.broker.clock().wall_ms() + 1_000).to_string();
    bench.publish("a", "3", &[("EXPIRES_AT", &soon)]);
    bench.publish("a", "4", &[]);
    bench.run_for(SECOND / 2).await;
    bench.write(&Entry::Cancel(cancelled));
    bench.run_for(10 * SECOND).await;
    assert_eq!(of_key(&diary, "a"), "1+ 1- 4+ 4-");
    assert_eq!(bench.begun_in_order(), 2);
}

/// Tasks dealt to a worker that is gone or cut off go to others in order, and a worker that takes
/// over the first of a line needs none of the others.
#[tokio::test(start_paused = true)]
async fn another_worker_takes_over_the_first_of_a_line_and_then_the_line() {
    for is_frozen in [false, true] {
        let diary = Diary::default();
        let mut one = ordered(config(8), &diary);
        one.publish("a", "1", &[("ends", "late")]);
        one.publish_each(&["a"], &["2", "3"]);
        one.run_for(SECOND / 2).await;
        let mut two = beside(&one, "two", config(8), &diary);
        if is_frozen {
            one.transport.freeze();
        } else {
            one.transport.kill();
        }
        two.run_for(120 * SECOND).await;
        if is_frozen {
            one.transport.thaw();
            tokio::join!(one.run_for(60 * SECOND), two.run_for(60 * SECOND));
        }
        assert_eq!(two.begun_in_order(), 3, "frozen: {is_frozen}");
        let last = diary.lines().into_iter().next_back();
        assert_eq!(last.as_deref(), Some("a3-"), "frozen: {is_frozen}");
    }
}

/// Regression: as long as a worker consumes, the broker gives its keys to no other worker, so its
/// lines waited for the longest of its attempts.
#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_gives_its_lines_away_at_once() {
    let diary = Diary::default();
    let mut one = ordered(config(1), &diary);
    one.publish("a", "1", &[("ends", "never")]);
    one.publish_each(&["a", "b", "c"], &["2"]);
    one.run_for(2 * SECOND).await;
    let mut two = beside(&one, "two", config(8), &diary);
    two.run_for(2 * SECOND).await;
    one.drain_for(30 * SECOND);
    tokio::join!(one.run_for(10 * SECOND), two.run_for(10 * SECOND));
    assert_eq!((&*of_key(&diary, "b"), &*of_key(&diary, "c")), ("2+ 2-", "2+ 2-"));
    assert_eq!(of_key(&diary, "a"), "1+", "its first one still runs");
    tokio::join!(one.run_for(60 * SECOND), two.run_for(60 * SECOND));
    assert!(one.ended, "nothing keeps it");
    assert_eq!(of_key(&diary, "a"), "1+ 1+", "given back, and begun by the other one");
    assert_eq!(two.begun_in_order(), 3);
}

/// Regression: a younger task may begin before an older one whose start time has not come. When its
/// worker left, the next worker was dealt the older one first, and ran it beside the younger one.
/// Found by pairs of features (Order, Delay and Drain, seed 5143).
#[tokio::test(start_paused = true)]
async fn a_younger_task_that_has_begun_is_known_to_whoever_gets_its_line() {
    let diary = Diary::default();
    let mut one = ordered(config(1), &diary);
    one.publish("a", "1", &[("DELAY", "PT5S")]);
    one.publish("a", "2", &[("DELAY", "PT4.5S")]);
    one.run_for(52 * SECOND / 10).await;
    assert_eq!(of_key(&diary, "a"), "2+");
    let mut two = beside(&one, "two", config(1), &diary);
    one.drain_for(30 * SECOND);
    tokio::join!(one.run_for(10 * SECOND), two.run_for(10 * SECOND));
    assert_eq!(of_key(&diary, "a"), "2+ 2- 1+ 1-");
}

/// Regression: a task that waited for one of its key with a later start time had its place behind
/// that one, and yet kept it from beginning when its time came. Neither ever ran, nor any task of
/// the key after them. Found by the simulation.
#[tokio::test(start_paused = true)]
async fn a_task_may_wait_for_one_of_its_key_that_starts_later() {
    let diary = Diary::default();
    let mut bench = ordered(config(8), &diary);
    let later = bench.publish("a", "1", &[("DELAY", "PT5S")]);
    let names = later.to_string();
    bench.publish("a", "2", &[("AFTER", &names)]);
    bench.publish("a", "3", &[]);
    bench.run_for(3 * SECOND).await;
    assert_eq!(of_key(&diary, "a"), "", "the second one is parked, and keeps its place");
    bench.run_for(10 * SECOND).await;
    assert_eq!(of_key(&diary, "a"), "1+ 1- 2+ 2- 3+ 3-");
    assert_eq!(bench.begun_in_order(), 3);
}

/// Regression: a task whose time came while all slots were taken got its place only when one was
/// free. By then another task of its key, which had waited longer for a slot, took that slot. Found
/// by the simulation.
#[tokio::test(start_paused = true)]
async fn a_task_whose_time_comes_takes_its_place_although_there_is_no_slot() {
    let diary = Diary::default();
    let mut bench = ordered(config(1), &diary);
    bench.publish_each(&["b", "c", "d", "e", "f", "g"], &["1"]);
    bench.publish("a", "1", &[("DELAY", "PT3S")]);
    bench.publish_each(&["a"], &["2", "3"]);
    bench.run_for(30 * SECOND).await;
    assert_eq!(of_key(&diary, "a"), "1+ 1- 2+ 2- 3+ 3-");
    assert_eq!(bench.begun_in_order(), 9);
}

/// A claim without a receipt may still be stored, so its worker treats its task as begun. Another
/// task of the key whose time comes meanwhile waits for it: otherwise both would run once the claim
/// was stored.
#[tokio::test(start_paused = true)]
async fn a_task_has_begun_when_its_claim_was_sent_and_nothing_is_heard_of_it() {
    for fate in [
        PublishFate::Lost,
        PublishFate::ReceiptLost,
        PublishFate::Late(5 * SECOND),
        PublishFate::Stored,
    ] {
        let diary = Diary::default();
        let mut bench = ordered(config(8), &diary);
        bench.run_for(5 * SECOND + SECOND / 2).await;
        bench.publish("a", "1", &[("DELAY", "PT3S")]);
        bench.broker.next_publish(&bench.ledger(), fate);
        bench.publish("a", "2", &[]);
        bench.run_for(30 * SECOND).await;
        assert_eq!(of_key(&diary, "a"), "2+ 2- 1+ 1-", "{fate:?}");
    }
}

/// The task awaited by a parked task of a line is over, and its worker is gone: the parked task
/// begins when its line is dealt to another worker.
#[tokio::test(start_paused = true)]
async fn a_parked_task_begins_where_its_line_is() {
    let diary = Diary::default();
    let mut one = ordered(config(8), &diary);
    let first = one.publish("b", "1", &[("ends", "late")]);
    let names = first.to_string();
    one.publish("a", "1", &[("AFTER", &names)]);
    one.publish("a", "2", &[]);
    one.run_for(3 * SECOND).await;
    let mut two = beside(&one, "two", config(8), &diary);
    one.transport.kill();
    two.run_for(120 * SECOND).await;
    assert_eq!(of_key(&diary, "a"), "1+ 1- 2+ 2-");
    assert_eq!(two.begun_in_order(), 3);
}

#[tokio::test(start_paused = true)]
async fn workers_come_and_go_and_nothing_begins_before_its_time() {
    let diary = Diary::default();
    let mut one = ordered(config(4), &diary);
    for number in 0..60 {
        one.publish(["a", "b", "c", "d", "e", "f"][number % 6], &number.to_string(), &[]);
    }
    one.run_for(3 * SECOND).await;
    let mut two = beside(&one, "two", config(4), &diary);
    tokio::join!(one.run_for(5 * SECOND), two.run_for(5 * SECOND));
    let mut three = beside(&one, "three", config(4), &diary);
    one.drain_for(30 * SECOND);
    tokio::join!(one.run_for(5 * SECOND), two.run_for(5 * SECOND), three.run_for(5 * SECOND));
    two.transport.kill();
    three.run_for(120 * SECOND).await;
    assert_eq!(three.begun_in_order(), 60);
    let ends = diary.lines().iter().filter(|line| line.ends_with('-')).count();
    assert!((60..=64).contains(&ends), "{ends}");
}

/// A line that is longer than the number of tasks a worker may hold must leave room for other keys.
#[tokio::test(start_paused = true)]
async fn a_long_line_leaves_room_for_other_keys() {
    let diary = Diary::default();
    let mut bench = ordered(config(4), &diary);
    bench.publish("a", "0", &[("ends", "never")]);
    for number in 1..3_000 {
        bench.publish("a", &number.to_string(), &[]);
    }
    bench.publish("b", "1", &[]);
    bench.run_for(20 * SECOND).await;
    assert_eq!(of_key(&diary, "b"), "1+ 1-");
    let lane = &bench.driver.lanes[-1];
    assert!(lane.payloads.len() < 1_000, "{} payloads", lane.payloads.len());
}

/// Consumers with the broker's current subscription type go first. When the last of them has
/// subscribed anew, the broker admits the others.
#[tokio::test(start_paused = true)]
async fn a_queue_gets_an_order_while_its_workers_work() {
    let diary = Diary::default();
    let notes = diary.clone();
    let mut one = Bench::new(config(4), None, move |context| tell(context, notes.clone()));
    one.settle(1, &QueueSettings::default());
    let mut two = beside(&one, "two", config(4), &diary);
    tokio::join!(one.run_for(5 * SECOND), two.run_for(5 * SECOND));
    one.settle(2, &by_key());
    tokio::join!(one.run_for(30 * SECOND), two.run_for(30 * SECOND));
    for number in 0..12 {
        one.publish(["a", "b", "c"][number % 3], &number.to_string(), &[]);
    }
    tokio::join!(one.run_for(30 * SECOND), two.run_for(30 * SECOND));
    assert_eq!(one.begun_in_order(), 12);
    assert_eq!(of_key(&diary, "a"), "0+ 0- 3+ 3- 6+ 6- 9+ 9-");
}

/// Regression: the payload of a task behind 512 others in a line is dropped, and with it the worker
/// forgot that the task is an overwriter. The submitter wrote no bind, the worker bound the task
/// like any other, and it was closed as a duplicate.
#[tokio::test(start_paused = true)]
async fn an_overwriter_far_back_in_a_line_takes_the_place_of_an_earlier_task() {
    let diary = Diary::default();
    let mut bench = ordered(config(4), &diary);
    let key = ("DEDUPE_KEY", "k");
    bench.publish("a", "0", &[("ends", "never")]);
    let earlier = bench.publish("a", "1", &[key]);
    for _ in 0..600 {
        bench.publish("a", "2", &[]);
    }
    let later = bench.publish("a", "3", &[key, ("OVERWRITE", "true")]);
    bench.run_for(10 * SECOND).await;
    let phase = |task| bench.driver.lanes[-1].core.machine().fold(task).phase;
    assert_eq!((phase(earlier), phase(later)), (Phase::Cancelled, Phase::New));
    assert_eq!(of_key(&diary, "a"), "0+");
}

/// Regression: a task whose time had come took its place before a task of its key that had a ticket
/// and had not begun. It waited for the ticket, and the other one for its turn, forever.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_overtaken_in_its_line_gives_its_ticket_back() {
    let diary = Diary::default();
    let mut bench = ordered(config(4), &diary);
    let mut settings = by_key();
    settings.limit.max_in_flight = Some(1);
    bench.settle(2, &settings);
    bench.run_for(SECOND).await;
    bench.publish("b", "1", &[]);
    bench.publish("r", "1", &[("DELAY", "PT0.5S")]);
    bench.publish("r", "2", &[]);
    bench.run_for(20 * SECOND).await;
    assert_eq!((of_key(&diary, "b"), of_key(&diary, "r")), ("1+ 1-".into(), "1+ 1- 2+ 2-".into()));
}

//! Submits with an idempotency key.

use super::*;
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::protocol::register::{
    Hold, HoldKey, KeyKind, KeyName, Period, RegisterEntry, Stamp,
};
use longhaul_core::register;

use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::Priority;

const REGISTER: &str = "persistent://public/default/tasks-register";

/// Another client of the same broker, as after a restart or in another process.
fn another(bench: &Bench) -> Client {
    Client::on_transport(Arc::new(FakeTransport(Arc::clone(&bench.fake))))
}

async fn submit(client: &Client, key: &str, payload: &str) -> Result<TaskRef, SubmitError> {
    client.submission("tasks", &Text(payload.to_owned())).idempotency_key(key).send().await
}

fn stored(bench: &Bench, topic: &str) -> usize {
    let place = partition(topic.to_owned(), -1);
    bench.fake.world().logs.get(&place).map_or(0, Vec::len)
}

/// Binds the key to a task, as a worker or another client does.
fn bind(bench: &Bench, key: &str, task: TaskId) {
    bind_on(bench, key, QueueTask::normal(task));
}

fn bind_on(bench: &Bench, key: &str, task: QueueTask) {
    let name = KeyName::new(KeyKind::Idempotency, key).unwrap();
    let stamp = Stamp { writer: OwnerId(9), serial: 1 };
    let key = HoldKey { name, period: Period(0), epoch: Epoch(1), task, stamp };
    let outgoing =
        register::message(&RegisterEntry::Bind(Hold { key, digest: None, overwrites: false }));
    let place = partition(REGISTER.to_owned(), -1);
    let position = Position { ledger: 0, entry: 0, batch_index: None };
    let message = Message {
        key: outgoing.key,
        properties: outgoing.properties,
        payload: outgoing.payload,
        ..Message::at(position)
    };
    bench.fake.append(&place, message);
}

#[tokio::test(start_paused = true)]
async fn each_submit_with_a_key_answers_with_the_same_task_also_after_a_restart() {
    let bench = bench();
    let first = submit(&bench.client, "k", "a").await.unwrap();
    assert_eq!(submit(&bench.client, "k", "a").await.unwrap(), first);
    assert_eq!(submit(&another(&bench), "k", "b").await.unwrap(), first);
    assert_eq!((stored(&bench, TASKS), stored(&bench, REGISTER)), (1, 1));
    let other = submit(&bench.client, "l", "a").await.unwrap();
    assert_ne!(other, first);
    // Setting the property equals calling the method.
    let by_property = bench.client.submission("tasks", &Text(String::new()));
    let by_property = by_property.property("IDEMPOTENCY_KEY", "l").send().await.unwrap();
    assert_eq!(by_property, other);
}

#[tokio::test(start_paused = true)]
async fn many_submits_at_once_have_one_answer() {
    let bench = bench();
    let clients: Vec<Client> = (0..4).map(|_| another(&bench)).collect();
    let submits = (0..32).map(|number: usize| submit(&clients[number % 4], "k", "a"));
    let answers: Vec<_> = join_all(submits).await.into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let messages = stored(&bench, TASKS);
    assert!((2..=4).contains(&messages), "one of each client at most, which raced: {messages}");
}

/// Twenty concurrent submits must not leave nineteen messages for workers to close.
#[tokio::test(start_paused = true)]
async fn many_submits_of_one_client_at_once_publish_one_message() {
    let bench = bench();
    for (key, stands) in [("k", 1), ("l", 2)] {
        let submits = (0..20).map(|_| submit(&bench.client, key, "a"));
        let answers: Vec<_> = join_all(submits).await.into_iter().map(Result::unwrap).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(stored(&bench, TASKS), stands);
    }
    // The next submit has its turn when the first one has failed.
    bench.fake.world().fates.push_back(ScriptedFate::Unknown);
    let submits = (0..20).map(|_| submit(&bench.client, "m", "a"));
    let answers = join_all(submits).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1, "{answers:?}");
    assert!(stored(&bench, TASKS) <= 4);
}

/// A submit without an answer can be repeated without a second run.
#[tokio::test(start_paused = true)]
async fn a_submit_of_unknown_fate_may_be_repeated() {
    let bench = bench();
    bench.fake.world().fates.push_back(ScriptedFate::Unknown);
    let lost = submit(&bench.client, "k", "a").await;
    assert!(matches!(lost, Err(SubmitError::Unbound(_))), "{lost:?}");
    let again = submit(&bench.client, "k", "a").await.unwrap();
    assert_eq!(submit(&another(&bench), "k", "a").await.unwrap(), again);
    // A worker binds the lost message first.
    let bench = self::bench();
    bench.fake.world().fates.push_back(ScriptedFate::Unknown);
    assert!(submit(&bench.client, "k", "a").await.is_err());
    let first = TaskId { ledger: 7, entry: 0, partition: -1, batch_index: None };
    bind(&bench, "k", first);
    settle().await;
    assert_eq!(submit(&bench.client, "k", "a").await.unwrap(), task(first));
    assert_eq!(stored(&bench, TASKS), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bind_without_a_receipt_is_published_again_and_the_first_counts() {
    let bench = bench();
    submit(&bench.client, "other", "a").await.unwrap();
    for (fate, binds) in
        [(ScriptedFate::Unknown, 1), (ScriptedFate::Refused, 1), (ScriptedFate::PublisherLost, 1)]
    {
        let before = (stored(&bench, TASKS), stored(&bench, REGISTER));
        let key = format!("{fate:?}");
        let client = another(&bench);
        // The first publish is the task's message.
        let submit = async {
            let submission = client.submission("tasks", &Text("a".to_owned()));
            submission.idempotency_key(key.as_str()).send().await
        };
        bench.fake.world().fates.extend([ScriptedFate::Stored, fate]);
        let answer = submit.await.unwrap();
        assert_eq!(keyed::submit(&another(&bench), &key, "a").await.unwrap(), answer);
        assert_eq!(stored(&bench, TASKS), before.0 + 1, "{fate:?}");
        assert!(stored(&bench, REGISTER) >= before.1 + binds, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_message_may_have_been_first() {
    let bench = bench();
    bind(&bench, "k", ID);
    assert_eq!(submit(&bench.client, "k", "a").await.unwrap(), task(ID));
    assert_eq!(stored(&bench, TASKS), 0, "nothing is submitted that is known to lose");
}

/// Keys belong to the queue, not to one topic: two priorities share them.
#[tokio::test(start_paused = true)]
async fn one_key_with_two_priorities_is_one_task() {
    let bench = bench();
    let submit = |client: &Client, key: &str, priority| {
        let submission = client.submission("tasks", &Text("a".to_owned()));
        submission.idempotency_key(key).priority(priority).send()
    };
    let first = submit(&bench.client, "k", Priority::High).await.unwrap();
    assert_eq!(first.topic, format!("{TASKS}-high"));
    for priority in Priority::ALL {
        assert_eq!(submit(&another(&bench), "k", priority).await.unwrap(), first, "{priority}");
    }
    assert_eq!(stored(&bench, REGISTER), 1);
    let low = QueueTask { level: Priority::Low, id: ID };
    bind_on(&bench, "l", low);
    settle().await;
    let answer = submit(&bench.client, "l", Priority::Normal).await.unwrap();
    assert_eq!(answer, TaskRef { topic: format!("{TASKS}-low"), id: ID });
}

#[tokio::test(start_paused = true)]
async fn the_same_key_with_another_payload_is_a_conflict_if_asked_for() {
    let bench = bench();
    let strict = |payload: &str| {
        let submission = bench.client.submission("tasks", &Text(payload.to_owned()));
        submission.idempotency_key("k").strict().send()
    };
    let first = strict("a").await.unwrap();
    assert_eq!(strict("a").await.unwrap(), first);
    assert_eq!(submit(&bench.client, "k", "b").await.unwrap(), first, "lenient by default");
    let conflict = strict("b").await;
    assert!(
        matches!(&conflict, Err(SubmitError::Conflict(task)) if *task == first),
        "{conflict:?}"
    );
    for key in [String::new(), "x".repeat(257)] {
        let refused = submit(&bench.client, &key, "a").await;
        assert!(
            matches!(refused, Err(SubmitError::KeyLength(bytes)) if bytes == key.len()),
            "{refused:?}"
        );
    }
}

/// A broker creates a deleted register anew, repeatedly. Keys of a deleted register are free.
#[tokio::test(start_paused = true)]
async fn a_register_may_be_replaced_again_and_again() {
    let bench = bench();
    let place = partition(REGISTER.to_owned(), -1);
    let mut answers = Vec::new();
    for number in 0..4 {
        let start =
            register::message(&RegisterEntry::Start(Stamp { writer: OwnerId(8), serial: number }));
        let (key, properties, payload) = (start.key, start.properties, start.payload);
        let at = Position { ledger: 0, entry: 0, batch_index: None };
        let start = Message { key, properties, payload, ..Message::at(at) };
        bench.fake.world().logs.remove(&place);
        bench.fake.append(&place, Message { publish_time_ms: number, ..start });
        bench.fake.break_followers();
        sleep(Duration::from_secs(60)).await;
        let answer = submit(&bench.client, "k", "a").await.unwrap();
        assert_eq!(submit(&another(&bench), "k", "a").await.unwrap(), answer);
        assert!(!answers.contains(&answer), "{number}: {answer} of {answers:?}");
        answers.push(answer);
    }
}

fn overwriter(client: &Client, key: &str) -> Submission {
    client.submission("tasks", &Text("b".to_owned())).dedupe_key(key).overwrite()
}

/// A submitted task can be changed by overwriting it.
#[tokio::test(start_paused = true)]
async fn an_overwriter_is_a_task_of_its_own_and_says_what_it_is() {
    let bench = bench();
    let first = bench.client.submission("tasks", &Text("a".to_owned())).dedupe_key("k");
    let first = first.send().await.unwrap();
    let second = overwriter(&another(&bench), "k").send().await.unwrap();
    assert!(second.id > first.id);
    // No worker has superseded the first task yet, so it holds the key.
    let third = bench.client.submission("tasks", &Text("c".to_owned())).dedupe_key("k");
    assert_eq!(third.send().await.unwrap(), first);
    let place = partition(REGISTER.to_owned(), -1);
    let log = bench.fake.world().logs[&place].clone();
    let said: Vec<bool> = log
        .iter()
        .map(|message| match register::read(message) {
            Ok(RegisterEntry::Bind(hold)) => hold.overwrites,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(said, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn an_overwriter_has_a_dedupe_key() {
    let bench = bench();
    let submission = || bench.client.submission("tasks", &Text("a".to_owned())).overwrite();
    for refused in [submission().send().await, submission().idempotency_key("k").send().await] {
        assert!(matches!(refused, Err(SubmitError::OverwriteWithoutKey)), "{refused:?}");
    }
    let refused = submission().dedupe_key("k").property("OVERWRITE", "yes").send().await;
    let is_told = matches!(refused, Err(SubmitError::Property { name: "OVERWRITE", .. }));
    assert!(is_told, "{refused:?}");
    assert_eq!(stored(&bench, TASKS), 0);
}

/// Ids of two partitions, or of two topics, do not order two tasks.
#[tokio::test(start_paused = true)]
async fn what_is_elsewhere_is_not_overwritten() {
    let bench = bench();
    let high = overwriter(&bench.client, "k").priority(Priority::High).send().await.unwrap();
    assert_eq!(overwriter(&bench.client, "k").send().await.unwrap(), high);
    assert_eq!(stored(&bench, TASKS), 0);
}

/// The tasks of a dedupe key do not go to all partitions in turn.
#[tokio::test(start_paused = true)]
async fn tasks_with_one_dedupe_key_go_to_one_partition() {
    let bench = bench();
    bench.fake.world().partitions.insert(TASKS.to_owned(), 4);
    // 'k' is 107.
    for number in 0..4 {
        let submission = if number == 0 {
            bench.client.submission("tasks", &Text("a".to_owned())).dedupe_key("k")
        } else {
            overwriter(&bench.client, "k")
        };
        let task = submission.send().await.unwrap();
        assert_eq!((task.id.partition, task.id.entry), (3, number));
    }
}

//! History from the logs, on the in-memory broker.

use super::*;
use crate::client::{
    HistoryEvent, Ignored, PastInstant, ReadError, TaskFilter, TaskHistory, TaskStatus, TaskView,
};
use crate::transport::Outgoing;
use crate::worker::of_this_process;
use longhaul_core::ledger;
use longhaul_core::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use longhaul_core::protocol::entry::{
    Base, Claim, ClaimKind, Done, Entry, Heartbeat, NextAttempt, Outcome,
};
use longhaul_core::protocol::entry_set::{BatchOutcome, EntrySet};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId, SealKey};
use longhaul_core::protocol::seal::{EndedCounts, Seal};
use longhaul_core::task::{LogLines, WorkerIdentity, view_properties};
use longhaul_memory::{Faults, MemoryBroker};

const FIRST: OwnerId = OwnerId(1);
const SECOND: OwnerId = OwnerId(2);

struct Past {
    broker: MemoryBroker,
    client: Client,
    ledger: TopicPartition,
    metadata: TopicPartition,
}

impl Past {
    fn new() -> Self {
        let broker = MemoryBroker::new(1, Faults::quiet());
        for topic in [TASKS.to_owned(), format!("{TASKS}-ledger"), format!("{TASKS}-metadata")] {
            broker.create_topic(&topic, None, false);
        }
        let client = Client::on_transport(Arc::new(broker.connect("client")));
        let of = |name: &str| partition(format!("{TASKS}-{name}"), -1);
        Self { broker, client, ledger: of("ledger"), metadata: of("metadata") }
    }

    /// Writes an entry a second after the previous one.
    async fn write(&self, entry: &Entry, content: &[u8]) -> Position {
        sleep(Duration::from_secs(1)).await;
        self.broker.publish(&self.ledger, ledger::message(entry, content))
    }

    async fn show(&self, metadata: &TaskMetadata, epoch: u32, owner: OwnerId) {
        sleep(Duration::from_secs(1)).await;
        let message = Outgoing {
            key: Some(metadata.message_id.clone()),
            properties: view_properties(epoch, owner),
            payload: serde_json::to_vec(metadata).unwrap().into(),
            ..Outgoing::default()
        };
        self.broker.publish(&self.metadata, message);
    }

    async fn history(&self) -> TaskHistory {
        self.client.queue(&task(ID).topic).history(task(ID).id).await.unwrap()
    }
}

fn key(epoch: u32, owner: OwnerId, serial: u64) -> OnceKey {
    OnceKey { task: ID, epoch: Epoch(epoch), owner, serial }
}

fn claim(epoch: u32, owner: OwnerId, base: Option<Base>) -> Entry {
    Entry::Claim(Claim { base, ..Claim::plain(key(epoch, owner, 1), epoch, ClaimKind::Run) })
}

fn done(epoch: u32, owner: OwnerId, outcome: Outcome) -> Entry {
    Entry::Done(Done { key: key(epoch, owner, 2), attempt: epoch, outcome, writer: None })
}

fn seal() -> Entry {
    let mut entries = EntrySet::default();
    entries.push_entry(ID.entry_id(), BatchOutcome::Completed);
    let key = SealKey { owner: SECOND, serial: 9 };
    Entry::Seal(Seal { key, counts: EndedCounts::default(), entries })
}

/// Writes the history of a task whose first worker froze, was replaced, and went on writing.
async fn tell(past: &Past) -> WorkerIdentity {
    let identity = of_this_process("frozen", "blue");
    let beat = Heartbeat { owner: FIRST, number: 1, ..Heartbeat::default() };
    past.write(&Entry::Heartbeat(beat), &identity.content()).await;
    past.write(&claim(1, FIRST, None), b"").await;
    past.show(&processing(ID, 1), 1, FIRST).await;
    past.write(&claim(1, SECOND, None), b"").await;
    past.write(&claim(2, SECOND, None), b"").await;
    past.show(&processing(ID, 2), 2, SECOND).await;
    past.write(&done(1, FIRST, Outcome::Completed), b"a result").await;
    past.show(&processing(ID, 1), 1, FIRST).await;
    past.write(&Entry::Checkpoint(key(2, SECOND, 7)), b"half").await;
    past.write(&done(2, SECOND, Outcome::Final), b"no luck").await;
    past.show(&failed(ID, 2, Some(TaskOutcome::Final)), 2, SECOND).await;
    past.write(&seal(), b"").await;
    identity
}

/// The history explains why a task ran twice, without folding the ledger by hand.
#[tokio::test(start_paused = true)]
async fn a_history_has_every_entry_and_says_which_of_them_count() {
    let past = Past::new();
    let identity = tell(&past).await;
    let history = past.history().await;
    assert!(history.is_whole);
    let told: Vec<_> =
        history.entries.iter().map(|it| (it.epoch, it.event.clone(), it.ignored)).collect();
    let shown =
        |state, attempts| HistoryEvent::Shown { state, attempts, log: Vec::new(), lines_lost: 0 };
    let reason = "no luck".to_owned();
    let end = HistoryEvent::Ended { outcome: TaskOutcome::Final, reason };
    let expected = [
        (Some(1), HistoryEvent::Claimed { attempt: 1 }, None),
        (Some(1), shown("running", 1), None),
        (Some(1), HistoryEvent::Claimed { attempt: 1 }, Some(Ignored::NotNext)),
        (Some(2), HistoryEvent::Claimed { attempt: 2 }, None),
        (Some(2), shown("running", 2), None),
        (Some(1), HistoryEvent::Completed, Some(Ignored::Replaced)),
        (Some(1), shown("running", 1), Some(Ignored::Late)),
        (Some(2), HistoryEvent::Checkpoint { bytes: 4 }, None),
        (Some(2), end, None),
        (Some(2), shown("failed", 2), None),
        (None, HistoryEvent::Sealed, None),
    ];
    assert_eq!(told, expected);
    let first = &history.entries[0];
    assert_eq!(first.owner.as_deref(), Some(FIRST.to_string().as_str()));
    assert_eq!(first.worker.as_deref(), Some(&identity));
    assert!(history.entries.is_sorted_by_key(|entry| entry.published_ms));
    let none = past.client.queue(&task(OTHER).topic).history(task(OTHER).id).await.unwrap();
    assert!(none.is_whole && none.entries.is_empty());
}

/// Log lines were shown of the last attempt alone: what a killed one had said was in no answer.
#[tokio::test(start_paused = true)]
async fn a_history_has_the_log_lines_of_all_attempts() {
    let past = Past::new();
    let show = async |epoch, owner, lines: std::ops::RangeInclusive<u32>| {
        let mut log = LogLines::default();
        lines.for_each(|number| log.push(format!("{epoch}.{number}")));
        let mut metadata = processing(ID, epoch);
        log.show_in(&mut metadata);
        past.show(&metadata, epoch, owner).await;
    };
    past.write(&claim(1, FIRST, None), b"").await;
    show(1, FIRST, 1..=3).await;
    show(1, FIRST, 1..=40).await;
    past.write(&claim(2, SECOND, None), b"").await;
    show(2, SECOND, 1..=1).await;
    // A worker that was replaced goes on, and what it says is not lost either.
    show(1, FIRST, 1..=41).await;
    show(2, SECOND, 1..=2).await;
    let lines = |epoch, range: std::ops::RangeInclusive<u32>| {
        range.map(|number| format!("{epoch}.{number}")).collect::<Vec<_>>()
    };
    let told = |history: TaskHistory| -> Vec<_> {
        let mut told = Vec::new();
        for entry in history.entries {
            if let HistoryEvent::Shown { log, lines_lost, .. } = entry.event {
                told.push((log, lines_lost));
            }
        }
        told
    };
    let expected = [
        (lines(1, 1..=3), 0),
        (lines(1, 9..=40), 5),
        (lines(2, 1..=1), 0),
        (lines(1, 41..=41), 0),
        (lines(2, 2..=2), 0),
    ];
    assert_eq!(told(past.history().await), expected);
    for last in 3..=1_100 {
        show(2, SECOND, 1..=last).await;
    }
    let told = told(past.history().await);
    assert_eq!(told.iter().map(|(log, _)| log.len()).sum::<usize>(), 1_000, "the newest");
    assert_eq!(told.last().unwrap().0, ["2.1100"]);
    let count = told.iter().map(|(log, lost)| log.len() as u64 + lost).sum::<u64>();
    assert_eq!(count, 41 + 1_100, "those that are left out are counted");
}

/// The history shows how long a worker was silent before it was replaced.
#[tokio::test(start_paused = true)]
async fn a_history_says_when_nothing_was_heard_of_the_holder() {
    let past = Past::new();
    let config = LedgerConfig {
        version: 1,
        subscription: "longhaul".to_owned(),
        heartbeat: Duration::from_secs(10),
        ledger_retention: Duration::from_secs(3600),
        self_fence: Duration::from_secs(600),
        format: LEDGER_FORMAT,
    };
    past.write(&Entry::Config(config), b"").await;
    let identity = of_this_process("frozen", "blue");
    let beat = Heartbeat { owner: FIRST, number: 1, ..Heartbeat::default() };
    past.write(&Entry::Heartbeat(beat), &identity.content()).await;
    past.write(&claim(1, FIRST, None), b"").await;
    sleep(Duration::from_secs(24)).await;
    past.write(&claim(2, SECOND, None), b"").await;
    past.write(&done(2, SECOND, Outcome::Completed), b"").await;
    let history = past.history().await;
    let [silence] = &history.silences[..] else { panic!("{history:?}") };
    assert_eq!((silence.epoch, &*silence.owner), (1, &*FIRST.to_string()));
    assert_eq!(silence.worker.as_deref(), Some(&identity));
    assert_eq!((silence.every, silence.missed), (Duration::from_secs(10), 2));
    let [first, second, _] = &history.entries[..] else { panic!("{history:?}") };
    assert_eq!((silence.from_ms, silence.to_ms), (first.published_ms, Some(second.published_ms)));
}

#[tokio::test(start_paused = true)]
async fn entries_that_compaction_has_kept_come_before_those_of_the_log() {
    let past = Past::new();
    past.write(&claim(1, FIRST, None), b"").await;
    let next = NextAttempt::new(5, 0);
    let failed = past.write(&done(1, FIRST, Outcome::Failed(next)), b"no luck").await;
    past.broker.compact(&past.ledger);
    past.broker.trim_to(&past.ledger, failed.entry_id());
    past.write(&claim(2, SECOND, None), b"").await;
    let history = past.history().await;
    assert!(history.is_whole);
    let epochs: Vec<_> = history.entries.iter().map(|it| (it.epoch, it.ignored)).collect();
    assert_eq!(epochs, [(Some(1), None), (Some(1), None), (Some(2), None)]);
}

/// A history without its beginning must not call counting entries ignored.
#[tokio::test(start_paused = true)]
async fn a_history_without_its_beginning_does_not_judge() {
    let past = Past::new();
    past.write(&claim(3, FIRST, None), b"").await;
    past.write(&claim(17, SECOND, Some(Base { created_ms: 1 })), b"").await;
    past.write(&done(3, FIRST, Outcome::Completed), b"").await;
    let history = past.history().await;
    assert!(!history.is_whole);
    let judged: Vec<_> = history.entries.iter().map(|it| it.ignored).collect();
    assert_eq!(judged, [Some(Ignored::Unknown), None, Some(Ignored::Replaced)]);
}

/// Zombies are listed per worker, with their late entries.
#[tokio::test(start_paused = true)]
async fn zombies_are_counted_by_worker_with_how_late_they_were() {
    let past = Past::new();
    let identity = tell(&past).await;
    let found = past.client.queue("tasks").zombies().await.unwrap();
    let [zombie] = &found[..] else { panic!("{found:?}") };
    assert_eq!(zombie.owner, FIRST.to_string());
    assert_eq!(zombie.worker.as_deref(), Some(&identity));
    // Its outcome came 2 s after the claim that replaced it, and its metadata entry 1 s later.
    let told = (zombie.ledger_entries, zombie.metadata_entries, zombie.latest);
    assert_eq!(told, (1, 1, Duration::from_secs(3)));
    // An outcome that is published again after a lost receipt is not a zombie's.
    let again = OnceKey { serial: 3, ..key(2, SECOND, 3) };
    let again = Done { key: again, attempt: 2, outcome: Outcome::Final, writer: None };
    past.write(&Entry::Done(again), b"no luck").await;
    assert_eq!(past.client.queue("tasks").zombies().await.unwrap(), found);
}

/// The view of an instant is available after later entries.
#[tokio::test(start_paused = true)]
async fn the_view_of_a_past_instant_is_what_it_was_then() {
    let past = Past::new();
    tell(&past).await;
    let log = past.broker.full_log(&past.ledger);
    let mut statuses = Vec::new();
    for message in &log {
        let at = PastInstant::Entry { partition: -1, position: message.position };
        let view = past.client.queue("tasks").tasks_at(at).await.unwrap();
        let by_time = PastInstant::Time(message.publish_time_ms);
        let same = past.client.queue("tasks").tasks_at(by_time).await.unwrap();
        let list = |view: &TaskView| view.list(&TaskFilter::new(), None, 9).unwrap();
        assert_eq!(list(&view), list(&same));
        statuses.push(view.get(ID).unwrap().map(|info| info.status));
    }
    let claimed = Some(TaskStatus::Claimed);
    let (running, failed) = (Some(TaskStatus::Running), Some(TaskStatus::Failed));
    let expected = [None, claimed, running, claimed, running, running, failed, failed];
    assert_eq!(statuses, expected);
    // A compacted log tells nothing of the time before.
    past.broker.compact(&past.ledger);
    past.broker.trim_to(&past.ledger, log[6].position.entry_id());
    let lost = past.client.queue("tasks").tasks_at(PastInstant::Time(log[3].publish_time_ms)).await;
    assert!(matches!(lost, Err(ReadError::NotInLog { begins_ms: Some(_) })), "{lost:?}");
    let kept = past.client.queue("tasks").tasks_at(PastInstant::Time(log[7].publish_time_ms)).await;
    assert_eq!(kept.unwrap().get(ID).unwrap().map(|info| info.status), failed);
}

/// The checks of the chaos tests, on a production ledger.
#[tokio::test(start_paused = true)]
async fn a_ledger_in_production_is_verified_and_each_broken_invariant_is_named() {
    let past = Past::new();
    assert!(past.client.queue("tasks").verify().await.unwrap().is_sound());
    tell(&past).await;
    let sound = past.client.queue("tasks").verify().await.unwrap();
    assert!(sound.is_sound(), "{sound:?}");
    let told = (sound.ledger_entries, sound.metadata_entries, sound.late, sound.tasks);
    assert_eq!(told, (8, 4, 1, 1));
    past.show(&completed(ID, 1), 1, FIRST).await;
    let never = OnceKey { epoch: Epoch(3), ..key(3, FIRST, 9) };
    let never = Done { key: never, attempt: 3, outcome: Outcome::Completed, writer: None };
    past.broker.publish(&past.ledger, ledger::message(&Entry::Done(never), b""));
    past.broker
        .publish(&past.ledger, Outgoing { key: Some("x".to_owned()), ..Outgoing::default() });
    let found = past.client.queue("tasks").verify().await.unwrap();
    let ids: Vec<_> = found.findings.iter().map(|it| (it.id, it.on_metadata, it.task)).collect();
    assert_eq!(ids, [("C-22", false, Some(ID)), ("C-10", true, Some(ID))]);
    assert_eq!((found.broken, found.malformed), (2, 1));
    // For a sealed task whose first entries are only in the compacted part, it is unknown what is
    // gone.
    past.broker.compact(&past.ledger);
    let log = past.broker.full_log(&past.ledger);
    past.broker.trim_to(&past.ledger, log[3].position.entry_id());
    assert!(past.client.queue("tasks").verify().await.unwrap().is_sound());
}

/// A queue whose topics do not match must not be called sound.
#[tokio::test(start_paused = true)]
async fn a_verification_says_where_it_has_not_looked() {
    let past = Past::new();
    let topic = |name: &str| format!("persistent://public/default/{name}");
    for (name, tasks, ledger, metadata, unread) in [
        ("even", Some(2), Some(2), Some(2), &[][..]),
        ("growing", Some(2), Some(4), Some(4), &[]),
        ("bare", None, Some(4), Some(4), &["bare has no partitions, and "]),
        (
            "claimless",
            Some(4),
            None,
            Some(4),
            &[
                "claimless has 4",
                "claimless-metadata has 4",
                "claimless-metadata: not found: no such topic",
            ],
        ),
        ("narrow", Some(4), Some(2), Some(2), &["narrow has 4 partitions, and "]),
        (
            "hidden",
            Some(2),
            Some(2),
            Some(1),
            &["hidden-metadata has 1 partition, and ", "hidden-metadata-partition-1: not found"],
        ),
    ] {
        for (suffix, count) in [("", tasks), ("-ledger", ledger), ("-metadata", metadata)] {
            past.broker.create_topic(&topic(&format!("{name}{suffix}")), count, false);
        }
        let found = past.client.queue(name).verify().await.unwrap();
        assert_eq!(found.unread.len(), unread.len(), "{name}: {found:?}");
        for (told, wanted) in found.unread.iter().zip(unread) {
            assert!(told.contains(&topic(wanted)), "{told}");
        }
    }
}

/// The planted faults of the checks are found through the client, too.
#[tokio::test(start_paused = true)]
async fn an_outcome_without_a_claim_and_an_early_seal_are_found_in_the_log() {
    let past = Past::new();
    past.write(&claim(1, FIRST, None), b"").await;
    past.write(&done(1, SECOND, Outcome::Completed), b"").await;
    past.show(&processing(ID, 1), 1, SECOND).await;
    past.write(&seal(), b"").await;
    let found = past.client.queue("tasks").verify().await.unwrap();
    let ids: Vec<_> = found.findings.iter().map(|it| it.id).collect();
    assert_eq!(ids, ["C-22", "C-18", "C-03"], "{found:?}");
}

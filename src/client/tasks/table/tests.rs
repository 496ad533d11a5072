use super::*;
use crate::client::fake::{completed, entry, failed, processing, tombstone};
use crate::client::tasks::info::WorkerInfo;
use crate::client::tasks::{TaskPage, TaskStatus};
use crate::transport::Outgoing;
use crate::worker::of_this_process;
use longhaul_core::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use longhaul_core::protocol::entry::{
    Base, Claim, ClaimKind, Done, Heartbeat, LeaseMs, NextAttempt, Outcome,
};
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::fold::TaskFold;
use longhaul_core::protocol::key::{Epoch, OnceKey, SealKey};
use longhaul_core::protocol::random;
use longhaul_core::protocol::seal::{EndedCounts, Seal};
use longhaul_core::task::{Progress, TaskMetadata, TaskOutcome};
use proptest::prelude::*;

const NOW: u64 = 1_000_000;
const OWNER: OwnerId = OwnerId(7);

fn task(entry: u64) -> TaskId {
    TaskId { ledger: 1, entry, partition: -1, batch_index: None }
}

fn at(entry: u64) -> Position {
    Position { ledger: 9, entry, batch_index: None }
}

/// A table, and the next position of each topic.
#[derive(Default)]
struct Bench {
    table: TaskTable,
    next: u64,
}

impl Bench {
    fn new() -> Self {
        Self { table: TaskTable::new(-1), next: 1 }
    }

    fn place(&mut self) -> Position {
        self.next += 1;
        at(self.next)
    }

    fn write_with(&mut self, entry: &Entry, content: &[u8]) {
        let Outgoing { key, properties, payload, null, .. } = ledger::message(entry, content);
        let position = self.place();
        let publish_time_ms = position.entry;
        let message =
            Message { key, properties, payload, null, publish_time_ms, ..Message::at(position) };
        self.table.read(TableSource::Ledger, &message);
    }

    fn write(&mut self, entry: &Entry) {
        self.write_with(entry, random::content_of(entry));
    }

    fn show(&mut self, metadata: &TaskMetadata, epoch: u32) {
        let message = Message { position: self.place(), ..entry(0, metadata, Some(epoch)) };
        self.table.read(TableSource::Metadata, &message);
    }

    fn evict(&mut self, id: TaskId) {
        let message = Message { position: self.place(), ..tombstone(0, id) };
        self.table.read(TableSource::Metadata, &message);
    }

    fn submit(&mut self, id: TaskId, published_ms: u64, properties: &[(&str, &str)]) {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let properties: BTreeMap<String, String> = properties.iter().map(text).collect();
        let message = Message {
            properties: properties.into(),
            publish_time_ms: published_ms,
            ..Message::at(id.position())
        };
        self.table.read(TableSource::Tasks, &message);
    }

    fn seal(&mut self, entries: &[u64], ended: BatchOutcome) {
        self.seal_counting(entries, ended, EndedCounts::default());
    }

    fn seal_counting(
        &mut self,
        entries: &[u64],
        ended: BatchOutcome,
        counts: EndedCounts,
    ) -> SealKey {
        let mut set = EntrySet::default();
        for entry in entries {
            assert!(set.push_entry(task(*entry).entry_id(), ended));
        }
        let key = SealKey { owner: OWNER, serial: self.next };
        self.write(&Entry::Seal(Seal { key, counts, entries: set }));
        key
    }

    fn lease(&mut self, id: TaskId, epoch: u32, worker: &str) {
        let plain = Claim::plain(key(id, epoch, OwnerId(70)), epoch, ClaimKind::Run);
        let lease_ms = LeaseMs::new(30_000);
        assert!(lease_ms.is_some());
        self.write_with(&Entry::Claim(Claim { lease_ms, ..plain }), worker.as_bytes());
    }

    fn worker(&self, id: TaskId) -> Option<String> {
        self.table.get(id, NOW)?.worker.map(|it| it.name.clone())
    }

    fn status(&self, id: TaskId) -> Option<TaskStatus> {
        self.table.get(id, NOW).map(|info| info.status)
    }

    fn list(&self, filter: &TaskFilter, after: Option<TaskId>, limit: usize) -> TaskPage {
        let mut tasks = Vec::new();
        let more = self.table.page(filter, after, limit, NOW, &mut tasks);
        let next = tasks.last().map(|it| it.id).filter(|_| more);
        TaskPage { tasks, next }
    }

    fn ids(&self, filter: &TaskFilter) -> Vec<u64> {
        self.list(filter, None, 100).tasks.iter().map(|it| it.id.entry).collect()
    }
}

fn key(id: TaskId, epoch: u32, owner: OwnerId) -> OnceKey {
    OnceKey { task: id, epoch: Epoch(epoch), owner, serial: u64::from(epoch) }
}

fn claim(id: TaskId, epoch: u32) -> Entry {
    Entry::Claim(Claim::plain(key(id, epoch, OWNER), epoch, ClaimKind::Run))
}

fn done(id: TaskId, epoch: u32, outcome: Outcome) -> Entry {
    Entry::Done(Done { key: key(id, epoch, OWNER), attempt: epoch, outcome, writer: None })
}

#[test]
fn a_task_is_where_ledger_and_metadata_topic_say_together() {
    let mut bench = Bench::new();
    let id = task(1);
    assert_eq!(bench.status(id), None);
    bench.submit(id, 5, &[]);
    assert_eq!(bench.status(id), Some(TaskStatus::Ready));
    bench.write(&claim(id, 1));
    assert_eq!(bench.status(id), Some(TaskStatus::Claimed));
    bench.show(&processing(id, 1), 1);
    assert_eq!(bench.status(id), Some(TaskStatus::Running));
    let next = NextAttempt::new(NOW + 1, 9);
    bench.write(&done(id, 1, Outcome::Failed(next)));
    assert_eq!(bench.status(id), Some(TaskStatus::Retrying));
    assert_eq!(bench.table.get(id, NOW + 1).unwrap().status, TaskStatus::Ready);
    assert_eq!(bench.table.get(id, NOW).unwrap().due_ms, Some(NOW + 1));
    bench.write(&claim(id, 2));
    // The entry on the metadata topic is still the previous attempt's.
    assert_eq!(bench.status(id), Some(TaskStatus::Claimed));
    bench.write(&Entry::Cancel(id));
    let info = bench.table.get(id, NOW).unwrap();
    assert_eq!((info.attempts, info.epoch, info.cancel_requested), (2, 2, true));
    assert_eq!((info.created_ms, info.owner), (5, Some(OWNER.to_string())));
    bench.write(&done(id, 2, Outcome::Completed));
    assert_eq!(bench.status(id), Some(TaskStatus::Completed));
}

/// A view without the task topic would not show a scheduled task.
#[test]
fn a_task_known_only_from_its_topic_waits_with_its_scheduled_time() {
    let mut bench = Bench::new();
    let late = (NOW + 7).to_string();
    bench.submit(
        task(1),
        3,
        &[("SCHEDULED_AT", &late), ("TAGS", "mail, night"), ("TASK_TYPE", "send")],
    );
    let info = bench.table.get(task(1), NOW).unwrap();
    assert_eq!((info.status, info.due_ms), (TaskStatus::Scheduled, Some(NOW + 7)));
    let tags: Vec<&str> = info.tags.iter().map(|tag| &**tag).collect();
    assert_eq!((tags, info.task_type.as_deref()), (vec!["mail", "night"], Some("send")));
    assert_eq!(bench.table.get(task(1), NOW + 7).unwrap().status, TaskStatus::Ready);
    // A cancel request for an id without a task creates no row.
    bench.write(&Entry::Cancel(task(2)));
    assert_eq!(bench.status(task(2)), None);
}

#[test]
fn a_sealed_task_is_what_the_metadata_topic_shows_until_it_is_evicted() {
    let mut bench = Bench::new();
    for entry in 1..=3 {
        bench.submit(task(entry), 1, &[]);
        bench.write(&claim(task(entry), 1));
        bench.write(&done(task(entry), 1, Outcome::Final));
    }
    bench.show(&failed(task(1), 1, Some(TaskOutcome::Final)), 1);
    bench.seal(&[1, 2], BatchOutcome::Failed);
    assert_eq!(bench.status(task(1)), Some(TaskStatus::Failed));
    assert_eq!(bench.status(task(2)), None);
    // A claim after the seal is ignored, and so is the task's message when it is read late.
    bench.write(&claim(task(2), 1));
    bench.submit(task(2), 1, &[]);
    assert_eq!(bench.status(task(2)), None);
    bench.evict(task(1));
    assert_eq!(bench.status(task(1)), None);
    // A task still on the ledger outlives its metadata entry.
    bench.show(&failed(task(3), 1, Some(TaskOutcome::Final)), 1);
    bench.evict(task(3));
    assert_eq!(bench.status(task(3)), Some(TaskStatus::Failed));
    // A task whose ledger keys were removed before the view began is known only from the metadata
    // topic.
    bench.show(&completed(task(2), 4), 4);
    let info = bench.table.get(task(2), NOW).unwrap();
    assert_eq!((info.status, info.attempts, info.owner), (TaskStatus::Completed, 4, None));
}

/// The counts cover the whole life of the queue, not only the tasks still shown.
#[test]
fn tasks_that_have_ever_ended_are_counted_once_whether_they_are_still_shown_or_not() {
    let mut bench = Bench::new();
    let ever = |bench: &Bench| {
        let mut counts = TaskCounts::default();
        bench.table.count(NOW, &mut counts);
        counts.ever_ended
    };
    let ends = [Outcome::Completed, Outcome::Final, Outcome::Cancelled];
    for (entry, outcome) in (1..).zip(ends) {
        bench.write(&claim(task(entry), 1));
        bench.write(&done(task(entry), 1, outcome));
    }
    bench.write(&claim(task(4), 1));
    // A task that expires is closed by a claim that runs nothing.
    let expired = Claim::plain(key(task(6), 1, OWNER), 0, ClaimKind::Expired);
    bench.write(&Entry::Claim(expired));
    let one_each = EndedCounts { completed: 1, failed: 1, cancelled: 1, expired: 1 };
    assert_eq!(ever(&bench), one_each, "one runs");
    // The metadata topic still shows one of the sealed tasks.
    bench.show(&completed(task(1), 1), 1);
    let first = bench.seal_counting(&[1, 2, 3, 6], BatchOutcome::Mixed, one_each);
    assert_eq!(ever(&bench), one_each);
    let all = EndedCounts { completed: 2, ..one_each };
    bench.seal_counting(&[1, 2, 3, 5, 6], BatchOutcome::Mixed, all);
    assert_eq!(ever(&bench), all, "the later seal says what the first one says as well");
    assert_eq!(bench.table.seals.covered().count(), 1);
    bench.write(&Entry::Tombstone(Key::Seal(first)));
    assert_eq!(bench.table.seals.covered().count(), 0);
    bench.evict(task(1));
    assert_eq!(ever(&bench), all);
    // The later seal alone is left after a compaction.
    let mut later = Bench::new();
    later.seal_counting(&[1, 2, 3, 5, 6], BatchOutcome::Mixed, all);
    assert_eq!(ever(&later), all);
}

/// A zombie's entries come late.
#[test]
fn late_entries_of_the_metadata_topic_change_nothing() {
    let mut bench = Bench::new();
    let id = task(1);
    let told = |done| Some(Progress { done, total: 9, message: String::new() });
    bench.show(&TaskMetadata { progress: told(3), ..processing(id, 2) }, 2);
    bench.show(&TaskMetadata { progress: told(8), ..processing(id, 1) }, 1);
    assert_eq!(bench.table.get(id, NOW).unwrap().progress.unwrap().done, 3);
    bench.show(&completed(id, 2), 2);
    bench.show(&processing(id, 2), 2);
    let info = bench.table.get(id, NOW).unwrap();
    assert_eq!((info.status, info.progress), (TaskStatus::Completed, None));
}

#[test]
fn tasks_are_listed_page_by_page_and_by_filter() {
    let mut bench = Bench::new();
    for entry in 1..=9 {
        let tags = if entry % 2 == 0 { "even,all" } else { "all" };
        let kind = if entry > 5 { "big" } else { "small" };
        bench.submit(
            task(entry),
            entry * 10,
            &[("TAGS", tags), ("TASK_TYPE", kind), ("TASK_KEY", "k")],
        );
    }
    bench.write(&claim(task(4), 1));
    let all = TaskFilter::new();
    let first = bench.list(&all, None, 4);
    assert_eq!((first.tasks.len(), first.next), (4, Some(task(4))));
    let last = bench.list(&all, Some(task(4)), 5);
    assert_eq!((last.tasks.len(), last.next), (5, None));
    assert_eq!(bench.ids(&TaskFilter::new().tag("even").tag("all")), [2, 4, 6, 8]);
    assert_eq!(bench.ids(&TaskFilter::new().tag("even").task_type("big")), [6, 8]);
    assert_eq!(bench.ids(&TaskFilter::new().status(TaskStatus::Claimed)), [4]);
    assert_eq!(bench.ids(&TaskFilter::new().created(20..=30)), [2, 3]);
    assert_eq!(bench.ids(&TaskFilter::new().changed(0..=10)), [1, 4], "claimed at 2");
    assert!(bench.ids(&TaskFilter::new().key("other")).is_empty());
    for (text, found) in
        [("EVEN big", &[6, 8][..]), (" 3:-1  mal", &[3]), ("even 3:-1", &[]), ("ig", &[6, 7, 8, 9])]
    {
        assert_eq!(bench.ids(&TaskFilter::new().text(text)), found, "{text}");
    }
    assert_eq!(bench.ids(&TaskFilter::new().text(&task(3).to_string())), [3]);
    let mut counts = TaskCounts::default();
    bench.table.count(NOW, &mut counts);
    let told = (counts.total(), counts.demand(), counts.of(TaskStatus::Ready));
    assert_eq!((told, counts.oldest_ready), ((9, 9, 8), Some((task(1), 10))));
    // Each word is kept once, whichever task has it.
    assert_eq!(bench.table.words.len(), 4);
}

/// The reason in the list spares opening each failed task.
#[test]
fn a_task_that_failed_says_why_until_another_attempt_runs() {
    let mut bench = Bench::new();
    let reason =
        |bench: &Bench, id| bench.table.get(id, NOW).unwrap().reason.map(|it| it.to_string());
    let [waiting, over] = [task(1), task(2)];
    bench.write(&claim(waiting, 1));
    bench.show(&processing(waiting, 1), 1);
    assert_eq!(reason(&bench, waiting), None);
    bench.write(&done(waiting, 1, Outcome::Failed(NextAttempt::new(2 * NOW, 0))));
    bench.show(&failed(waiting, 1, None), 1);
    assert_eq!(reason(&bench, waiting).as_deref(), Some("no luck"));
    bench.write(&claim(waiting, 2));
    assert_eq!(reason(&bench, waiting), None, "that was the attempt before");
    bench.show(&processing(waiting, 2), 2);
    bench.write(&done(waiting, 2, Outcome::Completed));
    bench.show(&completed(waiting, 2), 2);
    assert_eq!(reason(&bench, waiting), None);
    // The detail is preferred as the plainer text, and a long one is cut between characters.
    let detail = Some("ä".repeat(REASON_CHARS_MAX + 1));
    bench.show(&TaskMetadata { detail, ..failed(over, 1, Some(TaskOutcome::Final)) }, 1);
    assert_eq!(reason(&bench, over), Some("ä".repeat(REASON_CHARS_MAX)));
    // It is found by what is shown: the reason of an attempt before the last one is not.
    assert_eq!(bench.ids(&TaskFilter::new().text("ÄÄ")), [over.entry]);
    assert!(bench.ids(&TaskFilter::new().text("luck")).is_empty());
}

/// A fleet that cannot reach its mail server has a hundred thousand failures with one reason.
#[test]
fn tasks_that_failed_alike_share_their_reason() {
    let mut bench = Bench::new();
    for entry in 1..=9 {
        bench.show(&failed(task(entry), 1, Some(TaskOutcome::Final)), 1);
    }
    assert_eq!(bench.table.words.len(), 1);
}

#[test]
fn workers_are_listed_with_what_they_run() {
    let mut bench = Bench::new();
    let identity = of_this_process("mailer", "blue");
    let beat = Entry::Heartbeat(Heartbeat { owner: OWNER, number: 1, ..Heartbeat::default() });
    bench.write_with(&beat, &identity.content());
    for entry in 1..=3 {
        bench.write(&claim(task(entry), 1));
    }
    bench.write(&done(task(2), 1, Outcome::Completed));
    let workers = bench.table.workers(NOW);
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!(worker.identity.as_deref(), Some(&identity));
    assert_eq!((&worker.running[..], worker.last_heartbeat_ms), (&[task(1), task(3)][..], Some(2)));
    assert_eq!(bench.table.get(task(1), NOW).unwrap().worker.as_deref(), Some(&identity));
    // The worker has left, and its tasks are not taken over yet.
    bench.write(&Entry::Tombstone(Key::Heartbeat(OWNER)));
    let [worker] = &bench.table.workers(NOW)[..] else { panic!("it runs two tasks") };
    assert_eq!((worker.last_heartbeat_ms, worker.running.len()), (None, 2));
}

/// Lists of workers named the gateway alone, and nobody could see what the workers behind it do.
#[test]
fn workers_behind_a_gateway_are_listed_with_what_they_hold() {
    let mut bench = Bench::new();
    let beat = Entry::Heartbeat(Heartbeat { owner: OWNER, number: 1, ..Heartbeat::default() });
    bench.write_with(&beat, &of_this_process("gateway", "").content());
    for (entry, worker) in [(1, "ann"), (2, "bob"), (3, "ann"), (4, "bob")] {
        bench.lease(task(entry), 1, worker);
    }
    bench.seal(&[4], BatchOutcome::Completed);
    let shown = |now_ms| {
        let name = |it: &WorkerInfo| it.identity.as_ref().unwrap().name.clone();
        let shown = |it: &WorkerInfo| (name(it), it.running.len(), it.missed_heartbeats);
        let all = bench.table.workers(now_ms);
        assert_eq!(all.iter().map(|it| it.holds_leases).collect::<Vec<_>>(), [false, true, true]);
        all.iter().map(shown).collect::<Vec<_>>()
    };
    let all = |missed| {
        [("gateway", 0, 0), ("ann", 2, missed), ("bob", 1, missed)]
            .map(|(name, running, missed)| (name.to_owned(), running, missed))
            .to_vec()
    };
    assert_eq!(shown(10), all(0));
    // A lease time is 30 s.
    assert_eq!(shown(29_000), all(1));
    assert_eq!(shown(31_000), all(2), "others may end the leases");
}

/// A worker may use a new name per lease, and a gateway's view lives as long as the gateway.
#[test]
fn names_of_holders_without_rows_do_not_accumulate() {
    let mut bench = Bench::new();
    let mut name = 0..;
    let mut lease = |bench: &mut Bench, entry: u64, epoch| {
        let worker = format!("pod {}", name.next().unwrap());
        bench.lease(task(entry), epoch, &worker);
        assert_eq!(bench.worker(task(entry)), Some(worker));
    };
    for first in (0..2_000).step_by(10) {
        for entry in first..first + 10 {
            lease(&mut bench, entry, 1);
            let next = NextAttempt::new(NOW, 9);
            let fails = key(task(entry), 1, OwnerId(70));
            let fails =
                Done { key: fails, attempt: 1, outcome: Outcome::Failed(next), writer: None };
            bench.write(&Entry::Done(fails));
            lease(&mut bench, entry, 2);
        }
        // The ledger drops some rows, the metadata topic the others.
        bench.show(&completed(task(first), 2), 2);
        let all: Vec<u64> = (first..first + 10).collect();
        bench.seal(&all, BatchOutcome::Completed);
        assert_eq!(bench.table.rows.len(), 1, "one is shown");
        bench.evict(task(first));
        assert!(bench.table.rows.is_empty());
    }
    assert!(bench.table.holders.len() <= 1_000, "4,000 names were seen");
    // A task unknown to the ledger has the holder that is shown, each time another name.
    for pod in 0..100 {
        let worker = WorkerIdentity::named(format!("pod {pod}"));
        let json = serde_json::json!({ "worker": worker }).as_object().cloned().unwrap();
        let mut shown = entry(0, &processing(task(5_000), 1), Some(1));
        let body: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&shown.payload).unwrap();
        let body: serde_json::Map<_, _> = body.into_iter().chain(json).collect();
        shown.payload = serde_json::to_vec(&body).unwrap().into();
        shown.position = bench.place();
        bench.table.read(TableSource::Metadata, &shown);
        assert_eq!(bench.worker(task(5_000)), Some(worker.name));
    }
    // Two rows share a name, and one of them goes.
    bench.lease(task(6_000), 1, "ann");
    bench.lease(task(6_001), 1, "ann");
    bench.seal(&[6_000], BatchOutcome::Completed);
    assert_eq!(bench.worker(task(6_001)).as_deref(), Some("ann"));
    bench.write(&claim(task(6_001), 2));
    assert_eq!(bench.worker(task(6_001)), None);
}

#[test]
fn what_comes_again_changes_nothing_and_a_base_tells_when_a_task_was_claimed_first() {
    let mut bench = Bench::new();
    bench.write(&claim(task(1), 1));
    let first = Message { key: Some("x".to_owned()), ..Message::at(at(1)) };
    bench.table.read(TableSource::Ledger, &first);
    assert_eq!(bench.table.read_to, BTreeMap::from([(TableSource::Ledger, at(2))]));
    let base = Some(Base { created_ms: 77 });
    bench.write(&Entry::Claim(Claim {
        base,
        ..Claim::plain(key(task(2), 9, OWNER), 2, ClaimKind::Run)
    }));
    assert_eq!(bench.table.get(task(2), NOW).unwrap().created_ms, 77);
}

proptest! {
    /// The view folds as the library does: unpacking a row gives the fold that was packed.
    #[test]
    fn a_row_is_what_the_fold_says(log in random::ledger()) {
        let mut bench = Bench::new();
        let mut folds: BTreeMap<TaskId, TaskFold> = BTreeMap::new();
        for entry in &log {
            let worker = format!("pod {}", bench.next % 3);
            if matches!(entry, Entry::Claim(it) if it.lease_ms.is_some()) {
                bench.write_with(entry, worker.as_bytes());
            } else {
                bench.write(entry);
            }
            let Some(id) = entry.task() else { continue };
            let fold = folds.entry(id).or_default();
            fold.apply(entry);
            let row = bench.table.rows.get(&id).map(|row| row.fold(&bench.table.owners));
            // The row keeps neither the length of a delay nor the due time of an offered task.
            let waits = fold.phase == Phase::Retry;
            let at_ms = if waits && !fold.is_offered() { fold.next_attempt.at_ms } else { 0 };
            let next_attempt = if fold.is_parked() {
                NextAttempt::PARKED
            } else {
                NextAttempt::new(at_ms, 0)
            };
            prop_assert_eq!(row.unwrap_or_default(), TaskFold { next_attempt, ..*fold });
        }
    }
}

/// Lists of workers must show missed heartbeats: the time of the last one does not tell whether the
/// worker is dead.
#[test]
fn a_worker_that_has_died_has_missed_heartbeats() {
    let mut bench = Bench::new();
    let beat = Entry::Heartbeat(Heartbeat { owner: OWNER, number: 1, ..Heartbeat::default() });
    bench.write(&beat);
    let missed = |bench: &Bench, now_ms| bench.table.workers(now_ms)[0].missed_heartbeats;
    assert_eq!(missed(&bench, NOW), 0, "nobody knows how often they are due");
    let every = |version, seconds| {
        let heartbeat = Duration::from_secs(seconds);
        Entry::Config(LedgerConfig {
            version,
            subscription: "longhaul".to_owned(),
            heartbeat,
            ledger_retention: Duration::from_secs(3_600),
            self_fence: Duration::from_secs(600),
            format: LEDGER_FORMAT,
        })
    };
    bench.write(&every(2, 10));
    bench.write(&every(1, 1));
    let at = |late_ms: u64| 2 + late_ms;
    let found = [0, 14_999, 15_000, 24_999, 25_000, 600_000].map(|ms| missed(&bench, at(ms)));
    assert_eq!(found, [0, 0, 1, 1, 2, 59]);
    bench.write(&Entry::Tombstone(Key::Heartbeat(OWNER)));
    assert_eq!(bench.table.workers(NOW), []);
}

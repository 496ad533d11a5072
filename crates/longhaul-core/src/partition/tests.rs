//! A few partitions on one log, with a clock of their own: no broker, no runtime.

mod beginning;
mod claiming;
mod comparing;
mod dropping;
mod ends;
mod fencing;
mod finishers;
mod following;
mod holding;
mod leasing;
mod ledger;
mod looking;
mod sealing;
mod slots;
mod solo;
mod sweeping;
mod unwanted;

use super::*;
use crate::facts::TaskFacts;
use crate::machine::{Stage, Stop};
use crate::protocol::invariants::TAKEOVER;
use crate::protocol::key::{Key, OwnerId};

const H: Duration = Duration::from_secs(10);
const WALL_MS: u64 = 1_000_000;
const STEP: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
/// The interval between two looks when nothing is due.
const LOOK: Duration = Duration::from_secs(450);
const TASK: TaskId = TaskId { ledger: 7, entry: 0, partition: -1, batch_index: None };

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn settings(ledger: LedgerConfig) -> PartitionSettings {
    PartitionSettings { ledger, partition: -1, max_attempts: 3 }
}

/// A message that was published now.
fn new_task(core: &Partition, now: Moment) -> TaskFacts {
    TaskFacts { published_ms: core.wall.at(now), ..TaskFacts::default() }
}

fn of_batch(size: u32) -> TaskFacts {
    TaskFacts { batch_size: Some(size), ..TaskFacts::default() }
}

struct Worker {
    core: Partition,
    slots: Slots,
    cursor: usize,
    /// Makes no step, like a process after SIGSTOP.
    frozen: bool,
    /// Has no connection: its publishes are lost, and it reads nothing.
    offline: bool,
    /// Its tombstones are lost.
    mute: bool,
    /// Its entries on the metadata topic get no receipt.
    blind: bool,
    /// Entries that its compacted view of the ledger has lost, and those that the log has lost too.
    lost: Vec<usize>,
    lost_for_good: Vec<usize>,
    /// Its log: `start 1`, `stop`, `ack`, `fenced`, …
    did: Vec<(Moment, String)>,
    spare: u128,
}

struct Pair {
    now: Moment,
    /// The readers' wall clock. Everything was published at [`WALL_MS`].
    wall_ms: u64,
    log: Vec<Entry>,
    workers: Vec<Worker>,
}

impl Pair {
    /// Workers, bootstrapped one after the other.
    fn new(workers: u128) -> Self {
        let mut pair = Self {
            now: Moment(Duration::from_secs(10_000)),
            wall_ms: WALL_MS,
            log: Vec::new(),
            workers: Vec::new(),
        };
        for id in 1..=workers {
            let settings = settings(LedgerConfig::default());
            let core = Partition::new(settings, OwnerId(id), OwnerId(100 * id), pair.now);
            pair.workers.push(Worker {
                core,
                slots: Slots::new(2),
                cursor: 0,
                frozen: false,
                offline: false,
                mute: false,
                blind: false,
                lost: Vec::new(),
                lost_for_good: Vec::new(),
                did: Vec::new(),
                spare: 100 * id,
            });
        }
        pair.run_for(Duration::from_millis(100));
        pair
    }

    /// Publishes land at once and are read at the next step.
    fn step(&mut self) {
        self.now = self.now + STEP;
        let (now, wall_ms) = (self.now, self.wall_ms);
        for worker in &mut self.workers {
            if worker.frozen {
                continue;
            }
            while !worker.offline && worker.cursor < self.log.len() {
                let position =
                    Position { ledger: 1, entry: worker.cursor as u64, batch_index: None };
                let entry = self.log[worker.cursor].clone();
                worker.cursor += 1;
                let index = worker.cursor - 1;
                let is_lost = worker.lost_for_good.contains(&index)
                    || worker.lost.contains(&index) && !worker.core.reads_log();
                if is_lost {
                    continue;
                }
                worker.core.handle_entry(
                    &Inbound { position, publish_time_ms: WALL_MS, entry },
                    now,
                    wall_ms,
                );
            }
            worker.core.run(now, &mut worker.slots);
            while let Some(effect) = worker.core.poll_effect() {
                perform(worker, effect, now, &mut self.log);
                worker.core.run(now, &mut worker.slots);
            }
            assert!(worker.core.claims_are_settled());
        }
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    /// Steps until the worker has done `what`. Returns the time that this took.
    #[track_caller]
    fn run_until(&mut self, worker: usize, what: &str) -> Duration {
        let begin = self.now;
        for _ in 0..100_000 {
            if let Some((at, _)) = self.workers[worker]
                .did
                .iter()
                .find(|(at, did)| *at > begin && did.starts_with(what))
            {
                return at.since(begin);
            }
            self.step();
        }
        panic!("`{what}` never came; it did {:?}", self.workers[worker].did);
    }

    /// Replaces the worker by a new one.
    fn replace(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        let settings = worker.core.settings.clone();
        worker.core = Partition::new(settings, OwnerId(50), OwnerId(51), self.now);
        worker.cursor = 0;
        worker.did.clear();
    }

    fn deliver(&mut self, worker: usize, task: TaskId) {
        let core = &mut self.workers[worker].core;
        core.handle_delivery(task, &new_task(core, self.now), self.now);
    }

    fn finish(&mut self, worker: usize, epoch: u32, outcome: Outcome) {
        let core = &mut self.workers[worker].core;
        core.handle_finished(TASK, Epoch(epoch), outcome);
        core.handle_processor_gone(TASK, Epoch(epoch), self.now);
    }

    fn did(&self, worker: usize) -> Vec<&str> {
        self.workers[worker].did.iter().map(|(_, did)| did.as_str()).collect()
    }
}

fn perform(worker: &mut Worker, effect: PartitionEffect, now: Moment, log: &mut Vec<Entry>) {
    let did = match effect {
        PartitionEffect::Do(Action::Publish(mut entry)) => {
            if let Entry::Claim(Claim { lease_ms: Some(lease_ms), .. }) = &mut entry {
                *lease_ms = leasing::LEASE_MS;
            }
            if !worker.offline {
                if let Key::Once(key) = entry.key() {
                    worker.core.handle_receipt(key);
                }
                log.push(entry.clone());
            }
            let Entry::Seal(seal) = entry else { return };
            format!("seal {}", seal.entries.len())
        }
        PartitionEffect::Do(Action::Start { attempt, .. }) => format!("start {attempt}"),
        PartitionEffect::Do(Action::Stop { task, epoch, why }) => {
            worker.core.handle_processor_gone(task, epoch, now);
            let why = match why {
                Stop::Fenced | Stop::SetAside => "fenced",
                Stop::Cancelled => "cancelled",
                Stop::LetGo => "let go",
            };
            format!("stop {why}")
        }
        PartitionEffect::Do(Action::ReadPayload(task)) => {
            worker.core.handle_payload(task, Some(&TaskFacts::default()), now);
            "read payload".to_owned()
        }
        PartitionEffect::Do(Action::ShowOutcome(task)) => {
            if !worker.blind {
                worker.core.handle_metadata_stored(task);
            }
            "show outcome".to_owned()
        }
        PartitionEffect::Do(Action::DeadLetter(task)) => {
            worker.core.handle_dead_letter_stored(task);
            "dead letter".to_owned()
        }
        PartitionEffect::Do(Action::Ack(entry)) => {
            worker.core.handle_acked(entry);
            "ack".to_owned()
        }
        PartitionEffect::Do(Action::HandBack(_)) => "hand back".to_owned(),
        PartitionEffect::Do(Action::Tombstone(keys)) => {
            if !worker.mute {
                log.extend(keys.iter().map(|key| Entry::Tombstone(*key)));
                worker.core.handle_tombstoned(true, now);
            }
            format!("tombstone {}", keys.len())
        }
        PartitionEffect::Do(Action::DropPayload(_)) | PartitionEffect::ClaimSettled(_) => return,
        PartitionEffect::Do(other) => format!("{other:?}"),
        PartitionEffect::Ready => "ready".to_owned(),
        PartitionEffect::Differs { lacks, works, .. } => format!("differs {lacks} {works}"),
        PartitionEffect::Fenced => {
            worker.spare += 1;
            worker.core.set_spare_owner(OwnerId(worker.spare));
            worker.cursor = 0;
            "self-fence".to_owned()
        }
        PartitionEffect::Refused(error) => format!("refused: {error}"),
        PartitionEffect::LeaseOver(_, epoch) => format!("lease over {epoch}"),
        PartitionEffect::AskForTicket(_) | PartitionEffect::ReturnTicket(_) => {
            panic!("the queue has no limits")
        }
    };
    worker.did.push((now, did));
}

#[test]
fn a_task_is_run_once_shown_and_acknowledged() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.did(0), ["ready", "start 1", "show outcome", "ack"]);
    assert_eq!(pair.did(1), ["ready"]);
}

/// The broker never delivers the task again.
#[test]
fn a_dead_owners_task_is_adopted_within_two_heartbeats_and_a_second() {
    let mut pair = Pair::new(3);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.workers[0].frozen = true;
    let starts = |pair: &Pair| {
        let second = |did: &&str| **did == *"start 2";
        pair.did(1).iter().filter(|did| second(did)).count()
            + pair.did(2).iter().filter(|did| second(did)).count()
    };
    pair.run_for(2 * H);
    assert_eq!(starts(&pair), 0, "not before the owner is stale");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(starts(&pair), 1, "{TAKEOVER}");

    // The owner wakes up, reads the higher epoch and stops its processor. Nothing of it counts.
    pair.workers[0].frozen = false;
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.workers[1].core.machine().fold(TASK).epoch, Epoch(2));
    assert_eq!(pair.workers[1].core.machine().fold(TASK).phase, Phase::Running);
}

#[test]
fn an_outage_of_the_ledger_costs_no_attempt() {
    for outage in [25, 60, 180, 590] {
        let mut pair = Pair::new(3);
        pair.deliver(0, TASK);
        pair.run_until(0, "start 1");
        for worker in &mut pair.workers {
            worker.offline = true;
        }
        pair.run_for(Duration::from_secs(outage));
        // They come back one after the other, over ten seconds.
        for worker in [1, 2, 0] {
            pair.workers[worker].offline = false;
            pair.run_for(Duration::from_secs(5));
        }
        pair.run_for(Duration::from_secs(60));
        pair.finish(0, 1, Outcome::Completed);
        pair.run_for(Duration::from_secs(1));
        let fold = pair.workers[1].core.machine().fold(TASK);
        assert_eq!((fold.epoch, fold.phase), (Epoch(1), Phase::Completed), "after {outage} s");
    }
}

#[test]
fn a_worker_cut_off_for_long_fences_itself_and_its_work_goes_on() {
    let mut pair = Pair::new(1);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.workers[0].offline = true;
    pair.run_until(0, "self-fence");
    pair.workers[0].offline = false;
    pair.run_until(0, "ready");
    pair.run_for(Duration::from_secs(1));
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.did(0).ends_with(&["show outcome", "ack"]), "{:?}", pair.did(0));
    assert!(!pair.did(0).contains(&"stop fenced"));
}

/// Regression: the first heartbeat to come back after a long outage had been sent during it, so the
/// view was too old at once, and the worker fenced itself a second time.
#[test]
fn an_outage_ends_in_one_self_fence() {
    let mut pair = Pair::new(1);
    pair.workers[0].offline = true;
    pair.run_until(0, "self-fence");
    // Publishes wait for the broker, and land when it is back.
    let now = pair.now;
    let worker = &mut pair.workers[0];
    worker.core.run(now, &mut worker.slots);
    while let Some(effect) = worker.core.poll_effect() {
        if let PartitionEffect::Do(Action::Publish(entry)) = effect {
            pair.log.push(entry);
        }
    }
    pair.run_for(LedgerConfig::default().self_fence + H);
    pair.workers[0].offline = false;
    pair.run_until(0, "ready");
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.did(0).iter().filter(|did| **did == "self-fence").count(), 1);
}

/// Regression: a worker that had read a busy ledger for half a minute was ready when its view was
/// nearly too old. It fenced itself at once and read everything again, over and over.
#[test]
fn a_bootstrap_ends_well_before_the_next_self_fence() {
    let self_fence = LedgerConfig::default().self_fence;
    for (lag, ready) in [(self_fence * 3 / 5, false), (self_fence * 2 / 5, true)] {
        let mut pair = Pair::new(1);
        pair.workers[0].core.handle_ledger_deleted();
        pair.workers[0].cursor = 0;
        pair.step();
        pair.workers[0].frozen = true;
        pair.run_for(lag);
        let (now, worker) = (pair.now, &mut pair.workers[0]);
        for entry in 0..pair.log.len() {
            let position = Position { ledger: 1, entry: entry as u64, batch_index: None };
            let entry = pair.log[entry].clone();
            worker.core.handle_entry(&Inbound { position, publish_time_ms: 0, entry }, now, 0);
        }
        assert_eq!(worker.core.machine().is_ready(), ready, "{lag:?}");
    }
}

const R: Duration = Duration::from_secs(3600);

/// The keys left in the ledger when all tombstones have been compacted away, without heartbeats and
/// settings.
fn left(log: &[Entry]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for entry in log {
        match entry {
            Entry::Tombstone(key) => keys.retain(|other| other != key),
            Entry::Heartbeat(_) | Entry::Config(_) => {}
            Entry::Claim(_)
            | Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_) => keys.push(entry.key()),
        }
    }
    keys
}

/// Regression: keys waited for the oldest unfinished task, so a task of one day kept the keys of
/// all tasks that ended on that day.
#[test]
fn a_finished_task_is_sealed_after_its_retention_and_its_keys_go() {
    let mut pair = Pair::new(2);
    let other = TaskId { entry: 1, ..TASK };
    pair.deliver(0, other);
    pair.run_until(0, "start 1");
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(R - Duration::from_secs(1));
    assert!(!pair.did(0).contains(&"seal 1"));
    pair.run_until(0, "seal 1");
    pair.run_for(Duration::from_secs(1));
    for worker in &pair.workers {
        assert!(
            worker.core.machine().is_sealed(TASK) && worker.core.machine().task(TASK).is_none()
        );
        assert_eq!(worker.core.finished(), 0);
    }
    let tombstones =
        |worker: usize| pair.did(worker).iter().filter(|did| **did == "tombstone 2").count();
    assert_eq!(tombstones(0) + tombstones(1), 1, "one of them swept");
    let keys = left(&pair.log);
    assert!(
        matches!(keys[..], [Key::Once(claim), Key::Seal(_)] if claim.task == other),
        "{keys:?}"
    );
}

/// Otherwise a task whose finisher died before sealing it would keep its keys forever.
#[test]
fn what_a_dead_worker_left_behind_is_closed_and_sealed_by_another() {
    let mut pair = Pair::new(3);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(Duration::from_secs(1));
    pair.workers[0].frozen = true;
    pair.run_for(2 * R);
    let did = |what: &str| [1, 2].map(|worker| pair.did(worker).contains(&what));
    assert_eq!(did("seal 1").iter().filter(|sealed| **sealed).count(), 1);
    assert_eq!(did("show outcome"), did("seal 1"), "whoever sealed it had closed it");
    assert!(matches!(left(&pair.log)[..], [Key::Seal(_)]), "{:?}", left(&pair.log));
}

/// Regression: a cancel request for a finished task waited for the mark-delete position.
#[test]
fn what_lands_behind_the_seal_goes_too() {
    let mut pair = Pair::new(1);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(R);
    pair.run_until(0, "seal 1");
    pair.run_for(Duration::from_secs(1));
    pair.log.push(Entry::Cancel(TASK));
    pair.run_until(0, "tombstone 1");
    assert!(matches!(left(&pair.log)[..], [Key::Seal(_)]), "{:?}", left(&pair.log));
}

/// Regression: workers that were replaced more often than once per ledger retention sealed nothing,
/// because each of them took finished tasks to be as old as itself.
#[test]
fn what_ended_before_a_worker_started_is_as_old_as_its_outcome() {
    const HOUR_MS: u64 = 3_600_000;
    let mut pair = Pair::new(1);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(Duration::from_secs(1));
    pair.replace(0);
    // By its wall clock, the outcome published at 1,000,000 ms is an hour old.
    pair.wall_ms += HOUR_MS;
    pair.run_for(R / 4);
    let took = R / 4 + pair.run_until(0, "seal 1");
    assert!(took < R, "{took:?}");
}

/// Regression: the first worker in line was alive and could publish nothing, so no worker swept.
#[test]
fn the_next_in_line_sweeps_where_the_first_does_not() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    for worker in &mut pair.workers {
        worker.mute = true;
    }
    pair.run_for(R);
    pair.run_until(0, "seal 1");
    pair.run_for(STEP);
    let swept = |pair: &Pair| [0, 1].map(|it| pair.did(it).contains(&"tombstone 2"));
    let first = swept(&pair).iter().position(|swept| *swept).expect("one is first");
    let other = 1 - first;
    assert!(!swept(&pair)[other], "one at a time");
    pair.workers[other].mute = false;
    pair.run_until(other, "tombstone 2");
    pair.run_for(STEP);
    let left = pair.workers[other].core.machine().sweepable().count();
    assert_eq!(left, 0);
}

/// A broker that trims the ledger lets a slow reader skip entries without notice.
#[test]
fn a_worker_that_lost_an_entry_fences_itself() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.run_for(Duration::from_secs(11));
    pair.workers[1].offline = true;
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(Duration::from_secs(1));
    pair.workers[1].cursor += 1;
    pair.workers[1].offline = false;
    let took = pair.run_until(1, "self-fence");
    assert!(took <= Duration::from_secs(11), "{took:?}");
    pair.run_until(1, "ready");
    assert!(pair.workers[1].core.machine().fold(TASK).phase.is_terminal());
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.did(1).iter().filter(|did| **did == "self-fence").count(), 1);
    assert!(!pair.did(0).contains(&"self-fence"));
}

/// Regression: a worker waited forever for an outcome that was stored and did not come back. It
/// counted the lost entries of others, but not its own.
#[test]
fn a_worker_that_lost_an_entry_of_its_own_fences_itself() {
    for leases in [false, true] {
        let mut pair = Pair::new(1);
        if leases {
            pair.workers[0].core.grant_leases(1 << 40);
        }
        pair.deliver(0, TASK);
        pair.run_until(0, "start 1");
        pair.run_for(Duration::from_secs(11));
        pair.finish(0, 1, Outcome::Completed);
        while !matches!(pair.log.last(), Some(Entry::Done(_))) {
            pair.step();
        }
        pair.workers[0].cursor = pair.log.len();
        pair.run_until(0, "self-fence");
        pair.run_until(0, "ready");
        assert!(pair.workers[0].core.machine().fold(TASK).phase.is_terminal());
        pair.deliver(0, TASK);
        pair.run_until(0, "ack");
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.did(0).iter().filter(|did| **did == "self-fence").count(), 1);
    }
}

/// Regression: live readers took the first settings, and readers after a compaction took the last
/// ones.
#[test]
fn of_two_settings_written_at_once_the_first_is_also_the_last() {
    let mut pair = Pair::new(1);
    let other = LedgerConfig { heartbeat: Duration::from_secs(3), ..LedgerConfig::default() };
    pair.log.push(Entry::Config(other));
    pair.run_for(Duration::from_secs(1));
    let last = pair.log.iter().rev().find_map(|entry| {
        let Entry::Config(config) = entry else { return None };
        Some(config.heartbeat)
    });
    assert_eq!(last, Some(H));
}

#[test]
fn a_worker_with_other_settings_is_refused() {
    let mut pair = Pair::new(1);
    let config =
        LedgerConfig { version: 2, heartbeat: Duration::from_secs(3), ..LedgerConfig::default() };
    pair.log.push(Entry::Config(config));
    pair.run_until(0, "refused: heartbeat is 3s on this ledger but 10s here");
}

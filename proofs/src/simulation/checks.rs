//! The checks after a run, by the numbers of `longhaul_core::protocol::invariants`.

use super::fleet::Fleet;
use super::ledger::{Logged, Owners, Story, Times, Told, times};
use super::report::Totals;
use super::script::{Script, Start, result};
use super::setting::{Course, Forgetting, Setting};
use super::{SUBSCRIPTION, fences, lines, retries, terms, timely, view, waits};
use crate::checkers::fold::{End, State};
use longhaul::topics::TopicNames;
use longhaul::{EntryId, Position, TaskId};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::key::OwnerId;
use longhaul_memory::{Happening, MemoryBroker};
use longhaul_transport::TopicPartition;
use longhaul_transport::clock::as_millis;
use longhaul_transport::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The evidence of a run.
pub(super) struct Evidence<'a> {
    pub(super) setting: &'a Setting,
    pub(super) broker: &'a MemoryBroker,
    pub(super) names: &'a TopicNames,
    pub(super) partitions: Vec<i32>,
    pub(super) submitted: &'a BTreeMap<TaskId, (usize, Moment)>,
    pub(super) fleet: &'a Fleet,
}

/// The content of the ledger, over all partitions.
pub(super) struct Book {
    pub(super) times: Times,
    pub(super) stories: BTreeMap<TaskId, Story>,
    /// By partition.
    pub(super) owners: BTreeMap<i32, Owners>,
    /// By partition.
    pub(super) logs: BTreeMap<i32, BTreeMap<Position, Logged>>,
    /// The processes whose heartbeat keys are still on the ledger.
    pub(super) heartbeats: BTreeSet<Arc<str>>,
    /// When each owner tombstoned its own heartbeat key.
    pub(super) left: BTreeMap<OwnerId, Moment>,
    found: Vec<String>,
}

impl Evidence<'_> {
    fn book(&self) -> Book {
        let times = times(self.broker);
        let (mut stories, mut owners) = (BTreeMap::new(), BTreeMap::new());
        let mut logs = BTreeMap::new();
        let (mut heartbeats, mut left) = (BTreeSet::new(), BTreeMap::new());
        let mut found = Vec::new();
        for partition in &self.partitions {
            let place = at(&self.names.ledger, *partition);
            let told = Told::of(self.broker, &place, &times);
            let name = |owner: &OwnerId| told.owners.get(owner).map(|(name, _)| Arc::clone(name));
            heartbeats.extend(told.heartbeats.iter().filter_map(name));
            left.extend(told.left);
            stories.extend(told.stories);
            owners.insert(*partition, told.owners);
            logs.insert(*partition, told.log);
            found.extend(told.found);
        }
        Book { times, stories, owners, logs, heartbeats, left, found }
    }

    /// All violations as text, and the counters.
    pub(super) fn judge(&self) -> (Vec<String>, Totals) {
        let mut book = self.book();
        let mut found = std::mem::take(&mut book.found);
        let starts = self.fleet.deeds.lock().starts.clone();
        self.check_progress(&book, &mut found);
        self.check_compacted(&book, &mut found);
        self.check_starts(&book, &starts, &mut found);
        self.check_fates(&book, &mut found);
        terms::check(self, &book, &mut found);
        waits::check(self, &book, &starts, &mut found);
        let order = lines::check(self, &book, &starts, &mut found);
        view::check(self, &book, &mut found);
        let readings = fences::readings(self);
        let takeovers = timely::check(self, &book, &readings, &mut found);
        let deeds = fences::check(self, &book, &readings, &mut found);
        let mut totals = self.count(&book, &starts);
        (totals.measured, totals.takeover_max) = takeovers;
        totals += deeds;
        (totals.order_pairs, totals.order_troubled) = (order.pairs, order.troubled);
        (totals.order_exempt, totals.order_beside) = (order.exempt, order.beside);
        (found, totals)
    }

    /// The moment at which a right wall clock shows this time.
    pub(super) fn at_ms(&self, ms: u64) -> Moment {
        let clock = self.broker.clock();
        let began_ms = clock.wall_ms() - as_millis(clock.now().0);
        Moment(Duration::from_millis(ms.saturating_sub(began_ms)))
    }

    /// Whether all tasks are acknowledged and the metadata topic agrees with the ledger on each. In
    /// brisk runs, whether all tasks have left both.
    pub(super) fn is_settled(&self) -> bool {
        if !self.is_over() {
            return false;
        }
        let book = self.book();
        view::agrees(self, &book) && (!self.setting.brisk || book.stories.values().all(left))
    }

    /// Whether all tasks are acknowledged.
    fn is_over(&self) -> bool {
        self.partitions.iter().all(|partition| {
            let place = at(&self.names.task, *partition);
            // A restart may forget the ack of a message that was trimmed meanwhile. That message
            // cannot be delivered again.
            let there = self.broker.view(&place, false);
            let there: BTreeSet<EntryId> = there.iter().map(|it| it.position.entry_id()).collect();
            let backlog = self.broker.backlog(&place, SUBSCRIPTION);
            !backlog.iter().any(|entry| there.contains(entry))
        })
    }

    /// Whether a task waits for its next attempt, whose time has not come.
    pub(super) fn waits_for_an_attempt(&self) -> bool {
        let now = self.broker.clock().now();
        self.book().stories.values().any(|story| story.waits_until().is_some_and(|at| at > now))
    }

    fn check_progress(&self, book: &Book, found: &mut Vec<String>) {
        for task in self.submitted.keys() {
            match book.stories.get(task) {
                Some(story) if story.ended.is_some() => {}
                other => {
                    let state = other.map(|story| story.state).unwrap_or_default();
                    found.push(format!("{}: task {task} never ended: {state:?}", ids::PROGRESS));
                }
            }
        }
        for task in book.stories.keys().filter(|task| !self.submitted.contains_key(task)) {
            found.push(format!("{}: nobody submitted task {task}", ids::KEYS));
        }
        if !self.is_over() {
            found.push(format!("{}: not all tasks are acknowledged", ids::PROGRESS));
        } else if self.setting.brisk {
            for (id, story) in book.stories.iter().filter(|(_, story)| !left(story)) {
                let keys = (&story.keys, &story.checkpoint_keys);
                found.push(format!("{}: task {id} never left the ledger: {keys:?}", ids::SEALED));
            }
        }
    }

    /// Checks that a bootstrap from the ledger as it is now gives the same folds. Of a sealed task
    /// it knows only that it is over.
    fn check_compacted(&self, book: &Book, found: &mut Vec<String>) {
        if self.setting.forgetting != Forgetting::Never {
            return;
        }
        let mut folds: BTreeMap<TaskId, State> = BTreeMap::new();
        let mut sealed: BTreeMap<i32, EntrySet> = BTreeMap::new();
        for partition in &self.partitions {
            let place = at(&self.names.ledger, *partition);
            let over = sealed.entry(*partition).or_default();
            for message in self.broker.view(&place, true) {
                let Ok(entry) = ledger::read(&message) else { continue };
                if let Entry::Seal(seal) = &entry {
                    over.extend(&seal.entries);
                }
                if let Some(id) = entry.task().filter(|_| !matches!(entry, Entry::Tombstone(_))) {
                    folds.entry(id).or_default().take(&entry);
                }
            }
        }
        for (id, story) in &book.stories {
            let seen = folds.get(id).copied().unwrap_or_default();
            let over = sealed.get(&id.partition).and_then(|all| all.get(id.entry_id())).is_some();
            let same = if over { story.state.end().is_some() } else { seen == story.state };
            if !same {
                let whole = story.state;
                let what =
                    format!("task {id}: {seen:?} compacted (sealed: {over}), {whole:?} whole");
                found.push(format!("{}: {what}", ids::COMPACTION));
            }
        }
    }

    fn check_starts(&self, book: &Book, starts: &[Start], found: &mut Vec<String>) {
        let mut seen = BTreeSet::new();
        let mut attempts: BTreeMap<(TaskId, u32), u32> = BTreeMap::new();
        let nothing = Story::default();
        for start in starts {
            let Start { task, epoch, attempt, at, checkpoint } = start;
            let mut wrong = |id: &str, what: &str| {
                found.push(format!("{id}: task {task} epoch {epoch} attempt {attempt}: {what}"));
            };
            if !seen.insert((*task, *epoch)) {
                wrong(ids::START, "started twice");
            }
            let script = self.script(*task).unwrap_or_default();
            if *attempt > script.max_attempts(self.setting.max_attempts) {
                wrong(ids::START, "more attempts than allowed");
            }
            let story = book.stories.get(task).unwrap_or(&nothing);
            let claim = story.claims.iter().find(|claim| claim.epoch == *epoch);
            match claim.filter(|claim| claim.attempt == Some(*attempt) && claim.at <= *at) {
                None if story.miscounted => {}
                None => wrong(ids::START, "no accepted claim"),
                Some(claim) => {
                    if claim.before.cancel {
                        wrong(ids::CANCEL, "started although it was cancelled before");
                    }
                    if claim.checkpoint != *checkpoint {
                        wrong(ids::COMPACTION, "began with another checkpoint than the last one");
                    }
                }
            }
            if story.sealed.is_some_and(|sealed| sealed < *at) {
                wrong(ids::SEALED, "started after its task was sealed");
            }
            if let Some(earlier) = attempts.insert((*task, *attempt), *epoch)
                && !story.released.contains(&earlier)
            {
                wrong(ids::START, "the same attempt ran before and was not given back");
            }
        }
    }

    /// Checks that tasks end as their scripts say. Attempts may be lost where workers die, but not
    /// in runs without faults.
    fn check_fates(&self, book: &Book, found: &mut Vec<String>) {
        let done = self.fleet.deeds.lock();
        for (id, (number, _)) in self.submitted {
            let Some(story) = book.stories.get(id) else { continue };
            let (Some(fate), Some((_, epoch, body))) = (story.fate(), &story.ended) else {
                continue;
            };
            let mut wrong = |id: &str, what: String| found.push(format!("{id}: {what}"));
            if fate.end == End::Completed && *body != result(*id, *epoch) {
                wrong(ids::TERMINAL, format!("task {id} has another result: {body:?}"));
            }
            if fate.end == End::Cancelled && story.cancelled.is_none() {
                wrong(ids::CANCEL, format!("nobody cancelled task {id}"));
            }
            let Some(script) = done.scripts.get(*number) else { continue };
            let expected = script.fate(self.setting.max_attempts);
            // A worker that began afresh may have lost attempts, but an attempt that is to fail
            // never succeeds. The clock of a budget may stand still.
            let stands_still = self.setting.course == Course::Cuts && script.budget.is_some();
            let sooner = fate.end == End::Completed && fate.attempts < expected.attempts;
            let too_good = sooner && !stands_still;
            let exact = self.setting.course == Course::Calm
                && story.cancelled.is_none()
                && fate.end != End::Expired
                && !script.is_close();
            if (exact && fate != expected) || (too_good && !script.is_close()) {
                wrong(
                    ids::PROGRESS,
                    format!("task {id}: {fate:?}, expected {expected:?}: {script:?}"),
                );
            }
        }
    }

    fn count(&self, book: &Book, starts: &[Start]) -> Totals {
        let mut totals = Totals { runs: 1, starts: starts.len(), ..Totals::default() };
        totals.tasks = self.submitted.len();
        totals.waited = waits::count(self, starts);
        totals.resumed = starts.iter().filter(|start| start.checkpoint.is_some()).count();
        for (id, story) in &book.stories {
            totals.takeovers += story.takeovers().count();
            totals.releases += story.released.len();
            totals.checkpoints += story.checkpoints;
            totals.lost_claims += story.lost_claims.len();
            if matches!(self.setting.course, Course::Calm | Course::Crashes) {
                totals.at_once += timely::at_once(story);
            }
            totals.superseded += story.superseded_keys;
            totals.sealed += usize::from(story.sealed.is_some());
            let end = story.state.end();
            totals.cancelled += usize::from(end == Some(End::Cancelled));
            totals.failed += usize::from(end == Some(End::Final));
            totals.expired += usize::from(end == Some(End::Expired));
            totals.delayed += usize::from(terms::was_delayed(self, *id, story));
            totals.long_backoffs += retries::long_backoffs(self, *id, story);
        }
        totals.shown_no_more = view::gone(self);
        self.broker.with_history(|history| {
            let mut delivered = BTreeSet::new();
            for event in history.events() {
                match &event.what {
                    Happening::Received { partition, position, subscription: Some(_), .. } => {
                        let first = delivered.insert((Arc::clone(partition), *position));
                        totals.redeliveries += usize::from(!first);
                    }
                    Happening::Note(text) => {
                        totals.compactions += usize::from(text.starts_with("compacted"));
                        let trimmed =
                            text.starts_with("trimmed") && !text.starts_with("trimmed 0 ");
                        totals.trims += usize::from(trimmed);
                        totals.topic_outages += usize::from(text.contains(" is away for "));
                    }
                    Happening::Missed { .. } => totals.missed += 1,
                    Happening::Received { .. }
                    | Happening::Stored { .. }
                    | Happening::Sent { .. }
                    | Happening::Followed { .. }
                    | Happening::Fetched { .. }
                    | Happening::Unread { .. }
                    | Happening::Acked { .. } => {}
                }
            }
        });
        totals
    }

    /// The script of a task.
    pub(super) fn script(&self, task: TaskId) -> Option<Script> {
        let (number, _) = self.submitted.get(&task)?;
        self.fleet.deeds.lock().scripts.get(*number).cloned()
    }
}

/// Whether the ledger has no entry of the task any more, except for the seal that names it.
fn left(story: &Story) -> bool {
    story.keys.is_empty() && story.checkpoint_keys.is_empty()
}

/// A partition of a topic.
pub(super) fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition }
}

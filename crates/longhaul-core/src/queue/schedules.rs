//! Schedules. Every worker of the queue fires the slots that are due: the first by rank at once,
//! each further one a second later if the slot is still open. A firing is a submit with an
//! idempotency key, so the register decides which task a slot gets, without a leader or a lock.
//!
//! `schedule::firing` decides what is due. This file supplies its inputs and performs the result.

use super::{Intent, QueueContext, QueueCore, QueueEffect, Remark, ScheduledSubmission, Wake};
use crate::protocol::moment::Moment;
use crate::protocol::register::{
    Digest, DocumentKind, DocumentName, KeyKind, KeyName, QueueTask, RegisterEntry,
};
use crate::protocol::waits::{AfterFailed, WaitsFor};
use crate::schedule::firing::{FiringKey, FiringSlot, FiringState, FiringStep, SchedulePlan};
use crate::schedule::{Overlap, Schedule};
use crate::task::{TaskId, text};
use jiff::Timestamp;
use longhaul_types::Outgoing;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long each worker leaves a slot to the one before it by rank.
const TURN: Duration = Duration::from_secs(1);

/// Time after which a firing without a result counts as lost. Repeating it does no harm.
const UNDER_WAY_MAX: Duration = Duration::from_secs(10);

/// How often the wall clock is read, or the heartbeat interval if that is longer: the wall clock
/// may be set.
const CHECKED_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of past firings that are searched for unfinished tasks.
const SEARCHED_MAX: usize = 64;

/// The schedules of a register.
#[derive(Debug, Default)]
pub(super) struct PlannedSchedules {
    planned: BTreeMap<Box<str>, Planned>,
    /// Whether the worker drains and so fires nothing.
    drains: bool,
}

/// A valid schedule.
#[derive(Debug)]
struct Planned {
    plan: SchedulePlan,
    /// The slot that is due, and when it is this worker's turn.
    turn: Option<(FiringSlot, Moment)>,
    /// The slot that this worker is settling, and how long it waits for that.
    under_way: Option<(FiringSlot, Moment)>,
    /// Tasks whose cancel requests by this worker are stored.
    cancelled: BTreeSet<QueueTask>,
}

impl QueueCore {
    /// Stops firing, for a drain.
    pub const fn stop_firing(&mut self) {
        self.schedules.drains = true;
    }

    /// Takes the schedules of the register, which was read to its end and may be another one than
    /// before. Schedules that are not on it are dropped.
    pub(super) fn take_schedules(&mut self, cx: &mut QueueContext<'_>) {
        self.schedules.planned.clear();
        let standing = self.register.documents().of(DocumentKind::Schedule);
        for name in standing.map(|(name, ..)| name.clone()).collect::<Vec<DocumentName>>() {
            self.schedule_changed(&name, cx);
        }
    }

    /// Handles another version or the deletion of a schedule.
    pub(super) fn schedule_changed(&mut self, name: &DocumentName, cx: &mut QueueContext<'_>) {
        let before = self.schedules.planned.remove(name.text());
        if let Some(content) = self.register.documents().get(name) {
            match Schedule::read(content).and_then(SchedulePlan::new) {
                Ok(plan) => {
                    let cancelled = before.map(|before| before.cancelled).unwrap_or_default();
                    let planned = Planned { plan, turn: None, under_way: None, cancelled };
                    self.schedules.planned.insert(name.text().into(), planned);
                }
                Err(error) => {
                    self.log(Remark::ScheduleUnusable(name.text().into(), error.to_string()));
                }
            }
        }
        self.check_schedule(name.text(), cx);
    }

    /// Handles a register entry that may settle a slot.
    pub(super) fn slot_was_bound(&mut self, entry: &RegisterEntry, cx: &mut QueueContext<'_>) {
        let RegisterEntry::Bind(hold) = entry else { return };
        let Some(FiringKey(name, slot)) = FiringKey::parse(hold.key.name.text()) else { return };
        let Some(planned) = self.schedules.planned.get_mut(name) else { return };
        planned.under_way.take_if(|(under_way, _)| *under_way == slot);
        if self.read {
            self.check_schedule(name, cx);
        }
    }

    /// Checks all schedules when one may be due.
    pub(super) fn check_schedules(&mut self, cx: &mut QueueContext<'_>) {
        for name in self.schedules.planned.keys().cloned().collect::<Vec<Box<str>>>() {
            self.check_schedule(&name, cx);
        }
    }

    /// Handles the receipt of a firing's task: its id, if it is stored.
    pub fn handle_fired(&mut self, firing: &ScheduledSubmission, id: Option<TaskId>, now: Moment) {
        let ScheduledSubmission { schedule, slot, level, .. } = firing;
        match id {
            Some(id) => self.bind_slot(schedule, *slot, QueueTask { level: *level, id }),
            None => {
                self.handle_not_stored(Intent::Slot(schedule.clone(), Some(*slot)), now);
            }
        }
    }

    /// Handles the receipt of a cancel request on behalf of this schedule.
    pub fn handle_cancelled(
        &mut self,
        name: &str,
        task: QueueTask,
        stored: bool,
        cx: &mut QueueContext<'_>,
    ) {
        if !stored {
            return self.handle_not_stored(Intent::Slot(name.into(), None), cx.now);
        }
        if let Some(planned) = self.schedules.planned.get_mut(name) {
            planned.under_way = None;
            planned.cancelled.insert(task);
        }
        self.check_schedule(name, cx);
    }

    /// Handles a publish for this slot, or for any, that may not be stored.
    pub(super) fn slot_not_settled(
        &mut self,
        name: &str,
        slot: Option<FiringSlot>,
        cx: &mut QueueContext<'_>,
    ) {
        if let Some(planned) = self.schedules.planned.get_mut(name) {
            planned.under_way.take_if(|(under_way, _)| slot.is_none_or(|slot| *under_way == slot));
        }
        self.check_schedule(name, cx);
    }

    /// Fires the due slot of a schedule, and plans the next check.
    fn check_schedule(&mut self, name: &str, cx: &mut QueueContext<'_>) {
        let next = self.settle_slot(name, cx);
        let latest = cx.now + CHECKED_EVERY.max(self.config.heartbeat);
        let at = next.map_or(latest, |next| next.min(latest));
        if !self.schedules.planned.is_empty() {
            self.agenda.set_by(Wake::Schedules, at);
        }
    }

    /// Settles the due slot if it is this worker's turn. Returns when to check again, if the time
    /// is known.
    fn settle_slot(&mut self, name: &str, cx: &mut QueueContext<'_>) -> Option<Moment> {
        if self.schedules.drains || !self.read {
            return None;
        }
        let (now, wall_ms) = (cx.now, cx.wall_ms);
        let planned = self.schedules.planned.get(name)?;
        let level = planned.plan.schedule.task.priority();
        if !self.topics.contains_key(&level) {
            // Workers of that level know the state of its tasks.
            return None;
        }
        let mut partitions = cx.partitions.of_level(level);
        if !partitions.all(|(_, partition)| partition.machine().is_ready()) {
            return Some(now + TURN);
        }
        drop(partitions);
        let known = self.known_firings(name, &planned.plan, cx);
        let step = planned.plan.step(&known, wall_ms);
        let (FiringStep::Fire { slot, .. } | FiringStep::LeaveOut { slot, .. }) = step else {
            let FiringStep::Wait(next) = step else { return None };
            return next.map(|ms| cx.at_wall_ms(ms));
        };
        if self.is_slot_bound(name, slot) {
            // The slot is settled, even if the clock has changed; another task would only lose its
            // key.
            return Some(now + TURN);
        }
        let planned = self.schedules.planned.get_mut(name)?;
        if let Some((under_way, until)) = planned.under_way
            && under_way == slot
            && now < until
        {
            return Some(until);
        }
        let turn = match planned.turn {
            Some((of, turn)) if of == slot => turn,
            _ => now + TURN * u32::try_from(place_for(name, cx, level)).unwrap_or(u32::MAX),
        };
        planned.turn = Some((slot, turn));
        if now < turn {
            return Some(turn);
        }
        planned.under_way = Some((slot, now + UNDER_WAY_MAX));
        planned.cancelled.retain(|task| known.unfinished.contains(task));
        match step {
            FiringStep::Fire { after, cancels, .. } => {
                if !(cancels && self.cancel_all(name, &after, cx)) {
                    self.fire(name, slot, after, cx);
                }
            }
            FiringStep::LeaveOut { task, .. } => self.bind_slot(name, slot, task),
            FiringStep::Wait(_) => {}
        }
        Some(now + UNDER_WAY_MAX)
    }

    /// The known firings of a schedule, from the register and the ledgers of their tasks.
    fn known_firings(&self, name: &str, plan: &SchedulePlan, cx: &QueueContext<'_>) -> FiringState {
        let Schedule { triggers, created_at, overlap, .. } = &plan.schedule;
        let bound = |ms: &u64| self.is_slot_bound(name, FiringSlot { ms: *ms, by_hand: true });
        let by_hand = triggers.iter().copied().filter(bound);
        // A slot in the future was bound by a worker with a fast clock, or by a producer that used
        // the key itself: the slots before it stay open.
        let mut last = self.firings_back(name, false, cx.wall_ms);
        let mut known = FiringState {
            last: last.next().map(|(slot, _)| slot.ms),
            by_hand: by_hand.collect(),
            unfinished: Vec::new(),
        };
        if *overlap == Overlap::AllowAll {
            return known;
        }
        let mut tasks: BTreeMap<QueueTask, FiringSlot> = BTreeMap::new();
        for by_hand in [false, true] {
            let all = self.firings_back(name, by_hand, cx.wall_ms).take(SEARCHED_MAX);
            for (slot, task) in all.filter(|(slot, _)| slot.ms >= *created_at) {
                let first = tasks.entry(task).or_insert(slot);
                *first = slot.min(*first);
            }
        }
        tasks.retain(|task, _| !cx.is_over(*task));
        let mut unfinished: Vec<_> = tasks.into_iter().collect();
        unfinished.sort_by_key(|(_, slot)| *slot);
        known.unfinished = unfinished.into_iter().map(|(task, _)| task).collect();
        known
    }

    /// The bound firings of a schedule up to this instant, the last one first.
    fn firings_back<'a>(
        &'a self,
        name: &str,
        by_hand: bool,
        to_ms: u64,
    ) -> impl Iterator<Item = (FiringSlot, QueueTask)> + use<'a> {
        let (from, to) = FiringKey::range(name, by_hand, to_ms);
        let between = self.register.keys().between(KeyKind::Idempotency, from, to);
        between.rev().filter_map(|(name, task)| Some((FiringKey::parse(name.text())?.1, task)))
    }

    fn is_slot_bound(&self, name: &str, slot: FiringSlot) -> bool {
        key_of_slot(name, slot).is_some_and(|key| self.register.keys().holder(&key).is_some())
    }

    /// Requests the cancellation of tasks. Returns whether to wait for the receipts.
    fn cancel_all(&mut self, name: &str, tasks: &[QueueTask], cx: &QueueContext<'_>) -> bool {
        let mut awaits = false;
        for task in tasks.iter().copied() {
            let Some(partition) = cx.of(task) else { continue };
            let planned = self.schedules.planned.get(name);
            let is_asked = planned.is_some_and(|planned| planned.cancelled.contains(&task));
            if is_asked || partition.machine().fold(task.id).cancel {
                continue;
            }
            awaits = true;
            self.effects.push_back(QueueEffect::Cancel(task, name.into()));
        }
        awaits
    }

    /// Submits the task of a slot.
    fn fire(&mut self, name: &str, slot: FiringSlot, after: Vec<QueueTask>, cx: &QueueContext<'_>) {
        let Some(planned) = self.schedules.planned.get(name) else { return };
        let (key, level) =
            (FiringKey(name, slot).to_string(), planned.plan.schedule.task.priority());
        let numbers: Vec<i32> = cx.partitions.of_level(level).map(|(number, _)| number).collect();
        let [chosen, _] = halves(Digest::of(key.as_bytes()));
        let chosen = usize::try_from(chosen % numbers.len().max(1) as u64).unwrap_or_default();
        let Some(partition) = numbers.get(chosen).copied() else { return };
        let Some(message) = message_of(&planned.plan, name, slot, key, after) else { return };
        let firing = ScheduledSubmission { schedule: name.into(), slot, level, partition, message };
        self.effects.push_back(QueueEffect::Fire(Box::new(firing)));
    }

    /// Publishes that this task settles a slot. Every worker that receives the task of a firing
    /// does so as well. A lost entry is noticed, because the slot stays due.
    fn bind_slot(&mut self, name: &str, slot: FiringSlot, task: QueueTask) {
        let Some(name) = key_of_slot(name, slot) else { return };
        let stamp = self.stamps.next();
        let entry = self.register.keys().bind_of(&name, task, None, stamp);
        self.publish(entry);
    }
}

/// The worker's place in line for the firings of a schedule, different for each schedule.
fn place_for(name: &str, cx: &QueueContext<'_>, level: crate::task::Priority) -> u64 {
    let [low, high] = halves(Digest::of(name.as_bytes()));
    let id = TaskId { ledger: low, entry: high, partition: -1, batch_index: None };
    let mut partitions = cx.partitions.of_level(level);
    partitions.next().map_or(0, |(_, partition)| partition.rank(id, cx.now))
}

/// The message of a firing's task.
fn message_of(
    plan: &SchedulePlan,
    name: &str,
    slot: FiringSlot,
    key: String,
    after: Vec<QueueTask>,
) -> Option<Outgoing> {
    let template = &plan.schedule.task;
    let mut properties = template.properties.clone();
    properties.insert(text::IDEMPOTENCY_KEY.to_owned(), key);
    properties.insert(text::SCHEDULE.to_owned(), name.to_owned());
    let instant = Timestamp::from_millisecond(i64::try_from(slot.ms).ok()?).ok()?;
    properties.insert(text::SCHEDULE_SLOT.to_owned(), instant.to_string());
    // A task can wait only for tasks of its own topic. Tasks of other topics exist only if the
    // priority of the schedule was changed.
    let after: BTreeSet<TaskId> = after
        .into_iter()
        .filter(|task| task.level == template.priority())
        .map(|task| task.id)
        .collect();
    if !after.is_empty() {
        let waits = WaitsFor::of(after, AfterFailed::Run);
        properties.insert(text::AFTER.to_owned(), waits.text().ok()?);
        properties.insert(text::AFTER_FAILED.to_owned(), AfterFailed::Run.word().to_owned());
    }
    let payload = template.payload().ok()?;
    let key = properties.get(text::ORDER_KEY).cloned();
    Some(Outgoing { key, properties: properties.into(), payload, ..Outgoing::default() })
}

fn key_of_slot(name: &str, slot: FiringSlot) -> Option<KeyName> {
    KeyName::new(KeyKind::Idempotency, FiringKey(name, slot).to_string()).ok()
}

fn halves(Digest(digest): Digest) -> [u64; 2] {
    let low = digest & u128::from(u64::MAX);
    [low, digest >> 64].map(|half| u64::try_from(half).unwrap_or_default())
}

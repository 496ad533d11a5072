//! Schedules: every worker of the queue fires what is due, the first by rank at once, each further
//! one a second later if that has come to nothing. A firing is a submit with an idempotency key, so
//! the register decides which task comes of a slot: nobody leads, and nothing is locked.
//!
//! What is due: `schedule::firing`. Here it is looked up what that goes by, and done what it says.

use super::lanes::LaneId;
use super::register::OwnRegister;
use super::{Driver, Event, StopRequest};
use crate::telemetry;
use crate::transport::{Batching, OnReceipt, Outgoing, Schema};
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{Publish, publish};
use jiff::Timestamp;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::Entry as LedgerEntry;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{
    Digest, DocumentKind, DocumentName, Entry, KeyKind, KeyName, QueueTask,
};
use longhaul_core::protocol::waits::{AfterFailed, WaitsFor};
use longhaul_core::schedule::firing::{FiringKey, Known, Plan, Slot, Step};
use longhaul_core::schedule::{Overlap, Schedule};
use longhaul_core::task::{TaskId, text};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long each worker leaves a slot to the one before it by rank.
const TURN: Duration = Duration::from_secs(1);

/// How long a firing may take until it is taken for lost. Another one does no harm.
const UNDER_WAY_MAX: Duration = Duration::from_secs(10);

/// The wall clock may be set: it is looked at so often, or with each heartbeat if those come less
/// often.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(60);

/// So many of the last firings are looked through for tasks that are not over.
const LOOKED_THROUGH_MAX: usize = 64;

/// The schedules of a register.
#[derive(Default)]
pub(super) struct Schedules {
    planned: BTreeMap<Box<str>, Planned>,
    /// They will be looked at then.
    alarm: Option<Moment>,
    /// Publishers of tasks, opened by the first firing.
    publishes: BTreeMap<LaneId, Mailbox<Publish>>,
}

/// One that can be used.
struct Planned {
    plan: Plan,
    /// The slot that is due, and from when on it is this worker's turn.
    turn: Option<(Slot, Moment)>,
    /// The slot that this worker is settling, and until when that is awaited.
    under_way: Option<(Slot, Moment)>,
    /// Tasks whose cancellation this worker has stored.
    cancelled: BTreeSet<QueueTask>,
}

/// What can happen to a schedule.
pub(in crate::worker) enum ScheduleEvent {
    /// They are to be looked at.
    Due(Moment),
    /// A task is stored, which is to be bound to its slot; or it may not be.
    Fired { name: Box<str>, slot: Slot, task: Option<QueueTask> },
    /// A request to cancel a task is stored, or may not be.
    Cancelled { name: Box<str>, task: QueueTask, stored: bool },
}

impl Driver {
    /// A register was read to its end, perhaps another one than before: schedules that do not stand
    /// there are gone.
    pub(super) fn take_up_schedules(&mut self, number: usize, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.schedules.planned.clear();
        let standing = register.fold.documents().of(DocumentKind::Schedule);
        let names: Vec<DocumentName> = standing.map(|(name, ..)| name.clone()).collect();
        for name in names {
            self.schedule_changed(number, &name, now);
        }
    }

    /// Another version of a schedule stands, or it was deleted.
    pub(super) fn schedule_changed(&mut self, number: usize, name: &DocumentName, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let before = register.schedules.planned.remove(name.text());
        if let Some(content) = register.fold.documents().get(name) {
            match Schedule::read(content).and_then(Plan::new) {
                Ok(plan) => {
                    let cancelled = before.map(|before| before.cancelled).unwrap_or_default();
                    let planned = Planned { plan, turn: None, under_way: None, cancelled };
                    register.schedules.planned.insert(name.text().into(), planned);
                }
                Err(error) => {
                    let schedule = name.text();
                    tracing::error!(schedule, %error, "a schedule cannot be used: it does not fire");
                }
            }
        }
        self.look_at_schedule(number, name.text(), now);
    }

    /// An entry of the register was read: a slot may be settled.
    pub(super) fn firing_was_read(&mut self, number: usize, entry: &Entry, now: Moment) {
        let Entry::Bind(hold) = entry else { return };
        let Some(FiringKey(name, slot)) = FiringKey::parse(hold.key.name.text()) else { return };
        let Some(register) = self.registers.get_mut(number) else { return };
        let Some(planned) = register.schedules.planned.get_mut(name) else { return };
        if planned.under_way.is_some_and(|(under_way, _)| under_way == slot) {
            planned.under_way = None;
        }
        if register.is_read() {
            self.look_at_schedule(number, name, now);
        }
    }

    pub(super) fn handle_schedule(&mut self, number: usize, event: ScheduleEvent, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        match event {
            ScheduleEvent::Due(at) => {
                if register.schedules.alarm != Some(at) {
                    return;
                }
                register.schedules.alarm = None;
                let names: Vec<Box<str>> = register.schedules.planned.keys().cloned().collect();
                for name in names {
                    self.look_at_schedule(number, &name, now);
                }
            }
            ScheduleEvent::Fired { name, slot, task: Some(task) } => {
                self.bind_slot(number, &name, slot, task);
            }
            ScheduleEvent::Fired { name, slot, task: None } => {
                if let Some(planned) = register.schedules.planned.get_mut(&name) {
                    planned.under_way.take_if(|(under_way, _)| *under_way == slot);
                }
                self.look_at_schedule(number, &name, now);
            }
            ScheduleEvent::Cancelled { name, task, stored } => {
                if let Some(planned) = register.schedules.planned.get_mut(&name) {
                    planned.under_way = None;
                    if stored {
                        planned.cancelled.insert(task);
                    }
                }
                self.look_at_schedule(number, &name, now);
            }
        }
    }

    /// Does what is due of a schedule, and has it looked at again when there may be more.
    fn look_at_schedule(&mut self, number: usize, name: &str, now: Moment) {
        let next = self.settle(number, name, now);
        let latest = now + LOOKED_AT_EVERY.max(self.env.heartbeat);
        let at = next.map_or(latest, |next| next.min(latest));
        let Some(register) = self.registers.get_mut(number) else { return };
        let Schedules { planned, alarm, .. } = &mut register.schedules;
        if planned.is_empty() || alarm.is_some_and(|alarm| alarm <= at) {
            return;
        }
        *alarm = Some(at);
        let clock = self.env.clock;
        self.pending.push(Box::pin(async move {
            clock.sleep_until(at).await;
            Event::Schedule { register: number, event: ScheduleEvent::Due(at) }
        }));
    }

    /// Does what is due, if it is this worker's turn. Says when to look again, if something is
    /// known to come.
    fn settle(&mut self, number: usize, name: &str, now: Moment) -> Option<Moment> {
        if self.asked() != StopRequest::None {
            return None;
        }
        let wall_ms = self.env.clock.wall_ms();
        let register = self.registers.get(number).filter(|register| register.is_read())?;
        let planned = register.schedules.planned.get(name)?;
        let Some(topic) = self.topic_of(number, &planned.plan) else {
            // Workers of that level see how its tasks stand.
            return None;
        };
        let mut lanes = self.lanes.range(LaneId::all_of(topic));
        if !lanes.all(|(_, lane)| lane.core.machine().is_ready()) {
            return Some(now + TURN);
        }
        let known = self.known_firings(number, name, &planned.plan, wall_ms);
        let step = planned.plan.step(&known, wall_ms);
        let (Step::Fire { slot, .. } | Step::LeaveOut { slot, .. }) = step else {
            let Step::Wait(next) = step else { return None };
            return next.map(|ms| now + Duration::from_millis(ms.saturating_sub(wall_ms)));
        };
        if is_bound(register, name, slot) {
            // It is settled, whatever the time is by now; another task would only lose its key.
            return Some(now + TURN);
        }
        let place = self.place_for(topic, name, now);
        let planned = self.registers.get_mut(number)?.schedules.planned.get_mut(name)?;
        if let Some((under_way, until)) = planned.under_way
            && under_way == slot
            && now < until
        {
            return Some(until);
        }
        let turn = match planned.turn {
            Some((of, turn)) if of == slot => turn,
            _ => now + TURN * u32::try_from(place).unwrap_or(u32::MAX),
        };
        planned.turn = Some((slot, turn));
        if now < turn {
            return Some(turn);
        }
        planned.under_way = Some((slot, now + UNDER_WAY_MAX));
        planned.cancelled.retain(|task| known.unfinished.contains(task));
        match step {
            Step::Fire { after, cancels, .. } => {
                if !(cancels && self.cancel_all(number, name, &after)) {
                    self.fire(number, name, topic, slot, after);
                }
            }
            Step::LeaveOut { task, .. } => self.bind_slot(number, name, slot, task),
            Step::Wait(_) => {}
        }
        Some(now + UNDER_WAY_MAX)
    }

    /// Which of the worker's topics the tasks of a schedule go to, if it is one of them.
    fn topic_of(&self, number: usize, plan: &Plan) -> Option<u16> {
        let of_queue = || self.topics.iter().filter(|topic| topic.register == number);
        // Names of levels are longer.
        let queue = of_queue().min_by_key(|topic| topic.name().len())?;
        let wanted = queue.level_name(plan.schedule.task.priority());
        let is_wanted =
            |topic: &super::TaskTopic| topic.register == number && topic.name() == wanted;
        u16::try_from(self.topics.iter().position(is_wanted)?).ok()
    }

    /// The own place in line for the firings of a schedule: another one for each schedule.
    fn place_for(&self, topic: u16, name: &str, now: Moment) -> u64 {
        let [low, high] = halves(Digest::of(name.as_bytes()));
        let mut lanes = self.lanes.range(LaneId::all_of(topic));
        let id = TaskId { ledger: low, entry: high, partition: -1, batch_index: None };
        lanes.next().map_or(0, |(_, lane)| lane.core.rank(id, now))
    }

    /// What the register says of a schedule's firings, and the ledgers of their tasks.
    fn known_firings(&self, number: usize, name: &str, plan: &Plan, wall_ms: u64) -> Known {
        let Some(register) = self.registers.get(number) else { return Known::default() };
        let Schedule { triggers, created_at, overlap, .. } = &plan.schedule;
        let bound = |ms: &u64| is_bound(register, name, Slot { ms: *ms, by_hand: true });
        let by_hand = triggers.iter().copied().filter(bound);
        // A slot behind now is bound by a worker whose clock is ahead, or by a producer that has
        // taken the key as its own: those before it stay open.
        let mut last = firings_back(register, name, false, wall_ms);
        let mut known = Known {
            last: last.next().map(|(slot, _)| slot.ms),
            by_hand: by_hand.collect(),
            unfinished: Vec::new(),
        };
        if *overlap == Overlap::AllowAll {
            return known;
        }
        let mut tasks: BTreeMap<QueueTask, Slot> = BTreeMap::new();
        for by_hand in [false, true] {
            let all = firings_back(register, name, by_hand, wall_ms).take(LOOKED_THROUGH_MAX);
            for (slot, task) in all.filter(|(slot, _)| slot.ms >= *created_at) {
                let first = tasks.entry(task).or_insert(slot);
                *first = slot.min(*first);
            }
        }
        tasks.retain(|task, _| !self.is_over(number, *task));
        let mut unfinished: Vec<_> = tasks.into_iter().collect();
        unfinished.sort_by_key(|(_, slot)| *slot);
        known.unfinished = unfinished.into_iter().map(|(task, _)| task).collect();
        known
    }

    /// Asks for the end of tasks. Whether that is to be awaited.
    fn cancel_all(&self, number: usize, name: &str, tasks: &[QueueTask]) -> bool {
        let register = self.registers.get(number);
        let planned = register.and_then(|register| register.schedules.planned.get(name));
        let mut awaits = false;
        for task in tasks.iter().copied() {
            let Some(lane) = self.lane_of(number, task) else { continue };
            let is_asked = planned.is_some_and(|planned| planned.cancelled.contains(&task));
            if is_asked || lane.core.machine().fold(task.id).cancel {
                continue;
            }
            awaits = true;
            let (answers, name) = (self.env.answers.clone(), Box::<str>::from(name));
            let on_receipt = OnReceipt::new(move |published| {
                let event = ScheduleEvent::Cancelled { name, task, stored: published.is_ok() };
                let event = Event::Schedule { register: number, event };
                let failed = published.is_err();
                answers.put(if failed { Event::Later(Box::new(event)) } else { event });
            });
            let message = ledger::message(&LedgerEntry::Cancel(task.id), b"");
            lane.ledger.put(Publish { message, on_receipt, expires: None });
        }
        awaits
    }

    /// Submits the task of a slot.
    fn fire(&mut self, number: usize, name: &str, topic: u16, slot: Slot, after: Vec<QueueTask>) {
        let Self { registers, lanes, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        let Some(planned) = register.schedules.planned.get(name) else { return };
        let key = FiringKey(name, slot).to_string();
        let of_topic: Vec<LaneId> = lanes.range(LaneId::all_of(topic)).map(|(id, _)| *id).collect();
        let [chosen, _] = halves(Digest::of(key.as_bytes()));
        let chosen = usize::try_from(chosen % of_topic.len().max(1) as u64).unwrap_or_default();
        let Some(id) = of_topic.get(chosen).copied() else { return };
        let Some(lane) = lanes.get(&id) else { return };
        let Some(message) = message_of(&planned.plan, name, slot, key, after) else { return };
        tracing::debug!(schedule = name, slot = slot.ms, "fires");
        let mailbox = register.schedules.publishes.entry(id).or_insert_with(|| {
            let mailbox = Mailbox::new();
            let service = env.service(&lane.topics.task);
            let publishing = publish(service, Batching::Off, Schema::None, mailbox.clone());
            services.spawn(env.gate.wrap(publishing));
            mailbox
        });
        let (answers, name) = (env.answers.clone(), Box::<str>::from(name));
        let (topic, level) = (lane.topics.task.clone(), planned.plan.schedule.task.priority());
        let payload_bytes = message.payload.len();
        let on_receipt = OnReceipt::new(move |published| {
            let id = published.ok().map(|position| TaskId::new(position, topic.partition));
            let task = id.map(|id| QueueTask { level, id });
            if task.is_some() {
                telemetry::submitted(&topic.topic, payload_bytes);
            }
            let event = ScheduleEvent::Fired { name, slot, task };
            let event = Event::Schedule { register: number, event };
            answers.put(if task.is_none() { Event::Later(Box::new(event)) } else { event });
        });
        mailbox.put(Publish { message, on_receipt, expires: None });
    }

    /// Publishes that a slot is settled by this task. Whoever receives the task of a firing does so
    /// as well; one that is lost is noticed, because the slot stays due.
    fn bind_slot(&mut self, number: usize, name: &str, slot: Slot, task: QueueTask) {
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        let Some(name) = key_name(name, slot) else { return };
        let stamp = register.next_stamp();
        let entry = register.fold.keys().bind_of(&name, task, None, stamp);
        register.publish(env, services, &entry, OnReceipt::ignored());
    }
}

/// The message of a firing's task.
fn message_of(
    plan: &Plan,
    name: &str,
    slot: Slot,
    key: String,
    after: Vec<QueueTask>,
) -> Option<Outgoing> {
    let template = &plan.schedule.task;
    let mut properties = template.properties.clone();
    properties.insert(text::IDEMPOTENCY_KEY.to_owned(), key);
    properties.insert(text::SCHEDULE.to_owned(), name.to_owned());
    let instant = Timestamp::from_millisecond(i64::try_from(slot.ms).ok()?).ok()?;
    properties.insert(text::SCHEDULE_SLOT.to_owned(), instant.to_string());
    // A task waits for those of its own topic. Others are there only if somebody has changed the
    // priority of the schedule.
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

fn key_name(name: &str, slot: Slot) -> Option<KeyName> {
    KeyName::new(KeyKind::Idempotency, FiringKey(name, slot).to_string()).ok()
}

fn is_bound(register: &OwnRegister, name: &str, slot: Slot) -> bool {
    let name = key_name(name, slot);
    name.is_some_and(|name| register.fold.keys().holder(&name).is_some())
}

/// The firings of a schedule up to this instant that are bound, from the last one back.
fn firings_back<'a>(
    register: &'a OwnRegister,
    name: &str,
    by_hand: bool,
    to_ms: u64,
) -> impl Iterator<Item = (Slot, QueueTask)> + use<'a> {
    let (from, to) = FiringKey::range(name, by_hand, to_ms);
    let between = register.fold.keys().between(KeyKind::Idempotency, from, to);
    between.rev().filter_map(|(name, task)| Some((FiringKey::parse(name.text())?.1, task)))
}

fn halves(Digest(digest): Digest) -> [u64; 2] {
    let low = digest & u128::from(u64::MAX);
    [low, digest >> 64].map(|half| u64::try_from(half).unwrap_or_default())
}

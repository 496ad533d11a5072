//! One worker on one queue: its decisions by the register and by the dependencies between the
//! queue's tasks. Pure, like [`Partition`]: it takes events and times and returns [`QueueEffect`]s.
//!
//! A partition knows its own tasks. The queue handles everything that concerns several of them, on
//! all topics of the queue:
//!
//! | file | decides |
//! |---|---|
//! | `messages` | nothing: passes a message to the partition of its task, and to the files below |
//! | `waiting_for_keys` | which new task binds its key, is admitted, or has lost |
//! | `holds` | which holds of keys are released, renewed or removed, and when a period begins |
//! | `overwriting` | which task makes room for a later one with its dedupe key |
//! | `tickets`, `rates` | which task passes the limits, and when |
//! | `abandoned_tickets` | which tickets of other workers are given back |
//! | `dependencies`, `waiting_for_tasks` | which task waits for which others, and when it may begin |
//! | `existence` | whether the tasks exist that others wait for |
//! | `schedules` | which task is submitted when |
//! | `settings` | what the settings of the queue mean for this worker |
//!
//! All of them share two mechanisms. One agenda holds the times at which the queue looks at
//! something. And a publish may have an [`Intent`]: if the entry may not be stored, the queue looks
//! at the intent again after [`AGAIN_AFTER`].

mod abandoned_tickets;
mod dependencies;
mod effect;
mod existence;
mod holds;
mod messages;
mod overwriting;
mod rates;
#[cfg(feature = "schedules")]
mod schedules;
mod settings;
mod tickets;
mod waiting_for_keys;
mod waiting_for_tasks;

use crate::agenda::Agenda;
use crate::partition::Partition;
use crate::protocol::fold::Phase;
use crate::protocol::key::OwnerId;
use crate::protocol::moment::Moment;
use crate::protocol::register::{
    DocumentKind, DocumentName, Gate, KeyName, QueueTask, Register, RegisterEntry, RegisterVerdict,
    Stamp,
};
use crate::task::{Position, Priority};
pub use dependencies::{Dependencies, Dependent, SHOWN_MAX};
#[cfg(feature = "schedules")]
pub use effect::ScheduledSubmission;
pub use effect::{Intent, QueueEffect, Remark};
use holds::Holds;
use overwriting::Overwriters;
#[cfg(feature = "schedules")]
use schedules::PlannedSchedules;
pub use settings::TakenSettings;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tickets::Tickets;
use waiting_for_keys::KeyWaitList;

/// Pause before an intent whose publish may not be stored is looked at again: the topic may refuse
/// the next entry as well.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of wakes handled in one run.
const AT_ONCE_MAX: usize = 1_000;

/// The worker's settings that the queue needs.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// The heartbeat interval.
    pub heartbeat: Duration,
    /// Length of a period of the register.
    pub key_period: Duration,
}

/// The worker's partitions of a queue.
pub trait Partitions {
    /// The partition with this number of the topic of this level; the number is -1 on a topic
    /// without partitions.
    fn get(&self, level: Priority, partition: i32) -> Option<&Partition>;

    /// Mutable access to the same partition.
    fn get_mut(&mut self, level: Priority, partition: i32) -> Option<&mut Partition>;

    /// All partitions of a level, in order, each with its number.
    fn of_level(&self, level: Priority) -> Box<dyn Iterator<Item = (i32, &Partition)> + '_>;
}

/// The inputs of the queue's decisions, beside the entries read.
#[expect(missing_debug_implementations, reason = "it borrows the partitions")]
pub struct QueueContext<'a> {
    /// The time.
    pub now: Moment,
    /// The wall clock, in ms since the epoch.
    pub wall_ms: u64,
    /// The partitions of the worker.
    pub partitions: &'a mut dyn Partitions,
}

impl QueueContext<'_> {
    /// The partition of a task, if the worker works on it.
    fn of(&self, task: QueueTask) -> Option<&Partition> {
        self.partitions.get(task.level, task.id.partition)
    }

    fn of_mut(&mut self, task: QueueTask) -> Option<&mut Partition> {
        self.partitions.get_mut(task.level, task.id.partition)
    }

    /// Whether the task is over according to the ledger.
    fn is_over(&self, task: QueueTask) -> bool {
        let machine = self.of(task).map(Partition::machine).filter(|machine| machine.is_ready());
        machine.is_some_and(|machine| machine.fold(task.id).phase.is_terminal())
    }

    /// The same, for the worker that keeps the metadata topic of the task's partition. `None` if
    /// this worker does not know, or another one keeps it.
    fn is_over_here(&self, task: QueueTask) -> Option<bool> {
        let partition = self.of(task)?;
        let keeps = partition.machine().is_ready() && partition.keeps_metadata();
        keeps.then(|| self.is_over(task))
    }

    fn phase(&self, task: QueueTask) -> Option<Phase> {
        self.of(task).map(|partition| partition.machine().fold(task.id).phase)
    }

    /// The moment at which the wall clock will show this time, unless the clock is changed.
    fn at_wall_ms(&self, at_ms: u64) -> Moment {
        self.now + Duration::from_millis(at_ms.saturating_sub(self.wall_ms))
    }
}

/// Something that the queue looks at when its time has come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// A publish that may not be stored, or a bind that the submitter has had time to publish.
    Again(Intent),
    /// A token of a rate may be available for this task.
    Ticket(QueueTask),
    /// A token of this rate may be available.
    Rate(Gate),
    AbandonedTickets,
    Holds,
    /// The overwriters of this key.
    Overwriters(KeyName),
    /// The search for the tasks that this one waits for.
    Dependencies(QueueTask),
    /// This task has waited long enough for keys that no task has taken.
    KeyWait(QueueTask),
    #[cfg(feature = "schedules")]
    Schedules,
}

/// Makes unique stamps.
#[derive(Clone, Copy, Debug)]
struct Stamps {
    writer: OwnerId,
    serial: u64,
}

impl Stamps {
    const fn next(&mut self) -> Stamp {
        self.serial += 1;
        Stamp { writer: self.writer, serial: self.serial }
    }

    fn is_own(self, stamp: Stamp) -> bool {
        self.writer == stamp.writer
    }
}

/// The core of a queue. See the module's documentation.
#[derive(Debug)]
pub struct QueueCore {
    config: QueueConfig,
    register: Register,
    /// Whether the register was read to its end.
    read: bool,
    stamps: Stamps,
    /// The names of the worker's topics of this queue.
    topics: BTreeMap<Priority, Box<str>>,
    settings: TakenSettings,
    waiting: KeyWaitList,
    holds: Holds,
    overwriters: Overwriters,
    tickets: Tickets,
    dependencies: Dependencies,
    #[cfg(feature = "schedules")]
    schedules: PlannedSchedules,
    agenda: Agenda<Wake>,
    effects: VecDeque<QueueEffect>,
}

impl QueueCore {
    /// Creates a queue whose register is not read. `writer` is a fresh random id.
    #[must_use]
    pub fn new(config: QueueConfig, writer: OwnerId) -> Self {
        Self {
            config,
            register: Register::default(),
            read: false,
            stamps: Stamps { writer, serial: 0 },
            topics: BTreeMap::new(),
            settings: TakenSettings::default(),
            waiting: KeyWaitList::default(),
            holds: Holds::default(),
            overwriters: Overwriters::default(),
            tickets: Tickets::default(),
            dependencies: Dependencies::default(),
            #[cfg(feature = "schedules")]
            schedules: PlannedSchedules::default(),
            agenda: Agenda::default(),
            effects: VecDeque::new(),
        }
    }

    /// Adds the topic of this level, with its name.
    pub fn add_topic(&mut self, level: Priority, name: &str) {
        self.topics.insert(level, name.into());
    }

    /// The state of the register.
    #[must_use]
    pub const fn register(&self) -> &Register {
        &self.register
    }

    /// Whether the register was read to its end.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.read
    }

    /// The settings of the queue.
    #[must_use]
    pub const fn settings(&self) -> &TakenSettings {
        &self.settings
    }

    /// The tasks that wait for others.
    #[must_use]
    pub const fn dependencies(&self) -> &Dependencies {
        &self.dependencies
    }

    /// The parts that must not grow with the number of finished tasks, with their names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &dyn std::fmt::Debug); 7] {
        [
            ("register", &self.register),
            ("tasks that wait for keys", &self.waiting),
            ("holds", &self.holds),
            ("overwriters", &self.overwriters),
            ("tickets", &self.tickets),
            ("dependencies", &self.dependencies),
            ("agenda", &self.agenda),
        ]
    }

    /// Takes the next effect.
    pub fn poll_effect(&mut self) -> Option<QueueEffect> {
        self.effects.pop_front()
    }

    /// When to run the queue next, if nothing happens.
    #[must_use]
    pub fn timeout(&self) -> Option<Moment> {
        self.agenda.next()
    }

    /// Handles everything that is due.
    pub fn run(&mut self, cx: &mut QueueContext<'_>) {
        // More wakes, and a long check, continue in the next run: the worker handles its events in
        // between.
        let due: Vec<Wake> =
            std::iter::from_fn(|| self.agenda.pop_due(cx.now)).take(AT_ONCE_MAX).collect();
        for wake in due {
            self.wake(wake, cx);
        }
    }

    fn wake(&mut self, wake: Wake, cx: &mut QueueContext<'_>) {
        match wake {
            Wake::Again(intent) => self.do_again(intent, cx),
            Wake::Ticket(task) => self.pass_gates(task, cx),
            Wake::Rate(gate) => self.rate_is_due(&gate, cx),
            Wake::AbandonedTickets => self.give_back_abandoned(cx),
            Wake::Holds => self.check_holds(cx),
            Wake::Overwriters(name) => self.overwriters_are_due(&name, cx),
            Wake::Dependencies(task) => self.dependencies_are_due(task, cx),
            Wake::KeyWait(task) => self.give_up_keys(task, cx),
            #[cfg(feature = "schedules")]
            Wake::Schedules => self.check_schedules(cx),
        }
    }

    /// Handles a publish that may not be stored.
    fn do_again(&mut self, intent: Intent, cx: &mut QueueContext<'_>) {
        match intent {
            Intent::Bind(name, task) => self.bind_is_due(&name, task, cx),
            Intent::Hold(task) => self.hold_not_stored(task),
            Intent::Ticket(ticket) => self.ticket_not_stored(&ticket, cx),
            Intent::GiveBack(ticket) => self.give_back_not_stored(ticket),
            #[cfg(feature = "schedules")]
            Intent::Slot(name, slot) => self.slot_not_settled(&name, slot, cx),
        }
    }

    /// Plans to handle an entry that may not be stored.
    pub fn handle_not_stored(&mut self, intent: Intent, now: Moment) {
        self.agenda.set(Wake::Again(intent), now + AGAIN_AFTER);
    }

    /// Handles an entry of the register, published at this time (ms since the epoch).
    pub fn handle_entry(
        &mut self,
        entry: &RegisterEntry,
        position: Position,
        published_ms: u64,
        cx: &mut QueueContext<'_>,
    ) {
        let verdict = self.register.apply_at(entry, position, published_ms);
        let accepted = verdict == Some(RegisterVerdict::Accepted);
        let begins = matches!(entry, RegisterEntry::Period(..)) && accepted;
        self.holds.period_began(begins, published_ms, cx.wall_ms);
        if let RegisterEntry::Document(document) = entry
            && (accepted || document.key.name == DocumentName::queue_settings())
            && self.read
        {
            self.document_changed(&document.key.name, cx);
        }
        let key = entry.key();
        if let Some(key) = key.hold() {
            self.key_was_read(key, cx);
            self.dependency_was_bound(&key.name, cx);
        }
        if self.read {
            self.hold_was_read(entry, cx);
        }
        if let (RegisterEntry::Bind(hold), Some(RegisterVerdict::Lost(to))) = (entry, verdict) {
            self.overwriter_lost(hold, to, cx);
        }
        if let Some(key) = key.hold() {
            self.overwrite(&key.name, cx);
        }
        #[cfg(feature = "schedules")]
        self.slot_was_bound(entry, cx);
        self.ticket_was_read(entry, cx);
    }

    /// Handles the end of the register: at the start, or after it was replaced.
    pub fn handle_read(&mut self, cx: &mut QueueContext<'_>) {
        self.read = true;
        self.register.read_to_end(cx.wall_ms);
        if self.register.start().is_none() {
            let start = RegisterEntry::Start(self.stamps.next());
            // If this entry is lost, the next worker writes another one.
            self.publish(start);
        }
        self.take_settings(cx);
        self.effects.push_back(QueueEffect::DrainRequested);
        #[cfg(feature = "schedules")]
        self.take_schedules(cx);
        self.recheck_all_tickets(cx);
        self.recheck_all_keys(cx);
        self.forget_unread_holds();
        self.recheck_overwriters(cx);
        self.check_holds_later(cx.now);
        self.effects.push_back(QueueEffect::Read);
    }

    /// Handles the deletion or replacement of the register: it is read again from its start.
    pub fn handle_replaced(&mut self) {
        self.read = false;
        self.register = Register::default();
        self.holds.forget();
    }

    fn document_changed(&mut self, name: &DocumentName, cx: &mut QueueContext<'_>) {
        match name.kind() {
            #[cfg(feature = "schedules")]
            DocumentKind::Schedule => self.schedule_changed(name, cx),
            #[cfg(not(feature = "schedules"))]
            DocumentKind::Schedule => {}
            DocumentKind::Settings => self.take_settings(cx),
            DocumentKind::Drain => self.effects.push_back(QueueEffect::DrainRequested),
        }
    }

    /// Publishes to the register. The queue does nothing if the entry is not stored.
    fn publish(&mut self, entry: RegisterEntry) {
        self.effects.push_back(QueueEffect::Publish(entry, None));
    }

    /// Publishes to the register. The queue looks at the intent again if the entry may not be
    /// stored.
    fn publish_for(&mut self, intent: Intent, entry: RegisterEntry) {
        self.effects.push_back(QueueEffect::Publish(entry, Some(intent)));
    }

    fn log(&mut self, remark: Remark) {
        self.effects.push_back(QueueEffect::Log(remark));
    }

    /// Whether this worker is the first of the queue, which does the work that only one worker
    /// needs to do. All workers go by the queue's own topic, if they work on it.
    fn is_first(&self, cx: &QueueContext<'_>) -> bool {
        let levels = [Priority::Normal, Priority::High, Priority::Low].into_iter();
        let levels = levels.filter(|level| self.topics.contains_key(level));
        let mut partitions = levels.flat_map(|level| cx.partitions.of_level(level));
        partitions.next().is_some_and(|(_, partition)| partition.keeps_metadata())
    }
}

/// Removes a task from the set of this key. Returns whether it was there.
fn remove_from<K: Ord>(
    map: &mut BTreeMap<K, BTreeSet<QueueTask>>,
    key: &K,
    task: QueueTask,
) -> bool {
    let Some(all) = map.get_mut(key) else { return false };
    let was_there = all.remove(&task);
    if all.is_empty() {
        map.remove(key);
    }
    was_there
}

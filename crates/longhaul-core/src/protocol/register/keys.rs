//! The holders of keys. One rule for both kinds: a task holds a key from the bind that was accepted
//! until its release, or until the hold has not been renewed for long.
//!
//! The clock of the register is its **periods**. An entry begins each, so every reader is in the
//! same period at the same place of the log. An entry counts only in the period that its writer had
//! read. A hold lasts through the period of its newest entry and the two after it: a bind of the
//! holder in a later period renews it. Workers renew the holds of unfinished tasks in each period,
//! before they begin the next one. So a key is held for at least one whole period after the end of
//! its task. Keys of firings and of replays are [permanent](KeyName::is_permanent).
//!
//! State of a key: (epoch, holder, released). An unknown key is free, and its epoch is zero.
//!
//! | entry | accepted iff | else |
//! |---|---|---|
//! | bind | its epoch is above the current one. Of the holder, in the current epoch and a later period: it renews the hold | held by another task: that message has *lost*. Held by the same task: a repetition. Free: *stale*, it decides nothing, and whoever wrote it looks again |
//! | bind of an [overwriter](Overwriting) | the same | held by a lower task of its lane: it is *behind* that, and decides nothing. Else the same |
//! | release | the task holds the key in that epoch; or that epoch is above the current one | ignored |
//! | any of another period | never | it is *late*, and its writer looks again |
//! | period | its number is above the current one | ignored |
//! | tombstone | it changes nothing but the list of what is still to be removed | |
//!
//! The bind of a free key carries the epoch after the one read. The bind of a held key, which
//! records that its message has lost, carries the epoch read. So in a whole log an epoch above the
//! current one means a free key. For a reader in the middle of a compaction it means that a
//! release, and perhaps more, was removed before the reader came there.
//!
//! A message that has lost can never hold the key, although its bind may have been written several
//! times: the writers of all of them had not read the first one that was stored. So their epochs
//! are not above that of the holder it lost against, and after that one's release they are stale.
//! Entries after the loss was forgotten are late.
//!
//! [The entries that may be removed](super::expired), and their order, are such that no reader
//! without some of them decides differently.

mod held_by;
mod overwriting;
mod rest;

pub use overwriting::Overwriting;

use super::entry::{Digest, Hold, HoldKey, KeyKind, KeyName, Period, RegisterEntry, Stamp};
use super::expired::Expired;
use super::queue_task::{QueuePartition, QueueTask};
use crate::protocol::key::Epoch;
use held_by::HeldBy;
use rest::{LeftoverEntry, RestKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Number of periods for which a hold lasts, after that of its newest entry.
const LASTS: u32 = 2;

/// The fold of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    period: Period,
    keys: BTreeMap<KeyName, KeyFold>,
    /// The held keys by holder, separately for each kind.
    held_by: HeldBy,
    /// Keys for which overwriters wait.
    overwritten: BTreeSet<KeyName>,
    expired: Expired,
}

/// The state of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyFold {
    holder: QueueTask,
    epoch: Epoch,
    released: bool,
    /// Whether the hold has expired without a renewal: the key is free. This does not change the
    /// effect of an entry: a writer that has read the same and binds the key uses the next epoch. A
    /// bind of this epoch comes from a writer that has read a renewal which compaction has removed
    /// for this reader.
    lapsed: bool,
    /// The period of the newest entry that counts.
    period: Period,
    digest: Option<Digest>,
    /// The period and stamp of the newest bind that counts.
    bound: (Period, Stamp),
    /// All other entries of the key that are on the register. Mostly none.
    rest: Vec<LeftoverEntry>,
    /// Overwriters behind a holder that are undecided.
    behind: BTreeMap<QueueTask, Option<Digest>>,
}

/// The fold's verdict on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterVerdict {
    /// It counts.
    Accepted,
    /// A bind: this other task holds the key, and the message has lost it for good.
    Lost(QueueTask),
    /// It has no effect.
    Ignored(RegisterIgnoredReason),
}

/// Why an entry has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterIgnoredReason {
    /// The task holds the key already.
    Repeated,
    /// It was written before the key was released.
    Stale,
    /// A bind of an overwriter: the holder of the key must make room for it.
    Behind,
    /// It was written before the period began.
    Late,
    /// A release by a task that does not hold the key in that epoch.
    NotHeld,
    /// It has no effect, whatever it names.
    Tombstone,
    /// A document whose version, or a later one, is there already.
    Outdated,
}

/// The holder of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The task.
    pub task: QueueTask,
    /// Its epoch of the key.
    pub epoch: Epoch,
    /// The digest of its payload, if the bind has one.
    pub digest: Option<Digest>,
}

/// Whether a worker may claim a message with a key, of which it holds a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The message is the key's task.
    Holds,
    /// Undecided: the worker publishes a bind of the message, and waits until it is read back.
    Bind,
    /// The message is an overwriter's, and this task, the holder, makes room for it.
    Behind(QueueTask),
    /// Another task holds the key, or a later overwriter will replace it. The message is closed
    /// without being run.
    Lost(QueueTask),
}

/// A submitter's next step for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Submitting {
    /// Publish the task's message, then decide again.
    Submit,
    /// Publish a bind of this message, its own, and decide again after reading it back.
    Bind(QueueTask),
    /// Answer with this task.
    Answer(QueueTask),
}

impl KeyFold {
    fn of(Hold { key, digest, .. }: &Hold) -> Self {
        Self {
            holder: key.task,
            epoch: key.epoch,
            released: false,
            lapsed: false,
            period: key.period,
            digest: *digest,
            bound: (key.period, key.stamp),
            rest: Vec::new(),
            behind: BTreeMap::new(),
        }
    }

    /// Whether the holder holds it now.
    const fn is_held(&self) -> bool {
        !self.released && !self.lapsed
    }

    fn is_held_by(&self, task: QueueTask) -> bool {
        self.is_held() && self.holder == task
    }

    /// The task against which a bind of this one has lost.
    fn named_loss(&self, task: QueueTask) -> Option<QueueTask> {
        self.rest.iter().filter(|rest| rest.task == task).find_map(LeftoverEntry::lost_to)
    }

    fn push(&mut self, kind: RestKind, key: &HoldKey) {
        let HoldKey { period, epoch, task, stamp, .. } = *key;
        self.rest.push(LeftoverEntry { kind, period, epoch, task, stamp });
    }

    /// The bind that has counted so far.
    fn last_bound(&self) -> LeftoverEntry {
        let (period, stamp) = self.bound;
        LeftoverEntry { kind: RestKind::Bound, period, epoch: self.epoch, task: self.holder, stamp }
    }

    /// Replaces the bind that counts.
    fn rebind(&mut self, hold: &Hold) {
        let (mut rest, mut behind) =
            (std::mem::take(&mut self.rest), std::mem::take(&mut self.behind));
        rest.push(self.last_bound());
        behind.remove(&hold.key.task);
        let digest = hold.digest.or_else(|| self.digest.filter(|_| self.holder == hold.key.task));
        *self = Self { rest, behind, digest, ..Self::of(hold) };
    }
}

impl Keys {
    /// Whether a worker may claim this message.
    #[must_use]
    pub fn admission(&self, name: &KeyName, task: QueueTask) -> Admission {
        let Some(held) = self.keys.get(name) else { return Admission::Bind };
        if held.is_held_by(task) || self.has_released(name, task) {
            return Admission::Holds;
        }
        // This applies even while another task holds the key: it may be released before a bind of
        // this task is stored, and then no message has lost. A loss must be on the register.
        match held.named_loss(task) {
            Some(to) => Admission::Lost(to),
            None if held.is_behind(task) => match held.next_overwriter() {
                Some((by, _)) if task.makes_room_for(by) => Admission::Lost(by),
                Some(_) | None => Admission::Behind(held.holder),
            },
            None => Admission::Bind,
        }
    }

    /// The next step of a submitter that has published this message for a key, or none yet. An
    /// overwriter's message goes to this lane, where it makes the holder of the key make room.
    #[must_use]
    pub fn submitting(
        &self,
        name: &KeyName,
        own: Option<QueueTask>,
        overwrites: Option<QueuePartition>,
    ) -> Submitting {
        let Some(own) = own else {
            let holder = self.holder(name).map(|holding| holding.task);
            let holder = holder.filter(|holder| overwrites != Some(holder.lane()));
            return holder.map_or(Submitting::Submit, Submitting::Answer);
        };
        match self.admission(name, own) {
            Admission::Holds | Admission::Behind(_) => Submitting::Answer(own),
            Admission::Lost(to) => Submitting::Answer(to),
            Admission::Bind => Submitting::Bind(own),
        }
    }

    /// The task that holds a key now.
    #[must_use]
    pub fn holder(&self, name: &KeyName) -> Option<Holding> {
        let held = self.keys.get(name).filter(|held| held.is_held())?;
        Some(Holding { task: held.holder, epoch: held.epoch, digest: held.digest })
    }

    /// The keys of a kind with texts between these two, in order, with the tasks to which they were
    /// last bound.
    #[cfg(feature = "schedules")]
    pub fn between(
        &self,
        kind: KeyKind,
        from: String,
        to: String,
    ) -> impl DoubleEndedIterator<Item = (&KeyName, QueueTask)> + use<'_> {
        let ends = [from, to].map(|text| KeyName::new(kind, text).ok());
        let [from, to] = ends;
        let ends = from.zip(to).filter(|(from, to)| from <= to);
        let between = ends.map(|(from, to)| self.keys.range(from..to));
        between.into_iter().flatten().map(|(name, held)| (name, held.holder))
    }

    /// The task that holds a key, or held it last if it was released.
    #[must_use]
    pub fn last_holder(&self, name: &KeyName) -> Option<QueueTask> {
        self.keys.get(name).map(|held| held.holder)
    }

    /// Whether this task held the key, and has released it.
    #[must_use]
    pub fn has_released(&self, name: &KeyName, task: QueueTask) -> bool {
        let released = |rest: &LeftoverEntry| rest.kind == RestKind::Released && rest.task == task;
        self.keys.get(name).is_some_and(|held| held.rest.iter().any(released))
    }

    /// The key that a task holds.
    #[must_use]
    pub fn held_by(&self, task: QueueTask) -> Option<&KeyName> {
        self.held_by.get(task)
    }

    /// Whether the hold of this task was not renewed in the current period.
    #[must_use]
    pub fn is_to_be_renewed(&self, task: QueueTask) -> bool {
        let name = self.held_by.get(task).filter(|name| !name.is_permanent());
        let held = name.and_then(|name| self.keys.get(name));
        held.is_some_and(|held| held.period < self.period)
    }

    /// The tasks behind `last` that hold a key of this kind, in order; all of them without `last`.
    pub fn holders_behind(
        &self,
        kind: KeyKind,
        last: Option<QueueTask>,
    ) -> impl Iterator<Item = QueueTask> {
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.held_by.of(kind).range((behind, Bound::Unbounded)).map(|(task, _)| *task)
    }

    /// Whether no key is known, and there is nothing to remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.expired.is_empty()
    }

    /// The entries to remove.
    #[must_use]
    pub const fn expired(&self) -> &Expired {
        &self.expired
    }

    /// The current period.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Whether a loss of this period is still remembered. A submitter no longer binds an older
    /// message, because it may have lost.
    #[must_use]
    pub const fn remembers(&self, period: Period) -> bool {
        self.period.0 <= period.0.saturating_add(LASTS)
    }

    /// The bind by which a task requests a key, or keeps holding it.
    #[must_use]
    pub fn bind_of(
        &self,
        name: &KeyName,
        task: QueueTask,
        digest: Option<Digest>,
        stamp: Stamp,
    ) -> RegisterEntry {
        let known = self.keys.get(name);
        let holds = known.filter(|held| held.is_held_by(task));
        let digest = digest.or_else(|| holds?.digest);
        // While another task holds the key the bind carries its epoch: a bind that must lose must
        // not be accepted behind the release.
        let epoch = match known {
            Some(held) if held.is_held() => held.epoch,
            Some(held) => held.epoch.next(),
            None => Epoch(0).next(),
        };
        let key = HoldKey { name: name.clone(), period: self.period, epoch, task, stamp };
        RegisterEntry::Bind(Hold { key, digest, overwrites: false })
    }

    /// The entry by which a task releases the key that it holds.
    #[must_use]
    pub fn release_of(&self, task: QueueTask, stamp: Stamp) -> Option<RegisterEntry> {
        let name = self.held_by.get(task)?;
        let epoch = self.keys.get(name)?.epoch;
        Some(RegisterEntry::Release(HoldKey {
            name: name.clone(),
            period: self.period,
            epoch,
            task,
            stamp,
        }))
    }

    /// Handles the next entry in log order.
    pub(super) fn apply(&mut self, entry: &RegisterEntry) -> RegisterVerdict {
        match entry {
            RegisterEntry::Bind(Hold { key, .. }) | RegisterEntry::Release(key)
                if key.period != self.period =>
            {
                self.expired.reject(entry.key());
                RegisterVerdict::Ignored(RegisterIgnoredReason::Late)
            }
            RegisterEntry::Bind(hold) => self.bind(hold),
            RegisterEntry::Release(key) => self.release(key),
            RegisterEntry::Tombstone(key) => {
                self.expired.forget(key);
                RegisterVerdict::Ignored(RegisterIgnoredReason::Tombstone)
            }
            RegisterEntry::Period(period, _) if *period > self.period => {
                self.begin(*period);
                RegisterVerdict::Accepted
            }
            RegisterEntry::Period(..) => RegisterVerdict::Ignored(RegisterIgnoredReason::Late),
            RegisterEntry::Start(_) | RegisterEntry::Document(_) | RegisterEntry::Ticket(..) => {
                RegisterVerdict::Accepted
            }
        }
    }

    fn bind(&mut self, hold: &Hold) -> RegisterVerdict {
        let key = &hold.key;
        let Some(held) = self.keys.get_mut(&key.name) else {
            self.keys.insert(key.name.clone(), KeyFold::of(hold));
            self.held_by.put(key.task, &key.name);
            return RegisterVerdict::Accepted;
        };
        let free = held.released || key.epoch > held.epoch;
        let holder = (!free && held.holder != key.task).then_some(held.holder);
        let lost = held.named_loss(key.task);
        if hold.overwrites
            && lost.is_none()
            && holder.is_some_and(|holder| holder.makes_room_for(key.task))
        {
            let was_holder =
                |rest: &LeftoverEntry| rest.task == key.task && rest.kind == RestKind::Released;
            if !held.rest.iter().any(was_holder) {
                held.behind.insert(key.task, hold.digest);
                self.overwritten.insert(key.name.clone());
            }
            held.push(RestKind::Behind, key);
            return RegisterVerdict::Ignored(RegisterIgnoredReason::Behind);
        }
        if let Some(to) = lost.or(holder) {
            held.push(RestKind::Lost { to }, key);
            held.behind.remove(&key.task);
            self.decided(&key.name);
            return RegisterVerdict::Lost(to);
        }
        let renews = !free && key.epoch == held.epoch && held.period < key.period;
        if !renews && key.epoch <= held.epoch {
            held.push(RestKind::Void { release: false }, key);
            let why = if held.released {
                RegisterIgnoredReason::Stale
            } else {
                RegisterIgnoredReason::Repeated
            };
            return RegisterVerdict::Ignored(why);
        }
        self.held_by.remove(held.holder, &key.name);
        held.rebind(hold);
        self.held_by.put(key.task, &key.name);
        self.decided(&key.name);
        RegisterVerdict::Accepted
    }

    /// Updates the list of keys with waiting overwriters; the last one of this key may be decided.
    fn decided(&mut self, name: &KeyName) {
        let waits = |held: &KeyFold| held.next_overwriter().is_some();
        if !self.overwritten.is_empty() && !self.keys.get(name).is_some_and(waits) {
            self.overwritten.remove(name);
        }
    }

    fn release(&mut self, key: &HoldKey) -> RegisterVerdict {
        // A reader without the bind finds nothing, or an older one.
        let held = self.keys.entry(key.name.clone()).or_insert_with(|| KeyFold {
            epoch: Epoch(0),
            ..KeyFold::of(&Hold { key: key.clone(), digest: None, overwrites: false })
        });
        let holds = held.holder == key.task && held.epoch == key.epoch && !held.released;
        if !holds && key.epoch <= held.epoch {
            held.push(RestKind::Void { release: true }, key);
            return RegisterVerdict::Ignored(RegisterIgnoredReason::NotHeld);
        }
        self.held_by.remove(held.holder, &key.name);
        (held.holder, held.epoch) = (key.task, key.epoch);
        (held.released, held.lapsed, held.period) = (true, false, key.period);
        held.push(RestKind::Released, key);
        held.behind.remove(&key.task);
        RegisterVerdict::Accepted
    }

    /// Begins a period: entries older than a hold lasts are forgotten, and may be removed.
    fn begin(&mut self, period: Period) {
        let last = Period(period.0.saturating_sub(LASTS));
        self.period = period;
        let Self { keys, held_by, expired, overwritten, .. } = self;
        keys.retain(|name, held| {
            let is_over = held.period < last && !name.is_permanent();
            if is_over {
                held.lapsed = true;
                held_by.remove(held.holder, name);
            }
            let rejected = held.take_rejected(last);
            if rejected.iter().any(LeftoverEntry::is_behind) {
                held.forget_overwriters();
            }
            for rest in rejected {
                expired.reject(rest.key(name));
            }
            let superseded = held.take_superseded(is_over);
            expired.supersede(superseded.iter().map(|rest| rest.key(name)));
            let is_over = is_over && !held.has_rejected();
            if is_over {
                expired.supersede([held.last_bound().key(name)]);
            }
            !is_over
        });
        overwritten
            .retain(|name| keys.get(name).is_some_and(|key| key.next_overwriter().is_some()));
    }
}

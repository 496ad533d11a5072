//! Who holds which key. One rule for both kinds: a task holds a key from the bind that was accepted
//! until its release, or until nobody has renewed that for long.
//!
//! The clock of the register are its **periods**. Each is begun by an entry, so every reader is in
//! the same one at the same place of the log. An entry counts only in the period that its writer
//! had read. A hold lasts through the period of its newest entry and the two after it: a bind of
//! the holder in a later period renews it. Workers do that in each period, before they begin the
//! next one, for the tasks that are not over. So a key is held for one whole period or more after
//! the end of its task. Keys of firings and of replays are [permanent](KeyName::is_permanent).
//!
//! State of a key: (epoch, holder, released). A key that nothing is known of is free, and its epoch
//! is zero.
//!
//! | entry | accepted iff | else |
//! |---|---|---|
//! | bind | its epoch is above the current one. Of the holder, in the current epoch and a later period: it renews the hold | held by another task: that message has *lost*. Held by the same task: a repetition. Free: *stale*, it decides nothing, and whoever wrote it looks again |
//! | bind of an [overwriter](Overwriting) | the same | held by a lower task of its lane: it is *behind* that, and decides nothing. Else the same |
//! | release | the task holds the key in that epoch; or that epoch is above the current one | ignored |
//! | any of another period | never | it is *late*, and whoever wrote it looks again |
//! | period | its number is above the current one | ignored |
//! | tombstone | it changes nothing but the list of what is still to be removed | |
//!
//! Who binds a key that is free writes the epoch after the one that it has read, and who binds one
//! that is held, so that it stands there that its message has lost, the epoch that it has read. So
//! in a whole log an epoch above the current one is that of a free key. To a reader in the middle
//! of a compaction it says that a release, and perhaps more, was removed before it came there.
//!
//! Why a message that has lost can hold the key no more, although its bind may have been written
//! several times: all of them were written by somebody who had not read the first one to land. So
//! their epochs are not above that of the holder it lost against, and when that one is released
//! they are stale. What comes after the loss was forgotten is late.
//!
//! [What may be removed](super::expired), and in which order, is such that no reader that misses
//! some of it decides otherwise.

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

/// A hold lasts for so many periods after that of its newest entry.
const LASTS: u32 = 2;

/// The fold of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    period: Period,
    keys: BTreeMap<KeyName, KeyFold>,
    /// The keys that are held, by their holders: those of each kind for themselves.
    held_by: HeldBy,
    /// Keys for which overwriters wait.
    overwritten: BTreeSet<KeyName>,
    expired: Expired,
}

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyFold {
    holder: QueueTask,
    epoch: Epoch,
    released: bool,
    /// It has not been renewed for so long that it is over: the key is free. That changes nothing
    /// of what an entry decides: whoever has read the same and binds the key says the next epoch. A
    /// bind of this epoch was written by somebody who has read a renewal that a compaction has
    /// taken from this reader.
    lapsed: bool,
    /// Of the newest entry that counts.
    period: Period,
    digest: Option<Digest>,
    /// Of the newest bind that counts, and its period.
    bound: (Period, Stamp),
    /// Everything else that stands there of the key. Mostly nothing.
    rest: Vec<LeftoverEntry>,
    /// Overwriters that have stood behind a holder, until something is decided of them.
    behind: BTreeMap<QueueTask, Option<Digest>>,
}

/// What a fold made of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterVerdict {
    /// It counts.
    Accepted,
    /// A bind: this other task holds the key, and the message has lost it for good.
    Lost(QueueTask),
    /// It changes nothing.
    Ignored(RegisterIgnoredReason),
}

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterIgnoredReason {
    /// The task holds the key already.
    Repeated,
    /// It was written before the key was released: it decides nothing.
    Stale,
    /// A bind of an overwriter: a task holds the key that is to make room for it.
    Behind,
    /// It was written before the period began.
    Late,
    /// A release by a task that does not hold the key in that epoch.
    NotHeld,
    /// It decides nothing, whatever it names.
    Tombstone,
    /// A document of which this version, or a later one, stands already.
    Outdated,
}

/// The holder of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The task.
    pub task: QueueTask,
    /// Its epoch of the key.
    pub epoch: Epoch,
    /// Of its payload, if the bind says so.
    pub digest: Option<Digest>,
}

/// Whether a worker may claim a message with a key that it holds a delivery of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The message is the key's task.
    Holds,
    /// Nothing is decided: the worker publishes a bind of the message, and waits until it is read
    /// back.
    Bind,
    /// The message is that of an overwriter, and this task, which holds the key, makes room for it.
    Behind(QueueTask),
    /// Another task holds the key, or a later overwriter is to take its place. The message is
    /// closed, and never run.
    Lost(QueueTask),
}

/// What a submitter does next about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Submitting {
    /// Publish the task's message, then decide again.
    Submit,
    /// Publish a bind of this message, its own, and decide again when that is read back.
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

    /// Whether its holder holds it now.
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

    /// The bind that counted until now.
    fn last_bound(&self) -> LeftoverEntry {
        let (period, stamp) = self.bound;
        LeftoverEntry { kind: RestKind::Bound, period, epoch: self.epoch, task: self.holder, stamp }
    }

    /// Another bind takes the place of the one that counted.
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
        // While another task holds the key, too: it may be released before a bind of this one
        // lands, and then nobody has lost. That a message has lost must stand on the register.
        match held.named_loss(task) {
            Some(to) => Admission::Lost(to),
            None if held.is_behind(task) => match held.next_overwriter() {
                Some((by, _)) if task.makes_room_for(by) => Admission::Lost(by),
                Some(_) | None => Admission::Behind(held.holder),
            },
            None => Admission::Bind,
        }
    }

    /// What a submitter does that has published this message for a key, or none yet. An
    /// overwriter's goes to this lane: it makes the task there that holds the key make room.
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

    /// The keys of a kind whose texts lie between these two, in their order, with those to which
    /// they were bound last.
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

    /// The task that holds a key or, where it was released, held it last.
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

    /// Whether nobody has renewed the hold of this task in the current period.
    #[must_use]
    pub fn is_to_be_renewed(&self, task: QueueTask) -> bool {
        let name = self.held_by.get(task).filter(|name| !name.is_permanent());
        let held = name.and_then(|name| self.keys.get(name));
        held.is_some_and(|held| held.period < self.period)
    }

    /// The tasks that hold a key of this kind and come behind this one, in their order; all of them
    /// without it.
    pub fn holders_behind(
        &self,
        kind: KeyKind,
        last: Option<QueueTask>,
    ) -> impl Iterator<Item = QueueTask> {
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.held_by.of(kind).range((behind, Bound::Unbounded)).map(|(task, _)| *task)
    }

    /// Whether nothing is known of any key, and nothing is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.expired.is_empty()
    }

    /// What is to be removed.
    #[must_use]
    pub const fn expired(&self) -> &Expired {
        &self.expired
    }

    /// The current period.
    #[must_use]
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Whether a loss of this period would still be known. A submitter whose message is older does
    /// not bind it any more: it may have lost.
    #[must_use]
    pub const fn remembers(&self, period: Period) -> bool {
        self.period.0 <= period.0.saturating_add(LASTS)
    }

    /// The bind by which a task is to hold a key, or goes on holding it.
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
        // While another task holds the key the epoch is that one's: a bind that is to lose must not
        // be accepted behind the release.
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

    /// Takes the next entry in the order of the log.
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
            RegisterEntry::Start(_)
            | RegisterEntry::Document(_)
            | RegisterEntry::Ticket(..)
            | RegisterEntry::Moved(_) => RegisterVerdict::Accepted,
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

    /// An overwriter may have been the last one that waited for this key.
    fn decided(&mut self, name: &KeyName) {
        let waits = |held: &KeyFold| held.next_overwriter().is_some();
        if !self.overwritten.is_empty() && !self.keys.get(name).is_some_and(waits) {
            self.overwritten.remove(name);
        }
    }

    fn release(&mut self, key: &HoldKey) -> RegisterVerdict {
        // A reader that misses the bind finds nothing, or an older one.
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

    /// A period begins: what is older than a hold lasts is forgotten, and may be removed.
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

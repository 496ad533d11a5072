//! Who holds which key. One rule for both kinds: a task holds a key from the bind that was accepted until its release.
//!
//! State of a key: (epoch, holder, released). A key that nothing is known of is free, and its epoch is zero.
//!
//! | entry | accepted iff | else |
//! |---|---|---|
//! | bind | the key is free, and its epoch is one above the current one | held by another task: that message has *lost*, for good. Held by the same task: a repetition. Free: *stale*, it decides nothing, and whoever wrote it looks again |
//! | release | the task holds the key in that epoch | ignored |
//! | tombstone | what it names is forgotten; that of the accepted bind frees the key. No worker writes one | |
//!
//! Who binds a key that is free writes the epoch after the one that it has read, and who binds one that is held, so that it stands there
//! that its message has lost, the epoch that it has read.
//!
//! Why a message that has lost can hold the key no more, although its bind may have been written several times: all of them were
//! written by somebody who had not read the first one to land. So their epochs are not above that of the holder it lost against, and when
//! that one is released they are stale.

use super::entry::{Digest, Entry, Hold, HoldKey, Key, KeyKind, KeyName, Stamp};
use super::queue_task::QueueTask;
use crate::protocol::key::Epoch;
use std::collections::BTreeMap;

/// The fold of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    keys: BTreeMap<KeyName, Held>,
    /// The dedupe keys that are held, by their holders.
    held_by: BTreeMap<QueueTask, KeyName>,
}

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    holder: QueueTask,
    epoch: Epoch,
    released: bool,
    digest: Option<Digest>,
    stamp: Stamp,
    /// Everything else that stands there of the key. Mostly nothing.
    rest: Vec<Rest>,
}

/// An entry of a key besides the one that bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Rest {
    kind: RestKind,
    epoch: Epoch,
    task: QueueTask,
    stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RestKind {
    /// A bind that was accepted once, and superseded.
    Bound,
    /// A release that was accepted.
    Released,
    /// A bind that was rejected because another task held the key: this one.
    Lost { to: QueueTask },
    /// A bind or release that changed nothing.
    Void { release: bool },
}

/// What a fold made of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It counts.
    Accepted,
    /// A bind: this other task holds the key, and the message has lost it for good.
    Lost(QueueTask),
    /// It changes nothing.
    Ignored(Ignored),
}

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// The task holds the key already.
    Repeated,
    /// It was written before the key was released: it decides nothing.
    Stale,
    /// A release by a task that does not hold the key in that epoch.
    NotHeld,
    /// It names nothing that is known.
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
    /// Nothing is decided: the worker publishes a bind of the message, and waits until it is read back.
    Bind,
    /// Another task holds the key. The message is closed, and never run.
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

impl Held {
    /// The task against which a bind of this one has lost.
    fn named_loss(&self, task: QueueTask) -> Option<QueueTask> {
        self.rest.iter().find_map(|rest| match rest.kind {
            RestKind::Lost { to } if rest.task == task => Some(to),
            RestKind::Bound
            | RestKind::Released
            | RestKind::Lost { .. }
            | RestKind::Void { .. } => None,
        })
    }
}

impl Keys {
    /// Whether a worker may claim this message.
    #[must_use]
    pub fn admission(&self, name: &KeyName, task: QueueTask) -> Admission {
        let Some(held) = self.keys.get(name) else { return Admission::Bind };
        if held.holder == task || self.has_released(name, task) {
            return Admission::Holds;
        }
        // While another task holds the key, too: it may be released before a bind of this one lands, and then nobody has lost. That a message
        // has lost must stand on the register.
        held.named_loss(task).map_or(Admission::Bind, Admission::Lost)
    }

    /// What a submitter does that has published this message for a key, or none yet.
    #[must_use]
    pub fn submitting(&self, name: &KeyName, own: Option<QueueTask>) -> Submitting {
        let Some(own) = own else {
            let holder = self.holder(name);
            return holder.map_or(Submitting::Submit, |holding| Submitting::Answer(holding.task));
        };
        match self.admission(name, own) {
            Admission::Holds => Submitting::Answer(own),
            Admission::Lost(to) => Submitting::Answer(to),
            Admission::Bind => Submitting::Bind(own),
        }
    }

    /// The task that holds a key now.
    #[must_use]
    pub fn holder(&self, name: &KeyName) -> Option<Holding> {
        let held = self.keys.get(name).filter(|held| !held.released)?;
        Some(Holding { task: held.holder, epoch: held.epoch, digest: held.digest })
    }

    /// The keys of a kind whose texts lie between these two, in their order, with those to which they were bound last.
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

    /// The task against which a bind of this one loses the key now, if it does.
    fn loses_to(&self, name: &KeyName, task: QueueTask) -> Option<QueueTask> {
        let held = self.keys.get(name)?;
        let holder = (held.holder != task && !held.released).then_some(held.holder);
        held.named_loss(task).or(holder)
    }

    /// Whether this task held the key, and has released it.
    #[must_use]
    pub fn has_released(&self, name: &KeyName, task: QueueTask) -> bool {
        let released = |rest: &Rest| rest.kind == RestKind::Released && rest.task == task;
        self.keys.get(name).is_some_and(|held| held.rest.iter().any(released))
    }

    /// The dedupe key that a task holds, with its epoch.
    #[must_use]
    pub fn held_by(&self, task: QueueTask) -> Option<(&KeyName, Epoch)> {
        let name = self.held_by.get(&task)?;
        Some((name, self.keys.get(name)?.epoch))
    }

    /// All tasks that hold a dedupe key.
    pub fn dedupe_holders(&self) -> impl Iterator<Item = QueueTask> {
        self.held_by.keys().copied()
    }

    /// The epoch that the next bind of a key must carry. While another task holds the key it is that one's: a bind that is
    /// to lose must not be accepted behind the release.
    #[must_use]
    pub fn next_epoch(&self, name: &KeyName) -> Epoch {
        let current = self.current(name);
        if self.holder(name).is_some() { current } else { current.next() }
    }

    fn current(&self, name: &KeyName) -> Epoch {
        self.keys.get(name).map_or(Epoch(0), |held| held.epoch)
    }

    /// Takes the next entry in the order of the log.
    pub(super) fn apply(&mut self, entry: &Entry) -> Verdict {
        match entry {
            Entry::Bind(hold) => self.bind(hold),
            Entry::Release(key) => self.release(key),
            Entry::Tombstone(key) => self.forget(key),
            Entry::Start(_) | Entry::Document(_) | Entry::Ticket(..) => Verdict::Accepted,
        }
    }

    fn bind(&mut self, Hold { key, digest }: &Hold) -> Verdict {
        let HoldKey { name, epoch, task, stamp } = key;
        let current = self.current(name);
        let lost = self.loses_to(name, *task);
        let void = |kind| Rest { kind, epoch: *epoch, task: *task, stamp: *stamp };
        let Some(held) = self.keys.get_mut(name) else {
            if *epoch != current.next() {
                return Verdict::Ignored(Ignored::Stale);
            }
            let held = Held {
                holder: *task,
                epoch: *epoch,
                released: false,
                digest: *digest,
                stamp: *stamp,
                rest: Vec::new(),
            };
            self.keys.insert(name.clone(), held);
            self.note_holder(name, *task);
            return Verdict::Accepted;
        };
        if let Some(to) = lost {
            held.rest.push(void(RestKind::Lost { to }));
            return Verdict::Lost(to);
        }
        if !held.released || *epoch != current.next() {
            let why = if held.released { Ignored::Stale } else { Ignored::Repeated };
            held.rest.push(void(RestKind::Void { release: false }));
            return Verdict::Ignored(why);
        }
        let before = (held.epoch, held.holder, held.stamp);
        let (epoch_before, task_before, stamp_before) = before;
        held.rest.push(Rest {
            kind: RestKind::Bound,
            epoch: epoch_before,
            task: task_before,
            stamp: stamp_before,
        });
        (held.epoch, held.holder, held.stamp) = (*epoch, *task, *stamp);
        (held.released, held.digest) = (false, *digest);
        self.held_by.remove(&task_before);
        self.note_holder(name, *task);
        Verdict::Accepted
    }

    fn note_holder(&mut self, name: &KeyName, task: QueueTask) {
        if name.kind() == KeyKind::Dedupe {
            self.held_by.insert(task, name.clone());
        }
    }

    fn release(&mut self, HoldKey { name, epoch, task, stamp }: &HoldKey) -> Verdict {
        let Some(held) = self.keys.get_mut(name) else {
            return Verdict::Ignored(Ignored::NotHeld);
        };
        let holds = held.holder == *task && held.epoch == *epoch && !held.released;
        let kind = if holds { RestKind::Released } else { RestKind::Void { release: true } };
        held.rest.push(Rest { kind, epoch: *epoch, task: *task, stamp: *stamp });
        held.released |= holds;
        if holds {
            self.held_by.remove(task);
        }
        if holds { Verdict::Accepted } else { Verdict::Ignored(Ignored::NotHeld) }
    }

    fn forget(&mut self, key: &Key) -> Verdict {
        let (Key::Hold(HoldKey { name, stamp, .. }) | Key::Release(HoldKey { name, stamp, .. })) =
            key
        else {
            return Verdict::Ignored(Ignored::Tombstone);
        };
        let Some(held) = self.keys.get_mut(name) else {
            return Verdict::Ignored(Ignored::Tombstone);
        };
        if held.stamp == *stamp {
            self.held_by.remove(&held.holder);
            self.keys.remove(name);
            return Verdict::Accepted;
        }
        let before = held.rest.len();
        held.rest.retain(|rest| rest.stamp != *stamp);
        if held.rest.len() < before {
            Verdict::Accepted
        } else {
            Verdict::Ignored(Ignored::Tombstone)
        }
    }
}

//! Who holds which key. One rule for both kinds: a task holds a key from the bind that was accepted until its release.
//!
//! State of a key: (epoch, holder, released). A key that nothing is known of is free, and its epoch is the floor.
//!
//! | entry | accepted iff | else |
//! |---|---|---|
//! | bind | the key is free and its epoch is above the current one; or its epoch is more than one above | held by another task: that message has *lost*, for good. Held by the same task: a repetition. Free: *stale*, it decides nothing, and whoever wrote it looks again |
//! | release | the task holds the key in that epoch | ignored |
//! | floor | always: an epoch below it becomes the floor | |
//! | tombstone | what it names is forgotten; that of the accepted bind frees the key | |
//!
//! Who binds a key writes the epoch after the one that it has read, so in a log of which nothing was removed an accepted bind is exactly one above,
//! and follows the release. Where older entries were removed a reader sees a gap.
//!
//! Why a message that has lost can hold the key no more, although its bind may have been written several times: all of them were
//! written by somebody who had not read the first one to land. So their epochs are not above that of the holder it lost against, and when
//! that one is released they are stale.
//!
//! Why there is a floor: a key of which every entry was removed is unknown again, and a bind that was written long ago would be
//! accepted. So before the first entry goes a floor lands, and with it all binds that were written before are stale.

use super::entry::{Digest, Entry, Floor, Hold, HoldKey, Key, KeyName, Stamp};
use crate::protocol::key::Epoch;
use crate::task::TaskId;
use std::collections::BTreeMap;

/// The fold of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    floor: Epoch,
    keys: BTreeMap<KeyName, Held>,
}

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    holder: TaskId,
    epoch: Epoch,
    released: bool,
    digest: Option<Digest>,
    bound_ms: u64,
    stamp: Stamp,
    /// Everything else that stands there of the key. Mostly nothing.
    rest: Vec<Rest>,
}

/// An entry of a key besides the one that bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Rest {
    kind: RestKind,
    epoch: Epoch,
    task: TaskId,
    stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RestKind {
    /// A bind that was accepted once, and superseded.
    Bound,
    /// A release that was accepted.
    Released,
    /// A bind that was rejected because another task held the key: this one.
    Lost { to: TaskId },
    /// A bind or release that changed nothing.
    Void { release: bool },
}

/// What a fold made of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It counts.
    Accepted,
    /// A bind: this other task holds the key, and the message has lost it for good.
    Lost(TaskId),
    /// It changes nothing.
    Ignored(Ignored),
}

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// The task holds the key already.
    Repeated,
    /// It was written before the key was released, or before the floor: it decides nothing.
    Stale,
    /// A release by a task that does not hold the key in that epoch.
    NotHeld,
    /// It names nothing that is known.
    Tombstone,
}

/// The holder of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The task.
    pub task: TaskId,
    /// Its epoch of the key.
    pub epoch: Epoch,
    /// Of its payload, if the bind says so.
    pub digest: Option<Digest>,
}

impl Keys {
    /// The task that holds a key now.
    #[must_use]
    pub fn holder(&self, name: &KeyName) -> Option<Holding> {
        let held = self.keys.get(name).filter(|held| !held.released)?;
        Some(Holding { task: held.holder, epoch: held.epoch, digest: held.digest })
    }

    /// The task against which this one has lost the key, if it has.
    #[must_use]
    pub fn lost_to(&self, name: &KeyName, task: TaskId) -> Option<TaskId> {
        let held = self.keys.get(name)?;
        let lost = held.rest.iter().find_map(|rest| match rest.kind {
            RestKind::Lost { to } if rest.task == task => Some(to),
            RestKind::Bound
            | RestKind::Released
            | RestKind::Lost { .. }
            | RestKind::Void { .. } => None,
        });
        lost.or_else(|| (held.holder != task && !held.released).then_some(held.holder))
    }

    /// Whether this task held the key, and has released it.
    #[must_use]
    pub fn has_released(&self, name: &KeyName, task: TaskId) -> bool {
        let released = |rest: &Rest| rest.kind == RestKind::Released && rest.task == task;
        self.keys.get(name).is_some_and(|held| held.rest.iter().any(released))
    }

    /// The epoch that the next bind of a key must carry. While another task holds the key it is that one's: a bind that is
    /// to lose must not be accepted behind the release.
    #[must_use]
    pub fn next_epoch(&self, name: &KeyName) -> Epoch {
        let current = self.current(name);
        if self.holder(name).is_some() { current } else { current.next() }
    }

    /// How many keys something is known of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing is known of any key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn current(&self, name: &KeyName) -> Epoch {
        self.keys.get(name).map_or(self.floor, |held| held.epoch.max(self.floor))
    }

    /// Takes the next entry in the order of the log.
    pub(super) fn apply(&mut self, entry: &Entry, publish_time_ms: u64) -> Verdict {
        match entry {
            Entry::Bind(hold) => self.bind(hold, publish_time_ms),
            Entry::Release(key) => self.release(key),
            Entry::Floor(Floor { epoch, .. }) => {
                self.floor = self.floor.max(*epoch);
                Verdict::Accepted
            }
            Entry::Tombstone(key) => self.forget(key),
            Entry::Start(_) => Verdict::Accepted,
        }
    }

    fn bind(&mut self, Hold { key, digest }: &Hold, publish_time_ms: u64) -> Verdict {
        let HoldKey { name, epoch, task, stamp } = key;
        let current = self.current(name);
        let lost = self.lost_to(name, *task);
        let void = |kind| Rest { kind, epoch: *epoch, task: *task, stamp: *stamp };
        let Some(held) = self.keys.get_mut(name) else {
            if *epoch <= current {
                return Verdict::Ignored(Ignored::Stale);
            }
            let held = Held {
                holder: *task,
                epoch: *epoch,
                released: false,
                digest: *digest,
                bound_ms: publish_time_ms,
                stamp: *stamp,
                rest: Vec::new(),
            };
            self.keys.insert(name.clone(), held);
            return Verdict::Accepted;
        };
        let gap = *epoch > current.next();
        if let Some(to) = lost.filter(|_| !gap) {
            held.rest.push(void(RestKind::Lost { to }));
            return Verdict::Lost(to);
        }
        if !gap && (!held.released || *epoch <= current) {
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
        (held.released, held.digest, held.bound_ms) = (false, *digest, publish_time_ms);
        Verdict::Accepted
    }

    fn release(&mut self, HoldKey { name, epoch, task, stamp }: &HoldKey) -> Verdict {
        let Some(held) = self.keys.get_mut(name) else {
            return Verdict::Ignored(Ignored::NotHeld);
        };
        let holds = held.holder == *task && held.epoch == *epoch && !held.released;
        let kind = if holds { RestKind::Released } else { RestKind::Void { release: true } };
        held.rest.push(Rest { kind, epoch: *epoch, task: *task, stamp: *stamp });
        held.released |= holds;
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

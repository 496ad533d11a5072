//! Overwriters: tasks with a dedupe key that take the place of the unfinished task which holds it.
//!
//! A bind says that its task is one. Such a bind never loses against a task of its own lane, which
//! is a level and a partition, with a lower id: the later message counts. While that task holds the
//! key the bind decides nothing, and the overwriter stands *behind* the holder. Against a higher
//! task of its lane, and against any of another lane, where ids say nothing about which of two
//! tasks is the later one, it loses as others do.
//!
//! All else makes progress and decides nothing: whoever keeps the keys of that lane closes the
//! holder if it does not run, waits for its end if it does, releases the key, and binds the
//! overwriter, the highest one first.

use super::{KeyFold, Keys};
use crate::protocol::register::entry::{Digest, KeyName};
use crate::protocol::register::queue_task::QueueTask;

/// What is to be done next about the overwriters of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overwriting {
    /// This task makes room for that one: it is closed unless it runs, and when it is over the key
    /// is released.
    Over {
        /// It holds the key.
        holder: QueueTask,
        /// The task that takes its place.
        by: QueueTask,
    },
    /// A bind of this task is published: it holds the key then, or has lost it for good.
    Bind(QueueTask, Option<Digest>),
}

impl KeyFold {
    /// Whether this overwriter waits for the holder: its bind was read, and decided nothing.
    pub(super) fn is_behind(&self, task: QueueTask) -> bool {
        self.is_held() && self.holder.makes_room_for(task) && self.behind.contains_key(&task)
    }

    /// The highest overwriter that has stood behind a holder and is not decided since.
    pub(super) fn next_overwriter(&self) -> Option<(QueueTask, Option<Digest>)> {
        self.behind.last_key_value().map(|(task, digest)| (*task, *digest))
    }

    /// Overwriters are forgotten whose binds are.
    pub(super) fn forget_overwriters(&mut self) {
        let Self { behind, rest, .. } = self;
        let stands =
            |task: QueueTask| rest.iter().any(|holder| holder.task == task && holder.is_behind());
        behind.retain(|task, _| stands(*task));
    }
}

impl Keys {
    /// Whether there is an overwriter that waits for its key.
    #[must_use]
    pub fn has_overwriters(&self) -> bool {
        !self.overwritten.is_empty()
    }

    /// The keys for which overwriters wait.
    pub fn overwritten(&self) -> impl Iterator<Item = &KeyName> {
        self.overwritten.iter()
    }

    /// Whether the key is free for an overwriter that is later than this task: that one is bound
    /// first.
    #[must_use]
    pub fn binds_before(&self, name: &KeyName, task: QueueTask) -> bool {
        let next = self.overwriting(name);
        matches!(next, Some(Overwriting::Bind(by, _)) if task.makes_room_for(by))
    }

    /// What is to be done next about the overwriters of a key.
    #[must_use]
    pub fn overwriting(&self, name: &KeyName) -> Option<Overwriting> {
        let held = self.keys.get(name).filter(|_| self.overwritten.contains(name))?;
        let (by, digest) = held.next_overwriter()?;
        let holder = held.holder;
        let is_behind = held.is_held() && holder.makes_room_for(by);
        Some(if is_behind {
            Overwriting::Over { holder, by }
        } else {
            Overwriting::Bind(by, digest)
        })
    }
}

//! Overwriters: tasks with a dedupe key that replace the unfinished task which holds it.
//!
//! The bind marks its task as an overwriter. Such a bind never loses against a task with a lower id
//! in its own lane, which is a level and a partition: the later message counts. While that task
//! holds the key the bind has no effect, and the overwriter waits *behind* the holder. Against a
//! higher task of its lane, and against any task of another lane, where ids do not tell the order
//! of two tasks, it loses like other binds.
//!
//! The rest only makes progress and decides nothing: the worker that keeps the keys of that lane
//! closes the holder if it does not run, waits for its end if it does, releases the key, and binds
//! the overwriter, the highest one first.

use super::{KeyFold, Keys};
use crate::protocol::register::entry::{Digest, KeyName};
use crate::protocol::register::queue_task::QueueTask;

/// The next step for the overwriters of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overwriting {
    /// The first task makes room for the second: it is closed unless it runs, and after its end the
    /// key is released.
    Over {
        /// The holder of the key.
        holder: QueueTask,
        /// The task that replaces it.
        by: QueueTask,
    },
    /// Publish a bind of this task: afterwards it holds the key, or has lost it for good.
    Bind(QueueTask, Option<Digest>),
}

impl KeyFold {
    /// Whether this overwriter waits for the holder: its bind was read and had no effect.
    pub(super) fn is_behind(&self, task: QueueTask) -> bool {
        self.is_held() && self.holder.makes_room_for(task) && self.behind.contains_key(&task)
    }

    /// The highest undecided overwriter behind a holder.
    pub(super) fn next_overwriter(&self) -> Option<(QueueTask, Option<Digest>)> {
        self.behind.last_key_value().map(|(task, digest)| (*task, *digest))
    }

    /// Forgets overwriters whose binds are forgotten.
    pub(super) fn forget_overwriters(&mut self) {
        let Self { behind, rest, .. } = self;
        let stands =
            |task: QueueTask| rest.iter().any(|holder| holder.task == task && holder.is_behind());
        behind.retain(|task, _| stands(*task));
    }
}

impl Keys {
    /// Whether an overwriter waits for its key.
    #[must_use]
    pub fn has_overwriters(&self) -> bool {
        !self.overwritten.is_empty()
    }

    /// The keys for which overwriters wait.
    pub fn overwritten(&self) -> impl Iterator<Item = &KeyName> {
        self.overwritten.iter()
    }

    /// Whether the key is free for an overwriter that is later than this task: the overwriter is
    /// bound first.
    #[must_use]
    pub fn binds_before(&self, name: &KeyName, task: QueueTask) -> bool {
        let next = self.overwriting(name);
        matches!(next, Some(Overwriting::Bind(by, _)) if task.makes_room_for(by))
    }

    /// The next step for the overwriters of a key.
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

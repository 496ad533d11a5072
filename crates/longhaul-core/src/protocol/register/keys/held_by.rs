//! The held keys by holder.

use crate::protocol::register::entry::{KeyKind, KeyName};
use crate::protocol::register::queue_task::QueueTask;
use std::collections::BTreeMap;

/// The keys of each kind separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct HeldBy {
    idempotency: BTreeMap<QueueTask, KeyName>,
    dedupe: BTreeMap<QueueTask, KeyName>,
}

impl HeldBy {
    pub(super) const fn of(&self, kind: KeyKind) -> &BTreeMap<QueueTask, KeyName> {
        match kind {
            KeyKind::Idempotency => &self.idempotency,
            KeyKind::Dedupe => &self.dedupe,
        }
    }

    const fn of_mut(&mut self, kind: KeyKind) -> &mut BTreeMap<QueueTask, KeyName> {
        match kind {
            KeyKind::Idempotency => &mut self.idempotency,
            KeyKind::Dedupe => &mut self.dedupe,
        }
    }

    pub(super) fn get(&self, task: QueueTask) -> Option<&KeyName> {
        self.dedupe.get(&task).or_else(|| self.idempotency.get(&task))
    }

    pub(super) fn put(&mut self, task: QueueTask, name: &KeyName) {
        self.of_mut(name.kind()).insert(task, name.clone());
    }

    pub(super) fn remove(&mut self, task: QueueTask, name: &KeyName) {
        let held = self.of_mut(name.kind());
        // The task may hold a newer one.
        if held.get(&task) == Some(name) {
            held.remove(&task);
        }
    }
}

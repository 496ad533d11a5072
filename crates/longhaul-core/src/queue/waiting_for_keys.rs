//! New tasks with a key. A task is claimed only once the register shows that it holds its key. The
//! worker publishes a bind if nobody else has.

use super::{Intent, QueueContext, QueueCore, Wake};
use crate::facts::TaskFacts;
use crate::machine::Task;
use crate::protocol::fold::Phase;
use crate::protocol::register::{Admission, Digest, HoldKey, KeyName, QueueTask, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the worker leaves the bind to the submitter, which publishes one right after its
/// message: a second entry would be redundant.
const SUBMITTER_FIRST: Duration = Duration::from_millis(100);

/// The tasks that this worker has received and that wait for their keys.
#[derive(Debug, Default)]
pub(super) struct KeyWaitList(BTreeMap<KeyName, BTreeMap<QueueTask, KeyWaiter>>);

/// A waiting task, with the part of its message that its bind repeats. The message may be dropped
/// before the bind is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyWaiter {
    digest: Option<Digest>,
    overwrites: bool,
    wait: KeyWaitState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyWaitState {
    /// The submitter may be about to bind the key.
    ForSubmitter,
    /// A bind must be published.
    Due,
    /// The bind with this stamp was published.
    Bind(Stamp),
}

/// The part of a task's message that its bind carries. The digest is computed only for a waiting
/// task.
#[derive(Clone, Copy, Debug)]
struct Begins<'a> {
    overwrites: bool,
    payload: Option<&'a [u8]>,
}

impl KeyWaitList {
    /// Puts a task on the list. `begins` carries the rest of its message, which is available when
    /// the wait begins.
    fn put(
        &mut self,
        name: &KeyName,
        task: QueueTask,
        wait: KeyWaitState,
        begins: Option<Begins<'_>>,
    ) {
        if self.has(name, task) {
            self.set(name, task, wait);
        } else if let Some(Begins { overwrites, payload }) = begins {
            let waiter = KeyWaiter { digest: payload.map(Digest::of), overwrites, wait };
            self.0.entry(name.clone()).or_default().insert(task, waiter);
        }
    }

    fn set(&mut self, name: &KeyName, task: QueueTask, wait: KeyWaitState) {
        if let Some(waiter) = self.0.get_mut(name).and_then(|tasks| tasks.get_mut(&task)) {
            waiter.wait = wait;
        }
    }

    fn get(&self, name: &KeyName, task: QueueTask) -> Option<KeyWaiter> {
        self.0.get(name)?.get(&task).copied()
    }

    /// Whether this task waits for this key.
    pub(super) fn has(&self, name: &KeyName, task: QueueTask) -> bool {
        self.get(name, task).is_some()
    }

    fn remove(&mut self, name: &KeyName, task: QueueTask) {
        if let Some(tasks) = self.0.get_mut(name) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.0.remove(name);
            }
        }
    }

    /// The tasks that wait for this key, one of whose entries was read.
    fn read(&mut self, name: &KeyName, stamp: Stamp) -> Vec<QueueTask> {
        let Some(tasks) = self.0.get_mut(name) else { return Vec::new() };
        for waiter in tasks.values_mut().filter(|waiter| waiter.wait == KeyWaitState::Bind(stamp)) {
            waiter.wait = KeyWaitState::Due;
        }
        tasks.keys().copied().collect()
    }

    /// Forgets published binds; possibly no worker will read them.
    fn forget_binds(&mut self) {
        for waiter in self.0.values_mut().flat_map(BTreeMap::values_mut) {
            if matches!(waiter.wait, KeyWaitState::Bind(_)) {
                waiter.wait = KeyWaitState::Due;
            }
        }
    }

    fn all(&self) -> Vec<(KeyName, QueueTask)> {
        let all = self.0.iter();
        all.flat_map(|(name, tasks)| tasks.keys().map(|task| (name.clone(), *task))).collect()
    }
}

impl QueueCore {
    /// Handles the message of a task. A new task with a key waits until it holds the key.
    pub(super) fn begins_with_key(
        &mut self,
        task: QueueTask,
        facts: &TaskFacts,
        payload: Option<&[u8]>,
        cx: &mut QueueContext<'_>,
    ) {
        if let Some(name) = &facts.key {
            let begins = Begins { overwrites: facts.overwrites, payload };
            self.check_key(name, task, Some(begins), cx);
        }
    }

    /// Handles a register entry of this key.
    pub(super) fn key_was_read(&mut self, key: &HoldKey, cx: &mut QueueContext<'_>) {
        for task in self.waiting.read(&key.name, key.stamp) {
            self.check_key(&key.name, task, None, cx);
        }
    }

    /// Rechecks all keys after the register was read to its end; it may be another one than before.
    pub(super) fn recheck_all_keys(&mut self, cx: &mut QueueContext<'_>) {
        // A bind of another register is never read.
        self.waiting.forget_binds();
        for (name, task) in self.waiting.all() {
            self.check_key(&name, task, None, cx);
        }
    }

    /// Publishes a bind after the submitter's time is over, or after this worker's bind was not
    /// stored.
    pub(super) fn bind_is_due(
        &mut self,
        name: &KeyName,
        task: QueueTask,
        cx: &mut QueueContext<'_>,
    ) {
        if self.waiting.has(name, task) {
            self.waiting.set(name, task, KeyWaitState::Due);
            self.check_key(name, task, None, cx);
        }
    }

    fn check_key(
        &mut self,
        name: &KeyName,
        task: QueueTask,
        begins: Option<Begins<'_>>,
        cx: &mut QueueContext<'_>,
    ) {
        let now = cx.now;
        let Some(partition) = cx.of_mut(task) else { return };
        let is_open = |task: &Task| task.held && task.fold.phase == Phase::New;
        if !partition.machine().task(task.id).is_some_and(|task| is_open(&task)) {
            return self.waiting.remove(name, task);
        }
        let keys = self.register.keys();
        match keys.admission(name, task) {
            Admission::Holds => {
                self.waiting.remove(name, task);
                partition.admit(task.id, now);
            }
            Admission::Lost(holder) => {
                self.waiting.remove(name, task);
                partition.reject(task.id, holder, now);
            }
            Admission::Behind(_) => {
                // The worker that keeps the keys of the partition makes room. This task is bound
                // when that entry is read.
                partition.stand_behind(task.id);
                self.waiting.put(name, task, KeyWaitState::Due, begins);
            }
            Admission::Bind if keys.binds_before(name, task) => {
                partition.wait_for_key(task.id, now);
                self.waiting.put(name, task, KeyWaitState::Due, begins);
            }
            Admission::Bind => {
                partition.wait_for_key(task.id, now);
                match self.waiting.get(name, task).map(|waiter| waiter.wait) {
                    None => {
                        self.waiting.put(name, task, KeyWaitState::ForSubmitter, begins);
                        let wake = Wake::Again(Intent::Bind(name.clone(), task));
                        self.agenda.set(wake, now + SUBMITTER_FIRST);
                    }
                    Some(KeyWaitState::Due) if self.read => self.bind(name, task),
                    Some(_) => {}
                }
            }
        }
    }

    /// Publishes the bind of a waiting task.
    fn bind(&mut self, name: &KeyName, task: QueueTask) {
        let Some(KeyWaiter { digest, overwrites, .. }) = self.waiting.get(name, task) else {
            return;
        };
        let stamp = self.stamps.next();
        let entry = self.register.keys().bind_of(name, task, digest, stamp);
        self.waiting.set(name, task, KeyWaitState::Bind(stamp));
        self.publish_for(Intent::Bind(name.clone(), task), entry.overwriting(overwrites));
    }
}

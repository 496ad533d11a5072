//! Queues with an order: tasks wait in the lines of their keys (`machine/lines.rs`), and are looked
//! at when it is their turn.
//!
//! A delivered task stays here until it is over or the session ends. The broker would deliver it
//! again to this worker, which holds others of its key, and tasks delivered meanwhile would have
//! overtaken it.

use super::Partition;
use crate::protocol::hash::NameHash;
use crate::protocol::moment::Moment;
use crate::task::TaskId;

/// Maximum number of tasks of a partition that keep their payloads while they wait for others, in
/// lines or for their keys. Further payloads are read again when it is their turn, so that a long
/// line leaves room for tasks that may run.
const PAYLOADS_MAX: usize = 512;

/// The worker requests no more tasks of the partition while more than this number of them wait for
/// others.
const WAITING_MAX: usize = 20_000;

impl Partition {
    /// Sets whether the queue has an order: then deliveries come from a Key_Shared subscription. It
    /// takes effect with the next session.
    pub const fn set_order(&mut self, by_key: bool) {
        self.machine.keep_order(by_key);
    }

    /// Whether the queue has an order.
    #[must_use]
    pub const fn keeps_order(&self) -> bool {
        self.machine.keeps_order()
    }

    /// Puts a task that was delivered or read into the line of its order key.
    pub(super) fn stand_in_line(&mut self, id: TaskId, key: NameHash) {
        if !self.keeps_order() {
            return;
        }
        self.machine.line_up(id, key);
        if self.machine.first_in_line(key).next().is_some_and(|first| first != id) {
            self.drop_payload_if_many_wait(id);
        }
    }

    /// Drops the payload of a waiting task if many tasks wait.
    pub(super) fn drop_payload_if_many_wait(&mut self, id: TaskId) {
        let in_line = self.machine.in_line() - self.machine.line_count();
        if in_line + self.machine.waiting_for_keys() > PAYLOADS_MAX {
            self.machine.drop_waiting_payload(id);
            self.settle();
        }
    }

    /// Whether the number of waiting tasks is at its limit, so that no more are requested.
    #[must_use]
    pub fn holds_enough(&self) -> bool {
        self.machine.in_line() + self.machine.waiting_for_keys() > WAITING_MAX
    }

    /// Looks at the next task of a line when a task of it is over.
    pub(super) fn recheck_line(&mut self, key: NameHash, now: Moment) {
        for next in self.machine.first_in_line(key) {
            self.agenda.set(next, now);
        }
    }

    /// Looks at the first tasks of all lines.
    pub(super) fn recheck_lines(&mut self, now: Moment) {
        for id in self.machine.first_in_lines() {
            self.agenda.set_by(id, now);
        }
    }
}

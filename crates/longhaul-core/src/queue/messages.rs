//! Messages of tasks, delivered or read. The queue passes each to the partition of its task and
//! handles what it says about other tasks in the same call: a partition looks at no task whose key
//! and whose dependencies the queue does not know.

use super::{QueueContext, QueueCore};
use crate::facts::TaskFacts;
use crate::protocol::register::QueueTask;

impl QueueCore {
    /// Handles a delivery; `payload` is missing if it is encoded or unreadable. Returns whether the
    /// payload may be needed now: see
    /// [`Partition::handle_delivery`](crate::partition::Partition::handle_delivery).
    pub fn handle_delivery(
        &mut self,
        task: QueueTask,
        facts: &TaskFacts,
        payload: Option<&[u8]>,
        cx: &mut QueueContext<'_>,
    ) -> bool {
        let now = cx.now;
        let Some(partition) = cx.of_mut(task) else { return false };
        let is_ready = partition.handle_delivery(task.id, facts, now);
        if is_ready {
            self.handle_message(task, facts, payload, cx);
        }
        is_ready
    }

    /// Handles a message read for the payload of its task, with the payload as above; `None` if it
    /// is not there. Returns true if the search for it ends: see
    /// [`Partition::handle_payload`](crate::partition::Partition::handle_payload).
    pub fn handle_payload(
        &mut self,
        task: QueueTask,
        message: Option<(&TaskFacts, Option<&[u8]>)>,
        cx: &mut QueueContext<'_>,
    ) -> bool {
        let now = cx.now;
        let Some(partition) = cx.of_mut(task) else { return false };
        let gives_up = partition.handle_payload(task.id, message.map(|(facts, _)| facts), now);
        if let Some((facts, payload)) = message {
            self.handle_message(task, facts, payload, cx);
        }
        gives_up
    }

    /// Handles what a message says about other tasks, before the partition looks at its task: a new
    /// task with a key waits until it holds the key; a task that names others waits for them.
    fn handle_message(
        &mut self,
        task: QueueTask,
        facts: &TaskFacts,
        payload: Option<&[u8]>,
        cx: &mut QueueContext<'_>,
    ) {
        self.begins_with_key(task, facts, payload, cx);
        if let Some(after) = &facts.after {
            self.depends_on(task, after.clone(), cx);
        }
    }
}

//! Tasks that wait for a slot here while another worker may have a free one: they go back to the
//! broker, or are offered to the other workers on the ledger (`unwanted.rs`).

use super::Partition;
use crate::machine::Task;
use crate::protocol::fold::Phase;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::time::Duration;

/// Number of handed-back deliveries that are remembered. A delivery that returns to this worker
/// does so within milliseconds.
const HANDED_BACK_MAX: usize = 64;

/// How long a new task may wait for a slot here before it is handed back for an idle worker.
pub(super) const WAIT_FOR_SLOT_MAX: Duration = Duration::from_secs(1);

impl Partition {
    /// Hands a new task that could not be claimed for a while back to the broker, for another
    /// worker. Returns true if it was handed back.
    pub(super) fn hand_back_in_time(&mut self, id: TaskId, now: Moment) -> bool {
        let new = !self.keeps_order() && self.machine.fold(id).phase == Phase::New;
        let received = self.open.get(&id).filter(|_| new).and_then(|open| open.received);
        received.is_some_and(|received| self.hand_back_after(received, id, now))
    }

    /// Hands a delivery back once it has waited for a slot for 1 s since `since`; until then plans
    /// another look. Returns true if it was handed back.
    ///
    /// The task is offered to the other workers instead, and looked at again with the next
    /// heartbeat, in two cases: its delivery cannot go back because another task of its batch runs
    /// here, or it went back and returned. The broker may give it to this worker for as long as the
    /// worker has credit.
    pub(super) fn hand_back_after(&mut self, since: Moment, id: TaskId, now: Moment) -> bool {
        let until = since + WAIT_FOR_SLOT_MAX;
        if now < until {
            self.agenda.set(id, until);
            return false;
        }
        if !self.machine.works_on_entry(id) && !self.has_come_back(id) {
            self.hand_back(id);
            return true;
        }
        let heartbeat = self.settings.ledger.heartbeat;
        let open = self.open.get(&id);
        let again = match open.and_then(|open| open.offered) {
            Some(offered) => Some(offered + heartbeat),
            // It was not offered because a slot was free, which another task may have taken since.
            None => open.and_then(|open| open.tried).map(|tried| tried + WAIT_FOR_SLOT_MAX),
        };
        self.unwanted.to_offer.set_by(id, again.unwrap_or(now).max(now));
        self.agenda.set(id, now + heartbeat);
        false
    }

    pub(super) fn hand_back(&mut self, id: TaskId) {
        if self.keeps_order() {
            return;
        }
        self.machine.hand_back(id);
        self.handed_back.truncate(HANDED_BACK_MAX - 1);
        self.handed_back.push_front(id.entry_id());
        if id.batch_index.is_some() && !self.scheduled.is_empty() {
            self.scheduled.forget(id.entry_id());
        }
        let batch = self.open.range(TaskId::all_of(id.entry_id()));
        let members: Vec<TaskId> = batch.map(|(id, _)| *id).collect();
        for member in members {
            self.waiting.remove(member);
            self.unwanted.to_offer.remove(member);
            if self.machine.task(member).is_none() {
                self.open.remove(&member);
                self.unwanted.remove(member);
            } else if let Some(open) = self.open.get_mut(&member) {
                open.received = None;
            }
        }
    }

    /// Whether the delivery went back to the broker and returned here.
    #[must_use]
    pub fn has_come_back(&self, id: TaskId) -> bool {
        self.handed_back.contains(&id.entry_id())
    }

    /// Whether a task waits here that was not begun and that another worker could take: a full
    /// worker looks at no other delivery meanwhile.
    #[must_use]
    pub fn has_one_for_others(&self) -> bool {
        let is_one = |id| {
            let new = |task: &Task| task.held && task.fold.phase == Phase::New;
            self.machine.task(id).is_some_and(|task| new(&task))
                || self.open.get(&id).is_some_and(|open| open.offered.is_some())
        };
        self.waiting.iter().any(is_one)
    }
}

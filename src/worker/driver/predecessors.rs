//! The predecessors of a task as its processor sees them.

use super::WorkerDriver;
use super::lane::PartitionDriver;
use super::lanes::LaneId;
use crate::worker::predecessors::{Predecessor, PredecessorOutcome, ResultLocation};
use longhaul_core::protocol::entry_set::BatchOutcome;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::waits::DependencyName;
use longhaul_core::task::{Position, TaskId};
use std::sync::Arc;

impl WorkerDriver {
    /// The tasks that this task has waited for, with their outcomes, for its processor.
    pub(super) fn predecessors(&self, id: LaneId, task: TaskId) -> Vec<Predecessor> {
        let queue = self.queue_of(id).zip(self.queue_task(id, task));
        let waiting = queue.and_then(|(queue, task)| queue.core.dependencies().get(task));
        let Some(waiting) = waiting else { return Vec::new() };
        let of = |(name, task): (&DependencyName, Option<TaskId>)| {
            let lane = task.and_then(|task| self.lanes.get(&LaneId::new(id.topic, task.partition)));
            let known = lane.zip(task).map(|(lane, task)| lane.as_predecessor(task));
            let (outcome, ended_at) = known.unwrap_or((PredecessorOutcome::Missing, None));
            let place = lane.map(|lane| {
                let transport = Arc::clone(&self.env.transport);
                let (ledger, metadata) = (lane.topics.ledger.clone(), lane.topics.metadata.clone());
                Arc::new(ResultLocation { transport, ledger, ended_at, metadata })
            });
            Predecessor::new((name.to_string(), task), outcome, place)
        };
        waiting.named().map(of).collect()
    }
}

impl PartitionDriver {
    /// The outcome of a task, and the position of its end on the ledger.
    fn as_predecessor(&self, id: TaskId) -> (PredecessorOutcome, Option<Position>) {
        let machine = self.core.machine();
        let outcome = match machine.fold(id).phase {
            Phase::Completed => PredecessorOutcome::Completed,
            Phase::Final => PredecessorOutcome::Failed,
            Phase::Cancelled => PredecessorOutcome::Cancelled,
            Phase::Expired => PredecessorOutcome::Expired,
            Phase::Sealed => match machine.seals().ended(id.entry_id()) {
                Some(BatchOutcome::Completed) => PredecessorOutcome::Completed,
                Some(BatchOutcome::Failed | BatchOutcome::Mixed) | None => {
                    PredecessorOutcome::Failed
                }
            },
            Phase::New | Phase::Running | Phase::Retry => PredecessorOutcome::Missing,
        };
        (outcome, machine.task(id).and_then(|task| task.state_at))
    }
}

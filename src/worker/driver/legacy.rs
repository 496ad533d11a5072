//! Works beside workers of the Java reference: follows the metadata topic for their entries, and
//! ends the tasks that they have ended. The rules are in `longhaul_core::legacy`.

use super::lane::PartitionDriver;
use super::lanes::LaneId;
use super::{Environment, WorkerDriver, WorkerEvent};
use crate::transport::Message;
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{FollowerEvent, Sink};
use longhaul_core::legacy::{LegacyEnd, LegacyEntry};
use longhaul_core::metadata::entry::OutcomeBody;
use longhaul_core::protocol::entry::Outcome;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{ShownMetadata, TaskId, TaskMetadata, TaskState, epoch_of, text};

impl PartitionDriver {
    /// Follows the metadata topic from its start, for as long as the worker lives.
    pub(super) fn follow_legacy(&mut self, env: &mut Environment) {
        let lane = self.id();
        let sink =
            Sink::new(env.events.clone(), move |followed| WorkerEvent::Legacy { lane, followed });
        let asked: Mailbox<Moment> = self.legacy_asked.clone();
        drop(Self::follow(env, &self.topics.metadata, asked, sink));
    }
}

impl WorkerDriver {
    pub(super) fn handle_legacy(&mut self, id: LaneId, followed: &FollowerEvent, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match followed {
            FollowerEvent::Messages(messages) => {
                for message in messages {
                    let task = message.key.as_deref().and_then(|key| key.parse::<TaskId>().ok());
                    let task = task.filter(|task| task.partition == lane.partition());
                    let task = task.filter(|_| message.replicated_from.is_none());
                    lane.core.handle_legacy_read(message.position, task, entry_of(message), now);
                }
            }
            FollowerEvent::End(asked, end) => lane.core.handle_legacy_told(*asked, *end, now),
            FollowerEvent::Gone => {}
        }
    }

    /// Ends an attempt that was never run, as a worker of the reference has shown the end of the
    /// task.
    pub(super) fn end_as_shown(&mut self, id: LaneId, task: TaskId, epoch: Epoch, end: LegacyEnd) {
        match end {
            LegacyEnd::NoAttemptLeft => {
                let reason = OutcomeBody::Reason(text::ALL_ATTEMPTS_FAILED.to_owned());
                self.end_unrun(id, task, epoch, Outcome::Final, reason);
            }
            LegacyEnd::Shown(at) => {
                let Some(lane) = self.lanes.get(&id) else { return };
                let topic = lane.topics.metadata.clone();
                self.read_at_last(topic, at, move |message| WorkerEvent::ShownEnd {
                    lane: id,
                    id: task,
                    epoch,
                    message,
                });
            }
        }
    }

    /// Handles the entry that shows the end of the task, which was read from the metadata topic.
    pub(super) fn handle_shown_end(
        &mut self,
        id: LaneId,
        task: TaskId,
        epoch: Epoch,
        message: Option<&Message>,
    ) {
        let shown = message
            .filter(|message| message.key.as_deref() == Some(&task.to_string()))
            .and_then(|message| serde_json::from_slice::<TaskMetadata>(&message.payload).ok());
        let (outcome, body) = match shown {
            Some(TaskMetadata { state: TaskState::Completed, result, .. }) => {
                (Outcome::Completed, OutcomeBody::Result(result.unwrap_or_default()))
            }
            Some(TaskMetadata { state: TaskState::Failed, failure_reason, .. }) => (
                Outcome::Final,
                OutcomeBody::Reason(text::shortened(failure_reason.unwrap_or_default())),
            ),
            Some(_) | None => {
                let now = self.env.clock.now();
                let Some(lane) = self.lanes.get_mut(&id) else { return };
                return lane.core.handle_shown_end_gone(task, epoch, now);
            }
        };
        self.end_unrun(id, task, epoch, outcome, body);
    }

    fn end_unrun(
        &mut self,
        id: LaneId,
        task: TaskId,
        epoch: Epoch,
        outcome: Outcome,
        body: OutcomeBody,
    ) {
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        tracing::info!(%task, %epoch, ?outcome, "a worker of the Java reference has ended the task: copying its end to the ledger");
        if lane.core.machine().awaits_end(task, epoch) {
            lane.keep_body((task, epoch), body);
        }
        lane.core.handle_finished(task, epoch, outcome);
        lane.core.handle_processor_gone(task, epoch, now);
    }
}

/// The entry, if a worker of the reference wrote it: then it has no epoch.
fn entry_of(message: &Message) -> Option<LegacyEntry> {
    if message.null || epoch_of(&message.properties).is_some() {
        return None;
    }
    let ShownMetadata { state, attempts, .. } = serde_json::from_slice(&message.payload).ok()?;
    let is_written = !matches!(state, TaskState::New | TaskState::Unknown);
    is_written.then_some(LegacyEntry { state, attempts, at: message.position })
}

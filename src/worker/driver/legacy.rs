//! Beside workers of the Java reference: follows M for the entries that they write, and ends what
//! they have ended. The rules are in `worker/legacy.rs`.

use super::lane::Lane;
use super::lanes::LaneId;
use super::{Driver, Environment, Event};
use crate::transport::Message;
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{Followed, Sink};
use longhaul_core::legacy::{LegacyEnd, LegacyEntry, LegacyState};
use longhaul_core::metadata::entry::Body;
use longhaul_core::protocol::entry::Outcome;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{ShownMetadata, TaskId, TaskMetadata, TaskState, epoch_of, text};
use tokio::task::JoinSet;

impl Lane {
    /// Follows M from its start, for as long as the worker lives.
    pub(super) fn follow_legacy(&mut self, env: &mut Environment, services: &mut JoinSet<()>) {
        let lane = self.id();
        let sink = Sink::new(env.events.clone(), move |followed| Event::Legacy { lane, followed });
        let asked: Mailbox<Moment> = self.legacy_asked.clone();
        drop(Self::follow(env, services, &self.topics.metadata, None, asked, sink));
    }
}

impl Driver {
    pub(super) fn handle_legacy(&mut self, id: LaneId, followed: &Followed, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match followed {
            Followed::Messages(messages) => {
                for message in messages {
                    let task = message.key.as_deref().and_then(|key| key.parse::<TaskId>().ok());
                    let task = task.filter(|task| task.partition == lane.partition());
                    let task = task.filter(|_| message.replicated_from.is_none());
                    lane.core.handle_legacy_read(message.position, task, entry_of(message), now);
                }
            }
            Followed::End(asked, end) => lane.core.handle_legacy_told(*asked, *end, now),
            Followed::Gone => {}
        }
    }

    /// An attempt of this worker ends as a worker of the reference has shown, and was never run.
    pub(super) fn end_as_shown(&mut self, id: LaneId, task: TaskId, epoch: Epoch, end: LegacyEnd) {
        match end {
            LegacyEnd::NoAttemptLeft => {
                let reason = Body::Reason(text::ALL_ATTEMPTS_FAILED.to_owned());
                self.end_unrun(id, task, epoch, Outcome::Final, reason);
            }
            LegacyEnd::Shown(at) => {
                let Some(lane) = self.lanes.get(&id) else { return };
                let read = self.env.fetch_at_last(lane.topics.metadata.clone(), at);
                self.pending.push(Box::pin(async move {
                    Event::ShownEnd { lane: id, id: task, epoch, message: read.await }
                }));
            }
        }
    }

    /// The entry that shows how the task has ended was read.
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
                (Outcome::Completed, Body::Result(result.unwrap_or_default()))
            }
            Some(TaskMetadata { state: TaskState::Failed, failure_reason, .. }) => {
                (Outcome::Final, Body::Reason(text::shortened(failure_reason.unwrap_or_default())))
            }
            Some(_) | None => {
                let now = self.env.clock.now();
                let Some(lane) = self.lanes.get_mut(&id) else { return };
                return lane.core.handle_shown_end_gone(task, epoch, now);
            }
        };
        self.end_unrun(id, task, epoch, outcome, body);
    }

    fn end_unrun(&mut self, id: LaneId, task: TaskId, epoch: Epoch, outcome: Outcome, body: Body) {
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        tracing::info!(%task, %epoch, ?outcome, "a worker of the Java reference has ended the task: its end goes to the ledger");
        if lane.core.machine().awaits_end(task, epoch) {
            lane.outcome_bodies.insert(task, (epoch, body));
        }
        lane.core.handle_finished(task, epoch, outcome);
        lane.core.handle_processor_gone(task, epoch, now);
    }
}

/// The entry, if a worker of the reference wrote it: it has no epoch.
fn entry_of(message: &Message) -> Option<LegacyEntry> {
    if message.null || epoch_of(&message.properties).is_some() {
        return None;
    }
    let shown: ShownMetadata = serde_json::from_slice(&message.payload).ok()?;
    let state = LegacyState::of(shown.state)?;
    Some(LegacyEntry { state, attempts: shown.attempts, at: message.position })
}

//! Publishes the calls of a queue's webhooks before the end of a task is shown. A call is a task of
//! the queue `webhooks`; `metadata/ended.rs` decides when the calls are published.

use super::lanes::LaneId;
use super::{PublishResult, Showing, WorkerDriver, WorkerEvent};
use futures::future::join_all;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::TaskId;
use longhaul_core::webhook::EndedTask;
use std::sync::Arc;

impl WorkerDriver {
    /// The URLs to call at the end of a task of this lane.
    pub(super) fn webhooks_of(&self, id: LaneId, task: TaskId) -> Option<Arc<[String]>> {
        let urls = &self.queue_of(id)?.core.settings().webhooks;
        let has_calls = !urls.is_empty() && self.ended_task(id, task, Epoch(0))?.has_calls();
        has_calls.then(|| Arc::clone(urls))
    }

    fn ended_task(&self, lane: LaneId, id: TaskId, epoch: Epoch) -> Option<EndedTask<'_>> {
        let topic = self.topics.get(usize::from(lane.topic))?;
        Some(EndedTask { topic: topic.name(), level: topic.level(), id, epoch })
    }

    /// Publishes the calls of an end, with this entry of the metadata topic. After the receipts the
    /// end is shown in this way.
    pub(super) fn tell_webhooks(
        &self,
        (lane, id, epoch): (LaneId, TaskId, Epoch),
        (urls, metadata): (&[String], &[u8]),
        kind: Showing,
    ) {
        let ended = self.ended_task(lane, id, epoch);
        let Some((topic, calls)) = ended.and_then(|task| task.calls(urls, metadata)) else {
            return;
        };
        let producer = Arc::clone(&self.calls);
        self.pending.push(Box::pin(async move {
            let publish = |call| producer.publish(&topic, call);
            let published = join_all(calls.into_iter().map(publish)).await;
            let fates = published.into_iter().map(PublishResult::from).collect();
            WorkerEvent::Told { lane, id, kind, fates }
        }));
    }

    /// Handles the results of the calls of an end. A refused call is given up: a task must not be
    /// blocked by its webhooks.
    pub(super) fn handle_calls(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        kind: Showing,
        fates: &[PublishResult],
    ) {
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        for fate in fates {
            if let PublishResult::Refused(cause) = fate
                && lane.refused_calls.is_news(cause, now)
            {
                let topic = &lane.topics.task;
                tracing::error!(%topic, task = %task_id, cause, "webhook call refused: the end of the task is shown without it; check the queue `webhooks`");
                self.stats.refused();
            }
        }
        let is_told = !fates.contains(&PublishResult::Unknown);
        lane.metadata.ended.handle_told(task_id, is_told && lane.may_need_to_show(task_id));
        if is_told {
            self.show_told_end(id, task_id, kind);
        } else {
            // The calls are published again after a pause, and have the same keys.
            self.handle(WorkerEvent::Later(Box::new(WorkerEvent::ToTell {
                lane: id,
                id: task_id,
                kind,
            })));
        }
    }

    /// Continues to show an end, unless that is no longer needed.
    pub(super) fn show_told_end(&mut self, id: LaneId, task_id: TaskId, kind: Showing) {
        if self.lanes.get(&id).is_some_and(|lane| lane.may_need_to_show(task_id)) {
            self.show_end_unless_shown(id, task_id, kind);
        }
    }
}

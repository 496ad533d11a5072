//! Publishes the calls of a queue's webhooks before the end of a task is shown. A call is a task of
//! the queue `webhooks`; `metadata/ended.rs` decides when the calls are published.

use super::lanes::LaneId;
use super::{Showing, WorkerDriver, WorkerEvent};
use crate::client::TaskProducer;
use crate::transport::{Outgoing, PublishError};
use futures::future::join_all;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::TaskId;
use longhaul_core::webhook::EndedTask;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a call of unknown fate is published again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

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
        let (producer, patience) = (Arc::clone(&self.calls), self.config.ledger_retention / 4);
        self.pending.push(Box::pin(async move {
            let publish = |call| publish_at_last(&producer, &topic, call, patience);
            let fates = join_all(calls.into_iter().map(publish)).await;
            WorkerEvent::Told { lane, id, kind, fates }
        }));
    }

    /// Handles the results of the calls of an end. A call that is refused, or cannot be stored for
    /// long, is given up: a task must not be blocked by its webhooks.
    pub(super) fn handle_calls(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        kind: Showing,
        fates: &[Result<(), String>],
    ) {
        let now = self.env.clock.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        for cause in fates.iter().filter_map(|fate| fate.as_ref().err()) {
            if lane.refused_calls.is_news(cause, now) {
                let topic = &lane.topics.task;
                tracing::error!(%topic, task = %task_id, cause, "webhook call given up: the outcome of the task is shown without it; check the queue `webhooks`");
                self.stats.counted().refusals += 1;
            }
        }
        let is_needed = lane.may_need_to_show(task_id);
        lane.metadata.ended.handle_told(task_id, is_needed);
        if is_needed {
            self.show_end_unless_shown(id, task_id, kind);
        }
    }
}

/// Publishes a call until it is stored or refused, for so long at most. Each message has the same
/// key.
async fn publish_at_last(
    producer: &TaskProducer,
    topic: &str,
    call: Outgoing,
    patience: Duration,
) -> Result<(), String> {
    let mut cause = "no answer from the broker".to_owned();
    let stored = async {
        loop {
            match producer.publish(topic, call.clone()).await {
                Ok(_) => return Ok(()),
                Err(PublishError::Refused(cause)) => return Err(cause),
                Err(error) => cause = error.to_string(),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    };
    let stored = tokio::time::timeout(patience, stored).await;
    stored.unwrap_or_else(|_| Err(format!("it was not stored within {patience:?}: {cause}")))
}

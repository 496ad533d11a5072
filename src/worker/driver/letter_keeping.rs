//! Removes dead letters after their retention. The worker that keeps the metadata topic of the
//! queue's first partition does this.

use super::Environment;
use super::lane::{PartitionDriver, TaskPayload};
use crate::transport::TopicPartition;
use crate::worker::dead_letters::{DeadLetterPolicy, LetterKeeping, keep};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use std::collections::BTreeMap;
use std::sync::Arc;

impl PartitionDriver {
    /// Makes a refused dead letter smaller and publishes it again: first without the payload, which
    /// stays on the task topic for a while, then without the task's properties. The rest is small
    /// and is published until it is stored: a missing dead letter is worse than a task that waits
    /// for one. Returns whether to log it.
    pub(super) fn make_dead_letter_smaller(
        &mut self,
        id: TaskId,
        cause: &str,
        now: Moment,
    ) -> bool {
        self.metadata.ended.leave_out(id);
        let TaskPayload { bytes, properties, terms, mut facts, .. } =
            self.payloads.remove(id).unwrap_or_default();
        let is_smallest = bytes.is_empty() && properties.is_empty();
        let properties = if bytes.is_empty() { BTreeMap::new() } else { properties };
        // The payload is not here any more: see `TaskPayload::is_there`.
        Arc::make_mut(&mut facts).published_ms = 0;
        self.payloads
            .insert(id, TaskPayload { properties, terms, facts, ..TaskPayload::default() });
        !is_smallest || self.refused_letters.is_news(cause, now)
    }

    /// Applies another policy from now on. Letters in flight are not affected.
    pub(super) fn change_letters(&mut self, policy: DeadLetterPolicy, env: &mut Environment) {
        if policy == self.letter_policy {
            return;
        }
        self.core.set_letters(policy.letters());
        self.letter_policy = policy;
        if self.metadata_follower.is_some() {
            self.leave_letters();
            self.keep_letters(env);
        }
    }

    /// Starts keeping dead letters when this worker becomes the keeper of the metadata topic.
    pub(super) fn keep_letters(&mut self, env: &mut Environment) {
        let policy = &self.letter_policy;
        if !policy.has_limits() || self.topics.task.partition > 0 {
            return;
        }
        let topic: &TopicPartition = &self.topics.dead_letters;
        let keeping = LetterKeeping {
            policy: policy.clone(),
            reading: env.service(topic),
            publishing: env.service(topic),
            name: self.config.identity.name.clone(),
        };
        let keeping = env.spawn(keep(keeping));
        if let Some(before) = self.letter_keeping.replace(keeping) {
            before.abort();
        }
    }

    /// Stops keeping dead letters; another worker does it now.
    pub(super) fn leave_letters(&mut self) {
        if let Some(keeping) = self.letter_keeping.take() {
            keeping.abort();
        }
    }
}

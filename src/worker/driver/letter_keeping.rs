//! Dead letters that have had their time go: by the worker that keeps the metadata topic of the
//! queue's first partition.

use super::Environment;
use super::lane::Lane;
use crate::transport::TopicPartition;
use crate::worker::dead_letters::{DeadLetterPolicy, LetterKeeping, keep};
use tokio::task::JoinSet;

impl Lane {
    /// Another policy applies from now on. Letters that are on their way stay.
    pub(super) fn change_letters(
        &mut self,
        policy: DeadLetterPolicy,
        env: &mut Environment,
        services: &mut JoinSet<()>,
    ) {
        if policy == self.letter_policy {
            return;
        }
        self.core.set_letters(policy.letters());
        self.letter_policy = policy;
        if self.metadata_follower.is_some() {
            self.leave_letters();
            self.keep_letters(env, services);
        }
    }

    /// This worker keeps the metadata topic from now on.
    pub(super) fn keep_letters(&mut self, env: &mut Environment, services: &mut JoinSet<()>) {
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
        let keeping = services.spawn(env.gate.wrap(keep(keeping)));
        if let Some(before) = self.letter_keeping.replace(keeping) {
            before.abort();
        }
    }

    /// Another worker does.
    pub(super) fn leave_letters(&mut self) {
        if let Some(keeping) = self.letter_keeping.take() {
            keeping.abort();
        }
    }
}

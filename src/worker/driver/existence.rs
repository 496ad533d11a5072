//! Searches for the messages of tasks that other tasks wait for.

use super::queue_effects::QueueEvent;
use super::{Environment, WorkerDriver, WorkerEvent};
use crate::transport::TopicPartition;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use longhaul_core::protocol::register::QueueTask;
use std::collections::BTreeMap;

/// Whether a message with the id of a task exists, once the broker has answered.
type Search = Shared<BoxFuture<'static, bool>>;

/// The searches in progress. Each message is requested once at a time, however many tasks wait for
/// it; otherwise a worker without a connection would request it without end.
#[derive(Debug, Default)]
pub(super) struct Searches {
    under_way: BTreeMap<QueueTask, WeakShared<BoxFuture<'static, bool>>>,
    /// Finished searches are removed at this size.
    tidy_at: usize,
}

impl Searches {
    fn share(&mut self, named: QueueTask, topic: TopicPartition, env: &mut Environment) -> Search {
        let under_way = self.under_way.get(&named).and_then(WeakShared::upgrade);
        if let Some(search) = under_way.filter(|search| search.peek().is_none()) {
            return search;
        }
        let read = env.fetch_at_last(topic, named.id.position());
        let search = read.map(|message| message.is_some()).boxed().shared();
        if let Some(weak) = search.downgrade() {
            self.under_way.insert(named, weak);
        }
        if self.under_way.len() > self.tidy_at {
            self.under_way
                .retain(|_, search| search.upgrade().is_some_and(|it| it.peek().is_none()));
            self.tidy_at = 2 * self.under_way.len();
        }
        search
    }
}

impl WorkerDriver {
    /// Searches the topic for the messages of these tasks, on behalf of a task that waits for them.
    pub(super) fn look_for(&mut self, number: usize, task: QueueTask, named: Vec<QueueTask>) {
        let Self { queues, lanes, env, .. } = self;
        let Some(queue) = queues.get_mut(number) else { return };
        let mut searches = Vec::new();
        for named in named {
            let lane = queue.lane_of(named).and_then(|id| lanes.get(&id));
            if let Some(topic) = lane.map(|lane| lane.topics.task.clone()) {
                searches.push((named.id, queue.searches.share(named, topic, env)));
            }
        }
        let clock = env.clock;
        self.pending.push(Box::pin(async move {
            let mut gone = Vec::new();
            for (named, search) in searches {
                if !search.await {
                    gone.push(named);
                }
            }
            let event = QueueEvent::Looked { task, gone, at: clock.now() };
            WorkerEvent::Queue { queue: number, event }
        }));
    }
}

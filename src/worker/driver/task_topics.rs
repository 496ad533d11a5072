//! The task topics of a worker. Each has lanes by its partitions, and a ledger and a metadata topic
//! of its own. They share the worker's slots.

use super::growth::{Growth, PartitionCounts};
use super::lane::{LaneTopics, PartitionDriver};
use super::lanes::LaneId;
use super::{WorkerDriver, WorkerEvent};
use crate::supervise::recount;
use crate::topics::TopicNames;
use crate::worker::shares::Share;
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::{Priority, TaskId};
use std::sync::Arc;

/// A task topic. Its number is its index in the worker's list.
pub(super) struct TaskTopic {
    names: TopicNames,
    growth: Growth,
    /// The number of the worker's queue that it belongs to.
    pub(super) queue: usize,
    /// The lane that was last offered a slot.
    pub(super) served: Option<LaneId>,
}

impl TaskTopic {
    /// The name of a task of this topic in the register.
    pub(super) const fn queue_task(&self, id: TaskId) -> QueueTask {
        QueueTask { level: self.names.priority, id }
    }

    /// The level of the topic in its queue.
    pub(super) const fn level(&self) -> Priority {
        self.names.priority
    }

    /// The full name of the topic.
    pub(super) fn name(&self) -> &str {
        &self.names.task
    }
}

impl WorkerDriver {
    /// Adds a topic with this number of partitions.
    pub(super) fn add_topic(&mut self, names: TopicNames, share: Share, partitions: Option<u32>) {
        let Ok(topic) = u16::try_from(self.topics.len()) else { return };
        let queue = self.open_queue(&names.register, names.priority);
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.add_topic(names.priority, topic, &names.task);
        }
        self.topics.push(TaskTopic { names, growth: Growth::default(), queue, served: None });
        self.shares.add(share);
        self.open_lanes(topic, partitions);
        self.recount_partitions(topic);
    }

    /// Opens lanes for new partitions of a topic after a count.
    pub(super) fn handle_partitions(&mut self, topic: u16, counts: PartitionCounts) {
        let open = self.lanes.count_of(topic);
        let Some(TaskTopic { names, growth, .. }) = self.topics.get_mut(usize::from(topic)) else {
            return;
        };
        let partitions = growth.judge(counts, open, names);
        self.open_lanes(topic, partitions);
        self.recount_partitions(topic);
    }

    /// Counts the partitions of a topic again after a while.
    fn recount_partitions(&self, topic: u16) {
        let Some(TaskTopic { names, .. }) = self.topics.get(usize::from(topic)) else { return };
        let (transport, clock) = (Arc::clone(&self.env.transport), self.env.clock);
        let topics = [names.task.clone(), names.ledger.clone()];
        self.pending.push(Box::pin(async move {
            let [task, ledger] = recount(transport, clock, topics, None).await;
            WorkerEvent::Partitions(topic, PartitionCounts { task, ledger })
        }));
    }

    fn open_lanes(&mut self, topic: u16, partitions: Option<u32>) {
        let wanted = match partitions {
            Some(count) => 0..i32::try_from(count).unwrap_or(i32::MAX),
            None if self.lanes.count_of(topic) == 0 => -1..0,
            None => return,
        };
        let Some(TaskTopic { names, .. }) = self.topics.get(usize::from(topic)) else { return };
        for partition in wanted {
            let id = LaneId::new(topic, partition);
            if self.lanes.contains(id) || self.lanes.contains(LaneId::new(topic, -1)) {
                continue;
            }
            let topics = LaneTopics::new(names, &self.config.subscription, partition);
            let lane = PartitionDriver::open(&mut self.env, &self.config, id, topics);
            self.lanes.insert(id, lane);
            self.shares.add_lane(topic);
        }
    }
}

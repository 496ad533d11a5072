//! Events of the broker and its topics: unload, restart, hang, deletion, compaction, trimming.

use super::agenda::{PartitionId, PlannedEffect};
use super::faults::Loss;
use super::state::{BrokerOutage, MemoryBrokerState, MemoryPartition, MemoryTopic};
use longhaul_transport::{TopicPartition, TransportErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// How long a topic is unavailable after an unload: seen on Pulsar 4.0.7.
const UNLOAD_TIME: Duration = Duration::from_millis(150);
/// Time after which a client gives up a hung broker.
const CLIENT_KEEP_ALIVE: Duration = Duration::from_secs(45);

impl MemoryBrokerState {
    /// Creates a topic, or extends it by partitions.
    pub(super) fn create(&mut self, topic: &str, partitions: Option<u32>, deduplication: bool) {
        let settings = MemoryTopic { partitions, deduplication };
        self.topics.insert(topic.to_owned(), settings);
        let last = partitions.and_then(|count| i32::try_from(count).ok());
        let indexes = last.map_or(-1..0, |count| 0..count);
        for partition in indexes {
            let at = TopicPartition { topic: topic.to_owned(), partition };
            if self.find(&at).is_none() {
                let (id, ledger) = (self.id(), self.ledger());
                self.note(format!("created {at}, ledger {ledger}"));
                self.partitions.insert(id, MemoryPartition::new(at, ledger));
            }
        }
    }

    /// Deletes a topic with all its data. Clients get a corresponding error.
    pub(super) fn delete(&mut self, topic: &str, loss: Loss) {
        self.remove(topic, loss, TransportErrorKind::NotFound, "the topic was deleted");
    }

    /// Deletes a topic with all its data and re-creates it, before a client has noticed.
    pub(super) fn replace(&mut self, topic: &str, loss: Loss) {
        let Some(MemoryTopic { partitions, deduplication }) = self.topics.get(topic) else {
            return;
        };
        let (partitions, deduplication) = (*partitions, *deduplication);
        self.remove(topic, loss, TransportErrorKind::Unreachable, "the connection was lost");
        self.create(topic, partitions, deduplication);
    }

    fn remove(&mut self, topic: &str, loss: Loss, kind: TransportErrorKind, cause: &str) {
        self.topics.remove(topic);
        let of_topic = |(id, at): (&PartitionId, &mut MemoryPartition)| {
            (at.at.topic == topic && !std::mem::replace(&mut at.deleted, true)).then_some(*id)
        };
        let deleted: Vec<PartitionId> = self.partitions.iter_mut().filter_map(of_topic).collect();
        self.note(format!("deleted {topic}"));
        for id in deleted {
            for session in self.attached(|session| session.partition == id) {
                self.lose_with(session, loss, kind, cause);
            }
        }
    }

    /// Ends all sessions of a partition; its ledger rolls. Without a given loss, each session's is
    /// drawn.
    pub(super) fn unload(&mut self, id: PartitionId, loss: Option<Loss>) {
        let ledger = self.ledger();
        let until = self.now() + UNLOAD_TIME;
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.log.roll(ledger);
        partition.unavailable_until = partition.unavailable_until.max(until);
        let name = Arc::clone(&partition.name);
        self.note(format!("unloaded {name}, ledger {ledger}"));
        for session in self.attached(|session| session.partition == id) {
            self.lose(session, loss, "the topic was unloaded");
        }
    }

    /// Takes a whole topic away for a while. Messages in flight to it are stored when it is back.
    pub(super) fn take_away(&mut self, topic: &str, time: Duration, loss: Option<Loss>) {
        self.note(format!("{topic} is away for {time:?}"));
        let until = self.now() + time;
        for id in self.live() {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            if partition.at.topic != topic {
                continue;
            }
            partition.unavailable_until = partition.unavailable_until.max(until);
            partition.stalled_until = partition.stalled_until.max(until);
            for session in self.attached(|session| session.partition == id) {
                self.lose(session, loss, "the topic is away");
            }
        }
    }

    /// Restarts the broker, with all its data but possibly not all acks.
    pub(super) fn restart(&mut self, down: Duration, forget_acks: bool, loss: Option<Loss>) {
        if self.outage != BrokerOutage::None {
            return;
        }
        let acks = if forget_acks { ", acks forgotten" } else { "" };
        self.note(format!("the broker goes down for {down:?}{acks}"));
        for session in self.attached(|_| true) {
            self.lose(session, loss, "the broker went down");
        }
        // Messages that were not lost arrived just before; those planned for much later wait for
        // the broker.
        let soon = self.now() + self.faults.publish_delay.max.max(self.faults.ack_delay.max);
        for (at, effect) in self.agenda.extract(|effect| effect.is_up(None)) {
            if at <= soon { self.perform(effect) } else { self.at(at, effect) }
        }
        for id in self.live() {
            let ledger = self.ledger();
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            partition.log.roll(ledger);
            if forget_acks {
                partition.subscriptions.values_mut().for_each(|it| it.forget_unstored());
            }
        }
        self.begin_outage(BrokerOutage::Refuses, down);
    }

    /// Stops all traffic for a while. Clients notice only if it takes long.
    pub(super) fn hang(&mut self, time: Duration) {
        if self.outage != BrokerOutage::None {
            return;
        }
        self.note(format!("the broker hangs for {time:?}"));
        self.begin_outage(BrokerOutage::Hangs, time);
        if time > CLIENT_KEEP_ALIVE {
            self.after(CLIENT_KEEP_ALIVE, PlannedEffect::HangNoticed { outage: self.outages });
        }
    }

    fn begin_outage(&mut self, outage: BrokerOutage, time: Duration) {
        self.outage = outage;
        self.outages += 1;
        self.after(time, PlannedEffect::Back { outage: self.outages });
        self.signals.changed.notify_waiters();
    }

    pub(super) fn back(&mut self, outage: u32) {
        if self.outages != outage || self.outage == BrokerOutage::None {
            return;
        }
        self.outage = BrokerOutage::None;
        self.note("the broker is back".to_owned());
        for effect in std::mem::take(&mut self.hung) {
            self.perform(effect);
        }
        self.signals.changed.notify_waiters();
    }

    pub(super) fn hang_noticed(&mut self, outage: u32) {
        if self.outages == outage && self.outage == BrokerOutage::Hangs {
            for session in self.attached(|_| true) {
                self.lose(session, None, "the broker does not answer");
            }
        }
    }

    /// Stores nothing for a while; arriving messages are stored afterwards.
    pub(super) fn stall_publishes(&mut self, id: PartitionId, time: Duration) {
        let until = self.now() + time;
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.stalled_until = partition.stalled_until.max(until);
        let name = Arc::clone(&partition.name);
        self.note(format!("nothing is stored on {name} for {time:?}"));
    }

    /// Sends followers nothing for a while, without an error.
    pub(super) fn silence_followers(&mut self, id: PartitionId, time: Duration) {
        let until = self.now() + time;
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.silent_until = partition.silent_until.max(until);
        let name = Arc::clone(&partition.name);
        self.note(format!("followers of {name} are sent nothing for {time:?}"));
        self.at(until, PlannedEffect::Feed(id));
    }

    /// Sends the open followers nothing any more, without an error.
    pub(super) fn stall_followers(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let (name, followers) = (Arc::clone(&partition.name), partition.followers.clone());
        for follower in followers {
            if let Some(following) = self.sessions.get_mut(&follower).and_then(|it| it.following())
            {
                following.stalled = true;
            }
        }
        self.note(format!("followers of {name} fall silent"));
    }

    /// Forbids all clients to use the partition, or allows it again.
    pub(super) fn forbid(&mut self, id: PartitionId, forbidden: bool) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.forbidden = forbidden;
        let name = Arc::clone(&partition.name);
        self.note(format!("{name} is forbidden: {forbidden}"));
        let kind = TransportErrorKind::Unauthorized;
        for session in self.attached(|session| forbidden && session.partition == id) {
            self.lose_with(session, Loss::Error, kind, "no permission");
        }
    }

    /// Dispatches nothing until a consumer joins.
    pub(super) fn stall_subscription(&mut self, id: PartitionId, subscription: &str) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if let Some(it) = partition.subscriptions.get_mut(subscription) {
            it.stalled = true;
            let name = Arc::clone(&partition.name);
            self.note(format!("{subscription} on {name} falls silent"));
        }
    }

    /// Compacts up to an index, or to a drawn one.
    pub(super) fn compact(&mut self, id: PartitionId, upto: Option<usize>) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let (from, to) = partition.log.horizons();
        let upto = upto.unwrap_or_else(|| self.rng.usize(from..=to));
        partition.log.compact(upto);
        let (horizon, _) = partition.log.horizons();
        let name = Arc::clone(&partition.name);
        self.note(format!("compacted {name}: {horizon} of {to} messages"));
    }

    /// Drops the entries that all subscriptions have acknowledged. A partition without
    /// subscriptions loses its compacted part, which the compacted view keeps: a broker trims no
    /// further than its cursor.
    pub(super) fn trim(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let positions = partition.subscriptions.values().map(|it| it.mark_delete);
        let upto = match positions.min() {
            None => partition.log.compacted_to(),
            Some(upto) => upto,
        };
        let Some(upto) = upto else { return };
        let count = partition.log.trim(upto);
        let name = Arc::clone(&partition.name);
        self.note(format!("trimmed {count} messages of {name}"));
    }

    /// The partitions that are not deleted.
    pub(super) fn live(&self) -> Vec<PartitionId> {
        let live = self.partitions.iter().filter(|(_, partition)| !partition.deleted);
        live.map(|(id, _)| *id).collect()
    }
}

//! Admin calls of the simulated operators.

use super::model::ModelCursor;
use super::world::{SimulatedWorld, TOPICS};
use crate::admin::values::{AdminCallError, SubscriptionStart};
use crate::hostile::calls::{self, AnyCall};
use crate::machine::BrokerMachine;
use crate::name::TopicName;
use crate::policies::Policies;
use std::collections::{BTreeMap, BTreeSet};

const PARTS: &str = "persistent://public/default/parts";

impl SimulatedWorld {
    /// Makes a call, and updates the model before the answer is checked.
    fn call(&mut self, work: impl FnOnce(&mut BrokerMachine), follow: impl FnOnce(&mut Self)) {
        let ticket = self.number();
        let pending = self.node.machine.pending_compactions();
        let effects = self.act(|machine| machine.call(ticket, work));
        self.asked.extend(self.node.machine.pending_compactions().difference(&pending));
        follow(self);
        self.calls.insert(ticket, self.node.machine.recorded());
        self.is_asked = true;
        self.finish(effects);
        self.is_asked = false;
    }

    /// Makes a call about a topic, which may be refused.
    pub(super) fn topic_call<T>(
        &mut self,
        topic: &str,
        work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError>,
        follow: impl FnOnce(&mut Self),
    ) {
        let name = TopicName::parse(topic).unwrap();
        self.call(|machine| drop(work(machine, &name)), follow);
    }

    pub(super) fn operator_step(&mut self) {
        let name = *self.random.choice(TOPICS.iter()).unwrap();
        match self.random.u8(0..16) {
            0 | 1 => self.create_partitions(),
            2 => self.delete(name),
            3 => self.unload(name),
            4 => self.set_limit(name),
            5 => self.set_compaction(),
            6..=8 => self.topic_call(name, BrokerMachine::start_compaction, |_| {}),
            9 if self.random.bool() => self.truncate(name),
            _ => self.subscription_step(name),
        }
    }

    /// Checks that a topic whose compaction failed is compacted again: after a pause if it has a
    /// threshold, and when an operator asks for it.
    pub(super) fn check_compacted_again(&mut self) {
        self.pump();
        if self.node.is_dead {
            return;
        }
        let (seed, retried) = (self.seed, self.retried);
        let waiting = |world: &Self| world.node.machine.pending_compactions();
        let by_threshold = waiting(self);
        let ask = |world: &mut Self| {
            for name in TOPICS {
                world.topic_call(name, BrokerMachine::start_compaction, |_| {});
            }
        };
        ask(self);
        let asked = waiting(self);
        asked.iter().for_each(|_| self.compact(false));
        self.pass(4000);
        self.pump();
        let again = waiting(self);
        assert!(again.is_superset(&by_threshold), "seed {seed}: {again:?} of {by_threshold:?}");
        ask(self);
        assert_eq!(waiting(self), asked, "seed {seed}: topics that are compacted again");
        asked.iter().for_each(|_| self.compact(true));
        assert!(self.backoffs.is_empty(), "seed {seed}: a compaction fails for nothing");
        // Only retries in the history itself are counted.
        self.retried = retried;
    }

    /// Makes calls with invalid names and bodies: a refused call must not keep the broker from its
    /// next start.
    pub(super) fn hostile_calls(&mut self) {
        for _ in 0..self.random.usize(0..32) {
            let Some(AnyCall { path, work, .. }) = calls::any(&mut self.random) else { continue };
            if !is_about_others(&path) {
                continue;
            }
            self.call(work, Self::follow_others);
            if self.random.u8(0..8) == 0 {
                self.write();
            }
        }
        // The last records are usually on disk when the broker ends.
        (0..self.random.u8(0..3)).for_each(|_| self.write());
    }

    /// Updates the model for topics that no client uses.
    fn follow_others(&mut self) {
        let state = self.node.machine.state();
        self.model.topics.retain(|&id, _| state.topic(id).is_some());
        self.backoffs.retain(|&id, _| state.topic(id).is_some());
        let ids: Vec<u32> = self.model.topics.keys().copied().collect();
        for id in ids {
            let Some(kept) = self.node.machine.state().topic(id) else { continue };
            let names: BTreeSet<String> = kept.durable().map(|known| known.name.clone()).collect();
            if !TOPICS.contains(&kept.name.as_str()) {
                self.model.topic(id).cursors.retain(|name, _| names.contains(name));
            }
        }
        self.know_new_cursors();
    }

    pub(super) fn skip_all(&mut self) {
        let name = *self.random.choice(TOPICS.iter()).unwrap();
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        let names: Vec<String> = self.model.topics[&id].cursors.keys().cloned().collect();
        for subscription in names {
            let key = (id, subscription.clone());
            let skip = |machine: &mut BrokerMachine, topic: &TopicName| {
                machine.skip_all(topic, &subscription)
            };
            self.topic_call(name, skip, |world| {
                let readable = world.readable(id);
                world.skip(&key, true, readable);
            });
        }
    }

    fn create_partitions(&mut self) {
        let partitions = self.random.u32(1..3);
        let is_new = self.random.bool();
        let work = |machine: &mut BrokerMachine, topic: &TopicName| {
            if is_new {
                machine.make_partitioned(topic, partitions)
            } else {
                machine.grow(topic, partitions)
            }
        };
        self.topic_call(PARTS, work, |world| world.know_new_cursors());
    }

    /// Adds the subscriptions that new partitions have got from the first partition.
    fn know_new_cursors(&mut self) {
        let state = self.node.machine.state();
        let mut new = Vec::new();
        for (id, topic) in state.topics() {
            let known = &self.model.topics[&id].cursors;
            let durable =
                topic.durable().filter(|subscription| !known.contains_key(&subscription.name));
            new.extend(durable.map(|known| (id, known.name.clone())));
        }
        for (id, name) in new {
            let first = self.model.topics[&id].first.min(self.readable(id));
            self.model.topic(id).cursors.insert(name, ModelCursor::at(first));
        }
    }

    fn delete(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        let force = self.random.u8(0..3) == 0;
        self.topic_call(
            name,
            |machine, topic| machine.remove_topic(topic, force),
            |world| {
                if world.node.machine.state().topic(id).is_some() {
                    return;
                }
                world.detach_topic(id);
                world.orphans.retain(|location, _| location.0 != id);
                world.model.topics.remove(&id);
                world.backoffs.remove(&id);
            },
        );
    }

    fn detach_topic(&mut self, id: u32) {
        let keys: Vec<_> = self.runs.keys().filter(|location| location.0 == id).cloned().collect();
        keys.into_iter().for_each(|(_, subscription)| self.detach_all(id, &subscription));
    }

    fn unload(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        self.topic_call(name, BrokerMachine::unload_topic, |world| {
            world.detach_topic(id);
            world.follow_trims(false);
        });
    }

    fn truncate(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        self.topic_call(name, BrokerMachine::truncate_topic, |world| {
            let readable = world.readable(id);
            let names: Vec<String> = world.model.topics[&id].cursors.keys().cloned().collect();
            for subscription in names {
                world.change_cursor(&(id, subscription), |cursor| cursor.ack_before(readable));
            }
            world.follow_trims(true);
        });
    }

    fn set_limit(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        if name.starts_with(PARTS) {
            return;
        }
        let limit = self.random.u64(0..6);
        let change = |policies: &mut Policies| policies.unacked_per_consumer = Some(limit);
        let set =
            |machine: &mut BrokerMachine, topic: &TopicName| machine.set_policy(topic, change);
        self.topic_call(name, set, |world| world.model.topic(id).unacked_limit = limit);
    }

    fn set_compaction(&mut self) {
        let change = |policies: &mut Policies| policies.compaction_threshold_bytes = Some(600);
        let set =
            |machine: &mut BrokerMachine, topic: &TopicName| machine.set_policy(topic, change);
        let Some(id) = self.node.machine.state().topic_id(TOPICS[2]) else { return };
        self.topic_call(TOPICS[2], set, |world| world.model.topic(id).compacts = true);
    }

    fn subscription_step(&mut self, name: &str) {
        let subscription = format!("s{}", self.random.u8(0..2));
        let id = self.node.machine.state().topic_id(name);
        let key = (id.unwrap_or(u32::MAX), subscription.clone());
        let is_known =
            self.model.topics.get(&key.0).is_some_and(|topic| topic.cursors.contains_key(&key.1));
        let age_s = self.random.u64(0..4);
        let before = self.now - age_s * 1000;
        match self.random.u8(0..8) {
            0 => self.create_subscription(name, id.filter(|_| !is_known), &subscription),
            1 => {
                let remove = |machine: &mut BrokerMachine, topic: &TopicName| {
                    machine.remove_subscription(topic, &subscription, true)
                };
                self.topic_call(name, remove, |world| {
                    if is_known {
                        world.detach_all(key.0, &key.1);
                        world.model.topic(key.0).cursors.remove(&key.1);
                    }
                });
            }
            2 => self.topic_call(
                name,
                |machine, topic| machine.skip_all(topic, &subscription),
                |world| {
                    let readable = world.readable(key.0);
                    world.skip(&key, is_known, readable);
                },
            ),
            3 | 4 => {
                let entries = self.random.u64(1..4);
                self.topic_call(
                    name,
                    |machine, topic| machine.skip(topic, &subscription, entries),
                    |world| {
                        let before = is_known.then(|| world.after_open(&key, entries));
                        world.skip(&key, is_known, before.unwrap_or_default());
                    },
                );
            }
            5 => self.topic_call(
                name,
                |machine, topic| machine.expire_subscription(topic, &subscription, age_s),
                |world| {
                    let before = is_known.then(|| world.at_time(key.0, before));
                    world.skip(&key, is_known, before.unwrap_or_default());
                },
            ),
            6 => self.topic_call(
                name,
                |machine, topic| machine.reset_to_time(topic, &subscription, before),
                |world| {
                    let floor = is_known.then(|| world.at_time(key.0, before));
                    world.goes_back(&key, floor);
                },
            ),
            _ => self.topic_call(
                name,
                |machine, topic| machine.reset(topic, &subscription, SubscriptionStart::Earliest),
                |world| {
                    let first = |world: &Self| world.model.topics[&key.0].first;
                    let floor = is_known.then(|| first(world).min(world.readable(key.0)));
                    world.goes_back(&key, floor);
                },
            ),
        }
    }

    /// `id` is the topic's id if the subscription does not exist yet.
    fn create_subscription(&mut self, name: &str, id: Option<u32>, subscription: &str) {
        let none = BTreeMap::new();
        let make = |machine: &mut BrokerMachine, topic: &TopicName| {
            machine.make_subscription(topic, subscription, SubscriptionStart::Earliest, &none)
        };
        self.topic_call(name, make, |world| {
            let Some(id) = id else { return world.know_new_cursors() };
            let (machine, seed) = (&world.node.machine, world.seed);
            let kept = machine.state().topic(id);
            if kept.is_some_and(|kept| kept.subscription_id(subscription).is_none()) {
                assert!(machine.is_disk_full(), "seed {seed}: {subscription} is refused");
                return;
            }
            let first = world.model.topics[&id].first.min(world.readable(id));
            world.model.topic(id).cursors.insert(subscription.to_owned(), ModelCursor::at(first));
        });
    }

    /// The first entry published at or after this time.
    fn at_time(&self, topic: u32, time: u64) -> u64 {
        self.model.topics[&topic].at_time(time, self.readable(topic))
    }

    /// Moves the model's cursor if the subscription exists.
    fn goes_back(&mut self, key: &(u32, String), floor: Option<u64>) {
        let Some(floor) = floor else { return };
        self.change_cursor(key, |cursor| *cursor = ModelCursor::at(floor));
        self.detach_all(key.0, &key.1);
    }

    fn skip(&mut self, key: &(u32, String), is_known: bool, before: u64) {
        if is_known {
            self.change_cursor(key, |cursor| cursor.ack_before(before));
        }
    }

    /// The ordinal after this many unacknowledged entries.
    fn after_open(&self, key: &(u32, String), entries: u64) -> u64 {
        let topic = &self.model.topics[&key.0];
        let readable = self.readable(key.0);
        let cursor = &topic.cursors[&key.1];
        let mut open = (topic.first..readable).filter(|&ordinal| !cursor.is_acked(ordinal));
        let last = usize::try_from(entries - 1).ok().and_then(|skip| open.nth(skip));
        last.map_or(readable, |ordinal| ordinal + 1)
    }
}

/// Whether a call does not touch the topics of clients, for which the model knows the effect of
/// each call.
fn is_about_others(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "admin", "v2", "persistent" | "schemas", tenant, namespace, topic, ..] => {
            let name = format!("persistent://{tenant}/{namespace}/{topic}");
            !TOPICS.contains(&name.as_str()) && name != PARTS
        }
        ["", "admin", "v2", "namespaces", ..] => !path.contains("/public/default"),
        _ => true,
    }
}

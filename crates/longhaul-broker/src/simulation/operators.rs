//! What operators ask of the admin interface.

use super::model::Cursor;
use super::world::{TOPICS, World};
use crate::admin::policies::Policy;
use crate::admin::request::{AdminRequest, Start, SubscriptionCall, TopicCall};
use crate::hostile::calls;
use std::collections::{BTreeMap, BTreeSet};

const PARTS: &str = "persistent://public/default/parts";

impl World {
    /// Calls, and lets the model follow before the answer is looked at.
    fn call(&mut self, request: AdminRequest, follow: impl FnOnce(&mut Self)) {
        let ticket = self.number();
        let effects = self.act(|machine| machine.call(ticket, request));
        follow(self);
        self.calls.insert(ticket, self.node.machine.recorded());
        self.finish(effects);
    }

    fn topic_call(&mut self, topic: &str, call: TopicCall, follow: impl FnOnce(&mut Self)) {
        self.call(AdminRequest::Topic { topic: topic.to_owned(), call }, follow);
    }

    pub(super) fn operator_step(&mut self) {
        let name = *self.random.choice(TOPICS.iter()).unwrap();
        match self.random.u8(0..16) {
            0 | 1 => self.create_partitions(),
            2 => self.delete(name),
            3 => self.unload(name),
            4 => self.set_limit(name),
            5 => self.set_compaction(),
            6..=8 => self.topic_call(name, TopicCall::Compact, |_| {}),
            9 if self.random.bool() => self.truncate(name),
            _ => self.subscription_step(name),
        }
    }

    /// Somebody calls with names and bodies that cannot be meant: nothing of what is refused may keep the broker from its next start.
    pub(super) fn hostile_calls(&mut self) {
        for _ in 0..self.random.usize(0..32) {
            let Some(request) = calls::any_request(&mut self.random).1 else { continue };
            if !is_about_others(&request) {
                continue;
            }
            self.call(request, Self::follow_others);
            if self.random.u8(0..8) == 0 {
                self.write();
            }
        }
    }

    /// Topics that no client uses come and go.
    fn follow_others(&mut self) {
        let state = self.node.machine.state();
        self.model.topics.retain(|&id, _| state.topic(id).is_some());
        let ids: Vec<u32> = self.model.topics.keys().copied().collect();
        for id in ids {
            let Some(kept) = self.node.machine.state().topic(id) else { continue };
            let names: BTreeSet<String> = kept.durable().map(|it| it.name.clone()).collect();
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
            let call = SubscriptionCall::SkipAll;
            let topic = name.to_owned();
            let key = (id, subscription.clone());
            self.call(AdminRequest::Subscription { topic, subscription, call }, |world| {
                let readable = world.readable(id);
                world.skip(&key, true, readable);
            });
        }
    }

    fn create_partitions(&mut self) {
        let partitions = self.random.u32(1..3);
        let call = if self.random.bool() {
            TopicCall::CreatePartitioned { partitions }
        } else {
            TopicCall::GrowPartitioned { partitions }
        };
        self.topic_call(PARTS, call, |world| world.know_new_cursors());
    }

    /// Growing gives the subscriptions of the first partition to new ones.
    fn know_new_cursors(&mut self) {
        let state = self.node.machine.state();
        let mut new = Vec::new();
        for (id, topic) in state.topics() {
            let known = &self.model.topics[&id].cursors;
            let durable = topic.durable().filter(|it| !known.contains_key(&it.name));
            new.extend(durable.map(|it| (id, it.name.clone())));
        }
        for (id, name) in new {
            let first = self.model.topics[&id].first.min(self.readable(id));
            self.model.topic(id).cursors.insert(name, Cursor::at(first));
        }
    }

    fn delete(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        let force = self.random.u8(0..3) == 0;
        self.topic_call(name, TopicCall::Delete { force }, |world| {
            if world.node.machine.state().topic(id).is_some() {
                return;
            }
            world.detach_topic(id);
            world.orphans.retain(|it, _| it.0 != id);
            world.model.topics.remove(&id);
        });
    }

    fn detach_topic(&mut self, id: u32) {
        let keys: Vec<_> = self.runs.keys().filter(|it| it.0 == id).cloned().collect();
        keys.into_iter().for_each(|(_, subscription)| self.detach_all(id, &subscription));
    }

    fn unload(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        self.topic_call(name, TopicCall::Unload, |world| {
            world.detach_topic(id);
            world.follow_trims(false);
        });
    }

    fn truncate(&mut self, name: &str) {
        let Some(id) = self.node.machine.state().topic_id(name) else { return };
        self.topic_call(name, TopicCall::Truncate, |world| {
            let readable = world.readable(id);
            let names: Vec<String> = world.model.topics[&id].cursors.keys().cloned().collect();
            for subscription in names {
                world.change_cursor(&(id, subscription), |it| it.ack_before(readable));
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
        let call = TopicCall::SetPolicy(Policy::UnackedPerConsumer(Some(limit)));
        self.topic_call(name, call, |world| world.model.topic(id).unacked_limit = limit);
    }

    fn set_compaction(&mut self) {
        let call = TopicCall::SetPolicy(Policy::CompactionThreshold(Some(600)));
        let Some(id) = self.node.machine.state().topic_id(TOPICS[2]) else { return };
        self.topic_call(TOPICS[2], call, |world| world.model.topic(id).compacts = true);
    }

    fn subscription_step(&mut self, name: &str) {
        let subscription = format!("s{}", self.random.u8(0..2));
        let id = self.node.machine.state().topic_id(name);
        let key = (id.unwrap_or(u32::MAX), subscription.clone());
        let is_known =
            self.model.topics.get(&key.0).is_some_and(|it| it.cursors.contains_key(&key.1));
        let ask = |call| AdminRequest::Subscription {
            topic: name.to_owned(),
            subscription: subscription.clone(),
            call,
        };
        let age_s = self.random.u64(0..4);
        let before = self.now - age_s * 1000;
        match self.random.u8(0..8) {
            0 => {
                let call =
                    SubscriptionCall::Create { at: Start::Earliest, properties: BTreeMap::new() };
                self.call(ask(call), |world| {
                    let Some(id) = id.filter(|_| !is_known) else {
                        return world.know_new_cursors();
                    };
                    let first = world.model.topics[&id].first.min(world.readable(id));
                    world.model.topic(id).cursors.insert(key.1, Cursor::at(first));
                });
            }
            1 => {
                let call = SubscriptionCall::Delete { force: true };
                self.call(ask(call), |world| {
                    if is_known {
                        world.detach_all(key.0, &key.1);
                        world.model.topic(key.0).cursors.remove(&key.1);
                    }
                });
            }
            2 => self.call(ask(SubscriptionCall::SkipAll), |world| {
                let readable = world.readable(key.0);
                world.skip(&key, is_known, readable);
            }),
            3 | 4 => {
                let entries = self.random.u64(1..4);
                self.call(ask(SubscriptionCall::Skip { entries }), |world| {
                    if is_known {
                        let before = world.after_open(&key, entries);
                        world.skip(&key, true, before);
                    }
                });
            }
            5 => self.call(ask(SubscriptionCall::ExpireMessages { age_s }), |world| {
                if is_known {
                    let before = world.model.topics[&key.0].at_time(before, world.readable(key.0));
                    world.skip(&key, true, before);
                }
            }),
            6 => self.call(ask(SubscriptionCall::ResetToTime { timestamp_ms: before }), |world| {
                if is_known {
                    let floor = world.model.topics[&key.0].at_time(before, world.readable(key.0));
                    world.change_cursor(&key, |cursor| *cursor = Cursor::at(floor));
                    world.detach_all(key.0, &key.1);
                }
            }),
            _ => self.call(ask(SubscriptionCall::Reset { to: Start::Earliest }), |world| {
                if is_known {
                    let floor = world.model.topics[&key.0].first.min(world.readable(key.0));
                    world.change_cursor(&key, |cursor| *cursor = Cursor::at(floor));
                    world.detach_all(key.0, &key.1);
                }
            }),
        }
    }

    fn skip(&mut self, key: &(u32, String), is_known: bool, before: u64) {
        if is_known {
            self.change_cursor(key, |cursor| cursor.ack_before(before));
        }
    }

    /// Behind so many entries that are not acknowledged.
    fn after_open(&self, key: &(u32, String), entries: u64) -> u64 {
        let topic = &self.model.topics[&key.0];
        let readable = self.readable(key.0);
        let cursor = &topic.cursors[&key.1];
        let mut open = (topic.first..readable).filter(|&it| !cursor.is_acked(it));
        let last = usize::try_from(entries - 1).ok().and_then(|skip| open.nth(skip));
        last.map_or(readable, |it| it + 1)
    }
}

/// Whether a call leaves alone what the clients use, of which the model knows what each call does.
fn is_about_others(request: &AdminRequest) -> bool {
    match request {
        AdminRequest::Topic { topic, .. } | AdminRequest::Subscription { topic, .. } => {
            !TOPICS.contains(&topic.as_str()) && topic != PARTS
        }
        AdminRequest::Namespace { namespace, .. } => namespace != "public/default",
        _ => true,
    }
}

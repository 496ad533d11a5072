//! How a lane consumes its task topic, also where the queue has an order.

use super::lane::{PartitionDriver, TaskPayload};
use super::{Environment, WorkerEvent};
use crate::transport::Message;
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{ConsumerCommand, Sink, consume};
use bytes::Bytes;
use longhaul_core::protocol::hash::NameHash;
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::text::ORDER_KEY;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl PartitionDriver {
    /// Starts the consumer service. Returns false if one is running.
    pub(super) fn start_consuming(&mut self, env: &mut Environment) -> bool {
        if self.consumer_service.is_some() {
            return false;
        }
        self.service += 1;
        let (lane, service) = (self.id(), self.service);
        let sink = Sink::new(env.events.clone(), move |event| WorkerEvent::Consumed {
            lane,
            service,
            event,
        });
        let task_service = env.service(&self.topics.task);
        let subscription = (self.topics.subscription.clone(), Arc::clone(&self.by_key));
        let (commands, open) = (self.consumer.clone(), Arc::clone(&self.open_entries));
        let consuming = consume(task_service, subscription, commands, sink, open);
        self.consumer_service = Some(env.spawn(consuming));
        true
    }

    /// Gives the next session the other type of subscription, and ends an open session.
    pub(super) fn subscribe_anew(&self, by_key: bool) {
        self.by_key.store(by_key, Ordering::Relaxed);
        if self.consumer_service.is_some() {
            self.consumer.put(ConsumerCommand::SubscribeAnew);
        }
    }

    /// Ends the consumer session. The broker redelivers its unacknowledged messages, to this worker
    /// or others.
    pub(super) fn stop_consuming(&mut self) {
        if let Some(service) = self.consumer_service.take() {
            service.abort();
        }
        self.service += 1;
        self.has_left = false;
        self.session = None;
        self.credit = 0;
        self.consumer = Mailbox::new();
    }

    /// The payload and the facts of a message, with the queue's default terms. The order key is
    /// added as a property for every producer, so that it is kept in a dead letter and in its
    /// replay.
    pub(super) fn payload_of(
        &self,
        message: Message,
        defaults: Option<&QueueSettings>,
    ) -> TaskPayload {
        let key = message.order_key().filter(|_| self.core.keeps_order());
        let key = key.map(Bytes::copy_from_slice);
        let mut payload = TaskPayload::from(message);
        payload.complete_terms(defaults);
        Arc::make_mut(&mut payload.facts).order_key = key.as_deref().map(NameHash::of);
        if let Some(key) = key.as_deref().and_then(|key| std::str::from_utf8(key).ok()) {
            payload.properties.entry(ORDER_KEY.to_owned()).or_insert_with(|| key.to_owned());
        }
        payload
    }

    /// Starts or stops keeping an order. An open consumer subscribes anew. The broker refuses
    /// consumers of two types, so this one waits until the others have switched, too.
    pub(super) fn change_order(&mut self, by_key: bool) {
        if self.core.keeps_order() != by_key {
            self.core.set_order(by_key);
            self.subscribe_anew(by_key);
        }
    }

    /// Leaves the subscription in a drain, so that the lines go to other workers. They show and
    /// acknowledge the ends of tasks that still run here. While this worker consumes, the broker
    /// gives its keys to no other.
    pub(super) fn leave_line(&mut self) {
        if self.core.keeps_order() && !std::mem::replace(&mut self.has_left, true) {
            self.consumer.put(ConsumerCommand::Leave);
        }
    }
}

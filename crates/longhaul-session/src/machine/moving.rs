//! Closes producers and consumers whose topic moves to another broker or to another cluster.
//!
//! The user reopens them, as after any end. If the broker has named the new place, that saves a
//! lookup; after a migration it is the only source of the new address.

use super::call::{ConnectionEvent, TopicRedirect};
use super::{ConnectionMachine, error};
use longhaul_types::moment::Moment;
use longhaul_wire::messages::{
    CommandCloseConsumer, CommandCloseProducer, CommandTopicMigrated, ResourceType,
};

/// Longest address that is accepted.
const URL_BYTES_MAX: usize = 1_024;

/// An address that the broker has named; empty if it is missing or too long.
fn address(url: Option<String>) -> String {
    url.filter(|url| url.len() <= URL_BYTES_MAX).unwrap_or_default()
}

impl<A, P> ConnectionMachine<A, P> {
    pub(super) fn handle_close_producer(&mut self, close: CommandCloseProducer, now: Moment) {
        let id = close.producer_id;
        let urls = (close.assigned_broker_service_url, close.assigned_broker_service_url_tls);
        let topic = self.producers.get(&id).map(|producer| producer.topic().to_owned());
        self.tell_where(topic, urls, false);
        let cause = error::unreachable(&self.address, "the broker has closed the producer");
        self.producer_closed(id, &cause, now);
    }

    pub(super) fn handle_close_consumer(&mut self, close: CommandCloseConsumer, now: Moment) {
        let id = close.consumer_id;
        let urls = (close.assigned_broker_service_url, close.assigned_broker_service_url_tls);
        let topic = self.consumers.get(&id).map(|consumer| consumer.topic().to_owned());
        self.tell_where(topic, urls, false);
        let cause = error::unreachable(&self.address, "the broker has closed the consumer");
        self.consumer_closed(id, &cause, now);
    }

    pub(super) fn handle_migrated(&mut self, migrated: CommandTopicMigrated, now: Moment) {
        let id = migrated.resource_id;
        let cause = error::unreachable(&self.address, "the topic has moved to another cluster");
        let urls = (migrated.broker_service_url, migrated.broker_service_url_tls);
        if migrated.resource_type == ResourceType::Producer as i32 {
            let producer = self.producers.get(&id);
            let is_open = producer.is_some_and(|producer| producer.is_open());
            let topic = producer.map(|producer| producer.topic().to_owned());
            self.tell_where(topic, urls, true);
            self.producer_closed(id, &cause, now);
            if is_open {
                self.close_producer(id, now);
            }
        } else {
            let consumer = self.consumers.get(&id);
            let is_open = consumer.is_some_and(|consumer| consumer.is_open());
            let topic = consumer.map(|consumer| consumer.topic().to_owned());
            self.tell_where(topic, urls, true);
            self.consumer_closed(id, &cause, now);
            if is_open {
                self.close_consumer(id, now);
            }
        }
    }

    /// Events are only sent for producers and consumers that are open here.
    fn tell_where(
        &mut self,
        topic: Option<String>,
        (url, url_tls): (Option<String>, Option<String>),
        migrated: bool,
    ) {
        let (url, url_tls) = (address(url), address(url_tls));
        if let Some(topic) = topic.filter(|_| !url.is_empty() || !url_tls.is_empty()) {
            self.events.push_back(ConnectionEvent::Moved(TopicRedirect {
                topic,
                url,
                url_tls,
                migrated,
            }));
        }
    }
}

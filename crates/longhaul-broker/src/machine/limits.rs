//! Limits on the numbers of topics, subscriptions, schemas, producers and consumers.

use super::BrokerMachine;
use super::dispatcher::DispatchMode;
use super::effect::RequestRefusal;
use crate::name::TopicName;
use crate::policies::Policies;
use crate::state::{BrokerTopic, SchemaVersion, schema_bytes};
use longhaul_wire::messages::ServerError;

/// Approximate bytes of the records of a new topic or subscription.
pub(super) const TOPIC_BYTES: usize = 1024;
/// Topics of the broker, partitions included.
const TOPICS_MAX: usize = 250_000;
/// Durable subscriptions of a topic.
const SUBSCRIPTIONS_MAX: usize = 10_000;
/// Versions of a topic's schema.
const SCHEMAS_MAX: usize = 1000;
/// Bytes of all versions of a topic's schema, and of all topics: they are in memory, and in each
/// checkpoint.
const SCHEMA_BYTES_MAX: usize = 8 * 1024 * 1024;
const ALL_SCHEMA_BYTES_MAX: usize = 256 * 1024 * 1024;

fn refuse(text: String) -> Result<(), RequestRefusal> {
    Err(RequestRefusal::not_allowed(text))
}

impl BrokerMachine {
    /// Checks that the broker and the namespace of this topic may have more topics.
    pub(super) fn check_topics(
        &self,
        name: &TopicName,
        policies: &Policies,
        more: usize,
    ) -> Result<(), RequestRefusal> {
        if more == 0 {
            return Ok(());
        }
        // The room that is left on a full disk is for acknowledgements. Clients retry, perhaps with
        // new names each time.
        self.check_disk(more.saturating_mul(TOPIC_BYTES))?;
        let count = self.state.topic_count();
        if count + more > TOPICS_MAX {
            return refuse(format!(
                "the broker has {count} topics, its limit is {TOPICS_MAX}: delete some"
            ));
        }
        let Some(limit) = policies.limit("maxTopicsPerNamespace") else { return Ok(()) };
        let namespace = name.namespace();
        let count = self.state.topics_named(&TopicName::start_in(namespace)).count();
        if count + more > limit {
            return refuse(format!(
                "namespace {namespace} has {count} topics, its limit is {limit} (maxTopicsPerNamespace): delete some, or raise the limit"
            ));
        }
        Ok(())
    }

    /// Checks that a topic may have another new subscription. One that is not durable ends with its
    /// consumer, so only the policy limits it.
    pub(super) fn check_subscriptions(
        &self,
        topic: u32,
        kept: &BrokerTopic,
        is_durable: bool,
    ) -> Result<(), RequestRefusal> {
        if is_durable {
            self.check_disk(TOPIC_BYTES)?;
        }
        let limit = self.live.get(&topic).and_then(|live| {
            let limit = live.policies.limit("maxSubscriptionsPerTopic")?;
            Some((kept.subscriptions.len(), limit, " (maxSubscriptionsPerTopic)"))
        });
        if limit.is_none() && !is_durable {
            return Ok(());
        }
        let (count, limit, policy) =
            limit.unwrap_or_else(|| (kept.durable().count(), SUBSCRIPTIONS_MAX, ""));
        if count < limit {
            return Ok(());
        }
        let name = &kept.name;
        refuse(format!(
            "{name} has {count} subscriptions, its limit is {limit}{policy}: delete some, or raise the limit"
        ))
    }

    /// Checks that a topic may have another producer.
    pub(super) fn check_producers(&self, topic: u32) -> Result<(), RequestRefusal> {
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return Ok(());
        };
        let limit = live.policies.limit("maxProducers").unwrap_or(usize::MAX);
        if live.producers.active.len() < limit {
            return Ok(());
        }
        let text = format!(
            "{} has {limit} producers, its limit (maxProducers): close some, or raise the limit",
            kept.name
        );
        Err(RequestRefusal::new(ServerError::ProducerBusy, text))
    }

    /// Checks that a subscription of a topic may have another consumer. An exclusive subscription
    /// has one anyway, and a newcomer there is refused when its holder has answered.
    pub(super) fn check_consumers(
        &self,
        topic: u32,
        subscription: &str,
        kind: DispatchMode,
    ) -> Result<(), RequestRefusal> {
        let Some((kept, live)) = self.state.topic(topic).zip(self.live.get(&topic)) else {
            return Ok(());
        };
        let busy = |what: &str, limit: usize, policy: &str| {
            let text = format!(
                "{what}{} has {limit} consumers, its limit ({policy}): close some, or raise the limit",
                kept.name
            );
            Err(RequestRefusal::new(ServerError::ConsumerBusy, text))
        };
        let policy = "maxConsumersPerSubscription";
        let known = kept.subscription_id(subscription).filter(|_| kind != DispatchMode::Exclusive);
        let own = known.and_then(|id| live.dispatchers.get(&id));
        let own = own.map_or(0, |dispatcher| dispatcher.consumers().len());
        if let Some(limit) = live.policies.limit(policy).filter(|&limit| own >= limit) {
            return busy("the subscription of ", limit, policy);
        }
        let policy = "maxConsumers";
        let all = || live.dispatchers.values().map(|any| any.consumers().len()).sum::<usize>();
        if let Some(limit) = live.policies.limit(policy).filter(|&limit| all() >= limit) {
            return busy("", limit, policy);
        }
        Ok(())
    }

    /// Checks that a topic with these versions of its schema may have another one of so many bytes.
    pub(super) fn check_schemas(
        &self,
        name: &TopicName,
        versions: &[SchemaVersion],
        bytes: usize,
    ) -> Result<(), RequestRefusal> {
        let (count, before) = (versions.len(), schema_bytes(versions));
        if count >= SCHEMAS_MAX || before + bytes > SCHEMA_BYTES_MAX {
            return refuse(format!(
                "{name} has {count} versions of its schema with {before} bytes, the limits are {SCHEMAS_MAX} and {SCHEMA_BYTES_MAX} bytes: delete the schema, or use another topic"
            ));
        }
        let all = self.state.schema_bytes();
        if all + bytes > ALL_SCHEMA_BYTES_MAX {
            return refuse(format!(
                "all schemas have {all} bytes, the limit is {ALL_SCHEMA_BYTES_MAX}: delete some"
            ));
        }
        Ok(())
    }
}

//! The admin interface called directly, without HTTP: answers, changes and refusals.

use super::*;
use crate::admin::values::{AdminCallError, SubscriptionStart};
use std::collections::BTreeMap;

mod compaction;
mod creation;
mod ending;
mod messages;
mod metrics;
mod namespaces;
mod partitioned;
mod policies;
mod schemas;
mod stats;
mod subscriptions;
mod topics;

/// A call, as a test makes it.
type Ask<T> = Box<dyn FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError>>;
type OnTopic<T> = Box<dyn FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError>>;
type OnNamespace<T> = Box<dyn FnOnce(&mut BrokerMachine, &str) -> Result<T, AdminCallError>>;
type OnSubscription<T> =
    Box<dyn FnOnce(&mut BrokerMachine, &TopicName, &str) -> Result<T, AdminCallError>>;

const TICKET: u64 = 9;
const DONE: Result<(), AdminCallError> = Ok(());

impl Rig {
    /// The answer to a call, and its other effects, after everything was written.
    #[track_caller]
    fn answer_and_effects<T>(
        &mut self,
        work: impl FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError>,
    ) -> (Result<T, AdminCallError>, Vec<MachineEffect>) {
        let is_reply = |effect: &MachineEffect| matches!(effect, MachineEffect::Reply(TICKET));
        self.machine.set_time(self.now, self.now);
        let answer = self.machine.call(TICKET, work);
        let is_recorded = self.machine.pending_bytes() > 0;
        let mut effects = self.machine.take_effects();
        let is_answered = effects.iter().any(is_reply);
        assert!(!(is_recorded && is_answered), "what the answer rests on is not on disk");
        effects.extend(self.settle());
        let at = effects.iter().position(is_reply).expect("a call is answered");
        effects.remove(at);
        assert!(!effects.iter().any(is_reply), "a call is answered once");
        (answer, effects)
    }

    #[track_caller]
    pub(super) fn answer<T>(
        &mut self,
        work: impl FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError>,
    ) -> Result<T, AdminCallError> {
        self.answer_and_effects(work).0
    }

    /// Checks that the call is refused with this status and for this reason, and has no effect.
    #[track_caller]
    fn refuses<T: std::fmt::Debug>(
        &mut self,
        work: impl FnOnce(&mut BrokerMachine) -> Result<T, AdminCallError>,
        status: u16,
        reason: &str,
    ) {
        let before = self.changes();
        let (answer, effects) = self.answer_and_effects(work);
        let error = answer.expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.status().as_u16(), status, "{error}");
        assert!(effects.is_empty(), "{error}: {effects:?}");
        assert_eq!(self.changes(), before, "{error}: it was refused, and did something");
    }

    /// The whole recorded state, without the entries.
    fn changes(&self) -> Vec<String> {
        self.machine.state.described()
    }

    /// Creates an unpartitioned topic.
    fn create(&mut self, name: &str) {
        let make = |machine: &mut BrokerMachine, name: &TopicName| machine.make_topic(name);
        assert_eq!(self.answer(topic(name, make)), DONE, "{name}");
    }

    fn create_partitioned(&mut self, name: &str, partitions: u32) {
        let make = on_topic(move |machine, name| machine.make_partitioned(name, partitions));
        assert_eq!(self.answer(topic(name, make)), DONE, "{name}");
    }

    fn create_subscription(&mut self, name: &str, subscription: &str, at: SubscriptionStart) {
        let ask = self::subscription(name, subscription, create_at(at));
        assert_eq!(self.answer(ask), DONE, "{name}, {subscription}");
    }

    /// Opens a shared producer of a topic, by its short name.
    fn produce_to(&mut self, conn: u64, producer_id: u64, name: &str) {
        let command =
            CommandProducer { topic: full(name), ..producer(producer_id, 7, AccessMode::Shared) };
        assert_eq!(names(&self.ask(conn, command)), [17], "{name}: PRODUCER_SUCCESS");
    }

    /// Publishes entries of one byte each.
    fn fill(&mut self, conn: u64, producer_id: u64, count: usize) {
        for _ in 0..count {
            assert_eq!(names(&self.publish(conn, producer_id, b"x")), [7], "SEND_RECEIPT");
        }
    }

    fn id_of(&self, name: &str) -> Option<u32> {
        self.machine.state.topic_id(&full(name))
    }

    fn kept(&self, name: &str) -> &crate::state::BrokerTopic {
        self.machine.state.topic(self.id_of(name).unwrap()).unwrap()
    }

    /// The mark of a subscription: everything before it is acknowledged.
    fn mark_of(&self, name: &str, subscription: &str) -> u64 {
        let kept = self.kept(name);
        kept.subscriptions[&kept.subscription_id(subscription).unwrap()].cursor.mark()
    }
}

/// A full name; a short name belongs to `public/default`.
fn full(name: &str) -> String {
    TopicName::parse(name).unwrap().as_str().to_owned()
}

fn topic<T: 'static>(
    name: &str,
    work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError> + 'static,
) -> Ask<T> {
    let name = TopicName::parse(name).unwrap();
    Box::new(move |machine| work(machine, &name))
}

fn namespace<T: 'static>(
    name: &str,
    work: impl FnOnce(&mut BrokerMachine, &str) -> Result<T, AdminCallError> + 'static,
) -> Ask<T> {
    let name = name.to_owned();
    Box::new(move |machine| work(machine, &name))
}

fn subscription<T: 'static>(
    name: &str,
    subscription: &str,
    work: impl FnOnce(&mut BrokerMachine, &TopicName, &str) -> Result<T, AdminCallError> + 'static,
) -> Ask<T> {
    let subscription = subscription.to_owned();
    topic(name, move |machine, name| work(machine, name, &subscription))
}

fn on_topic<T>(
    work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError> + 'static,
) -> OnTopic<T> {
    Box::new(work)
}

fn on_namespace<T>(
    work: impl FnOnce(&mut BrokerMachine, &str) -> Result<T, AdminCallError> + 'static,
) -> OnNamespace<T> {
    Box::new(work)
}

fn on_subscription<T>(
    work: impl FnOnce(&mut BrokerMachine, &TopicName, &str) -> Result<T, AdminCallError> + 'static,
) -> OnSubscription<T> {
    Box::new(work)
}

fn create_at(at: SubscriptionStart) -> OnSubscription<()> {
    on_subscription(move |machine, name, subscription| {
        machine.make_subscription(name, subscription, at, &BTreeMap::new())
    })
}

/// If a call's record cannot be written, or is too large for the log, that is an error of the
/// broker and not of the caller.
#[test]
fn what_cannot_be_written_is_unavailable() {
    let mut rig = Rig::new();
    rig.create("t");
    let set = topic("t", |machine, topic| {
        machine.set_policy(topic, |policies| policies.set_limit(&"x".repeat(5000), Some(1)))
    });
    rig.refuses(set, 503, "");
}

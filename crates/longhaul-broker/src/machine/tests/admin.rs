//! The admin interface asked directly, without HTTP: what each call answers, what it changes, and what it refuses.

use super::*;
use crate::admin::request::{AdminError, AdminReply, NamespaceCall, Start, SubscriptionCall};
use std::collections::BTreeMap;

mod compaction;
mod creation;
mod messages;
mod metrics;
mod namespaces;
mod noting;
mod partitioned;
mod policies;
mod schemas;
mod stats;
mod subscriptions;
mod topics;

type Answer = Result<AdminReply, AdminError>;

const TICKET: u64 = 9;
const DONE: Answer = Ok(AdminReply::Done);

impl Rig {
    /// The answer to a call, and what else comes out of it, when everything is written.
    #[track_caller]
    fn answer_and_effects(&mut self, request: AdminRequest) -> (Answer, Vec<Effect>) {
        let is_reply = |it: &Effect| matches!(it, Effect::Reply(TICKET, _));
        self.machine.set_time(self.now, self.now);
        self.machine.call(TICKET, request);
        let is_recorded = self.machine.pending_bytes() > 0;
        let mut effects = self.machine.take_effects();
        let is_answered = effects.iter().any(is_reply);
        assert!(!(is_recorded && is_answered), "what the answer rests on is not on disk");
        effects.extend(self.settle());
        let at = effects.iter().position(is_reply).expect("a call is answered");
        let Effect::Reply(_, answer) = effects.remove(at) else { panic!("it is a reply") };
        assert!(!effects.iter().any(is_reply), "a call is answered once");
        (answer, effects)
    }

    #[track_caller]
    fn answer(&mut self, request: AdminRequest) -> Answer {
        self.answer_and_effects(request).0
    }

    /// Sees to it that the call is refused with this status and for this reason, and that nothing comes of it.
    #[track_caller]
    fn refuses(&mut self, request: AdminRequest, status: u16, reason: &str) {
        let before = self.changes();
        let what = format!("{request:?}");
        let (answer, effects) = self.answer_and_effects(request);
        let error = answer.expect_err(&what);
        assert!(error.to_string().contains(reason), "{what}: {error}");
        assert_eq!(self::status(&error), status, "{what}: {error}");
        assert!(effects.is_empty(), "{what}: {effects:?}");
        assert_eq!(self.changes(), before, "{what}: it was refused, and did something");
    }

    /// Everything that the machine knows for ever, but for the entries.
    fn changes(&self) -> Vec<String> {
        let mut changes: Vec<String> =
            self.machine.state.snapshot().iter().map(|it| format!("{it:?}")).collect();
        changes.sort_unstable();
        changes
    }

    #[track_caller]
    fn names(&mut self, request: AdminRequest) -> Vec<String> {
        match self.answer(request) {
            Ok(AdminReply::Names(names)) => names,
            other => panic!("{other:?}"),
        }
    }

    /// A topic without partitions.
    fn create(&mut self, name: &str) {
        assert_eq!(self.answer(topic(name, TopicCall::Create)), DONE, "{name}");
    }

    fn create_partitioned(&mut self, name: &str, partitions: u32) {
        let call = TopicCall::CreatePartitioned { partitions };
        assert_eq!(self.answer(topic(name, call)), DONE, "{name}");
    }

    fn create_subscription(&mut self, name: &str, subscription: &str, at: Start) {
        let request = self::subscription(name, subscription, create_at(at));
        assert_eq!(self.answer(request), DONE, "{name}, {subscription}");
    }

    /// A shared producer of a topic, by its short name.
    fn produce_to(&mut self, conn: u64, producer_id: u64, name: &str) {
        let command =
            CommandProducer { topic: full(name), ..producer(producer_id, 7, AccessMode::Shared) };
        assert_eq!(names(&self.ask(conn, command)), [17], "{name}: PRODUCER_SUCCESS");
    }

    /// Entries of one byte each.
    fn fill(&mut self, conn: u64, producer_id: u64, count: usize) {
        for _ in 0..count {
            assert_eq!(names(&self.publish(conn, producer_id, b"x")), [7], "SEND_RECEIPT");
        }
    }

    fn id_of(&self, name: &str) -> Option<u32> {
        self.machine.state.topic_id(&full(name))
    }

    fn kept(&self, name: &str) -> &crate::state::Topic {
        self.machine.state.topic(self.id_of(name).unwrap()).unwrap()
    }

    /// Where a subscription stands: everything before it is acknowledged.
    fn mark_of(&self, name: &str, subscription: &str) -> u64 {
        let kept = self.kept(name);
        kept.subscriptions[&kept.subscription_id(subscription).unwrap()].cursor.mark()
    }
}

const fn status(error: &AdminError) -> u16 {
    match error {
        AdminError::BadRequest(_) => 400,
        AdminError::Forbidden(_) => 403,
        AdminError::NotFound(_) => 404,
        AdminError::Conflict(_) => 409,
        AdminError::PreconditionFailed(_) => 412,
        AdminError::Internal(_) => 500,
        AdminError::Unavailable(_) => 503,
    }
}

/// A name in full; a short one lies in `public/default`.
fn full(name: &str) -> String {
    crate::name::TopicName::parse(name).unwrap().as_str().to_owned()
}

fn topic(name: &str, call: TopicCall) -> AdminRequest {
    AdminRequest::Topic { topic: full(name), call }
}

fn namespace(name: &str, call: NamespaceCall) -> AdminRequest {
    AdminRequest::Namespace { namespace: name.to_owned(), call }
}

fn subscription(name: &str, subscription: &str, call: SubscriptionCall) -> AdminRequest {
    AdminRequest::Subscription { topic: full(name), subscription: subscription.to_owned(), call }
}

const fn create_at(at: Start) -> SubscriptionCall {
    SubscriptionCall::Create { at, properties: BTreeMap::new() }
}

#[test]
fn the_broker_says_that_it_is_well() {
    assert_eq!(Rig::new().answer(AdminRequest::Health), DONE);
}

/// What a call needs to have written, and what is too large for the log, is the broker's trouble and not the caller's mistake.
#[test]
fn what_cannot_be_written_is_unavailable() {
    let mut rig = Rig::new();
    rig.create("t");
    let value = Some("x".repeat(5000).into());
    let call = TopicCall::SetPolicy(Policy::Other("dispatchRate", value));
    rig.refuses(topic("t", call), 503, "");
}

#[test]
fn a_name_that_is_none_is_refused() {
    let mut rig = Rig::new();
    for name in ["persistent://a/b", "non-persistent://public/default/t"] {
        let (topic, subscription) = (name.to_owned(), "s".to_owned());
        let call = TopicCall::Stats;
        rig.refuses(AdminRequest::Topic { topic: topic.clone(), call }, 412, name);
        let call = SubscriptionCall::SkipAll;
        rig.refuses(AdminRequest::Subscription { topic, subscription, call }, 412, name);
    }
}

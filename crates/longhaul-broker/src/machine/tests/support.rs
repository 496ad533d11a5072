//! Helpers for the tests of single parts.

use super::*;
use crate::auth::tests::{token, with_secret};
use crate::compaction::CompactionJob;
use crate::machine::effect::IncomingMessage;
use crate::machine::figures::SubscriptionFigures;
use crate::policies::{AuthAction, Grants};
use crate::state::BrokerTopic;
use crate::state::cursor::Cursor;
use longhaul_wire::messages::AckType;

/// Id of an entry in the first ledger of the first topic.
pub(super) fn id(entry_id: u64) -> MessageIdData {
    MessageIdData { ledger_id: 0, entry_id, ..MessageIdData::default() }
}

/// Id of a batch, with the bits of unacknowledged messages.
pub(super) fn open(entry_id: u64, ack_set: &[i64]) -> MessageIdData {
    MessageIdData { ack_set: ack_set.to_vec(), ..id(entry_id) }
}

/// Requests a shared subscription.
pub(super) fn shared(command: &mut CommandSubscribe) {
    command.sub_type = 1;
}

/// Requests the subscription `reader`, which is not durable.
pub(super) fn reader(command: &mut CommandSubscribe) {
    command.subscription = "reader".to_owned();
    command.durable = Some(false);
}

/// The token of a role.
pub(super) fn named(role: &str) -> String {
    token(&format!(r#"{{"sub":"{role}"}}"#))
}

/// A rig with the roles `producer` and `consumer` on connections 1 and 2, each with one permission.
pub(super) fn with_roles() -> Rig {
    let tokens = ["producer", "consumer"].map(|role| Some(named(role)));
    let mut rig = Rig::guarded(Some(Arc::new(with_secret())), tokens);
    for (role, action) in [("producer", AuthAction::Produce), ("consumer", AuthAction::Consume)] {
        grants(&mut rig, |grants| grants.grant(role, vec![action]));
    }
    rig
}

/// Changes the grants of the namespace.
pub(super) fn grants(rig: &mut Rig, change: impl FnOnce(&mut Grants)) -> Vec<MachineEffect> {
    let set = |machine: &mut BrokerMachine| machine.set_namespace_grants("public/default", change);
    rig.machine.call(1, set).unwrap();
    rig.settle()
}

/// The error code, if the request was refused.
pub(super) fn refusal(effects: &[MachineEffect]) -> Option<i32> {
    effects.iter().find_map(|effect| match effect {
        MachineEffect::Send(_, Command::Error(error)) => Some(error.error),
        _ => None,
    })
}

/// The commands of one kind, with their connections.
pub(super) fn sent<T>(
    effects: &[MachineEffect],
    kind: impl Fn(&Command) -> Option<T>,
) -> Vec<(u64, T)> {
    let one = |effect: &MachineEffect| match effect {
        MachineEffect::Send(conn, command) => Some((*conn, kind(command)?)),
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}

/// The compaction that is started, if any.
pub(super) fn job(effects: &[MachineEffect]) -> Option<CompactionJob> {
    effects.iter().find_map(|effect| match effect {
        MachineEffect::Compact(job) => Some(job.clone()),
        _ => None,
    })
}

impl Rig {
    /// Updates the machine's list of segments.
    pub(super) fn look(&mut self) {
        self.look_at(self.log.status().segments);
    }

    /// Updates the machine's list of segments to this one, with their sizes.
    pub(super) fn look_at(&mut self, segments: Vec<(u32, u64)>) {
        let report = LogStatus { segments, ..self.machine.log.clone() };
        self.machine.set_log(report);
    }

    /// Ends the checkpoint in progress: it covers everything recorded, or has failed.
    pub(super) fn checkpointed(&mut self, done: bool) {
        if done {
            self.machine.log.checkpoint = Some(self.machine.recorded());
        }
        self.machine.checkpointed(done);
    }

    /// Makes an admin call about the topic.
    pub(super) fn call<T>(
        &mut self,
        work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError>,
    ) -> Vec<MachineEffect> {
        self.asked(TOPIC, work).1
    }

    /// Makes an admin call about any topic, and returns its result.
    pub(super) fn asked<T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut BrokerMachine, &TopicName) -> Result<T, AdminCallError>,
    ) -> (Result<T, AdminCallError>, Vec<MachineEffect>) {
        let name = TopicName::parse(name).unwrap();
        let result = self.machine.call(1, |machine| work(machine, &name));
        (result, self.settle())
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut Policies)) -> Vec<MachineEffect> {
        self.call(|machine, name| machine.set_policy(name, change))
    }

    /// Publishes on connection 1, without waiting for the disk. The caller may change the command
    /// and the message.
    pub(super) fn send(
        &mut self,
        producer_id: u64,
        body: &[u8],
        change: impl FnOnce(&mut CommandSend, &mut IncomingMessage),
    ) -> Vec<MachineEffect> {
        let metadata = MessageMetadata { publish_time: self.now, ..MessageMetadata::default() };
        let mut send = CommandSend { producer_id, ..CommandSend::default() };
        let mut message = verified(Payload::new(&metadata, body)).unwrap();
        change(&mut send, &mut message);
        self.machine.set_time(self.now, self.now);
        self.machine.request(1, ClientRequest::Publish(send, Ok(message)));
        self.machine.take_effects()
    }

    /// Publishes a batch of this many messages with producer 1.
    pub(super) fn batch(&mut self, messages: u32) {
        self.send(1, b"batch", |_, message| message.facts.batch = Some(messages));
        self.settle();
    }

    /// Acknowledges on connection 1. Returns the error, if it was refused, and the other effects.
    pub(super) fn ack(
        &mut self,
        consumer_id: u64,
        kind: AckType,
        message_id: Vec<MessageIdData>,
    ) -> (Option<i32>, Vec<MachineEffect>) {
        let request_id = Some(9);
        let ack_type = kind.into();
        let ack =
            CommandAck { consumer_id, ack_type, message_id, request_id, ..CommandAck::default() };
        let effects = self.ask(1, ack);
        let answer = sent(&effects, |command| match command {
            Command::AckResponse(response) => {
                Some((response.consumer_id, response.request_id, response.error))
            }
            _ => None,
        });
        let [(1, (consumer, Some(9), error))] = answer[..] else { panic!("{answer:?}") };
        assert_eq!(consumer, consumer_id);
        (error, effects)
    }

    /// The first topic.
    pub(super) fn topic(&self) -> &BrokerTopic {
        self.machine.state.topics().next().unwrap().1
    }

    /// The cursor of the first subscription of the first topic.
    pub(super) fn cursor(&self) -> &Cursor {
        &self.topic().subscriptions.values().next().unwrap().cursor
    }

    pub(super) fn figures(&self) -> SubscriptionFigures {
        self.machine.live[&0].figures.of(0)
    }
}

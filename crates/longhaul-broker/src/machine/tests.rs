//! Tests of the whole machine with a log that never fails, for behaviour that involves several
//! parts.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for what it is about")]

use super::effect::ClientRequest;
use super::*;
use crate::admin::values::AdminCallError;
use crate::kit::{self, START};
use crate::log::{LogOptions, SimulatedStorage, Stepped};
use crate::name::TopicName;
use crate::policies::{BacklogAction, BacklogQuota, Policies, PolicyChange, Retention};
use crate::server::requests::verified;
use crate::state::change::Ack;
use longhaul_wire::messages::{
    AccessMode, Command, CommandAck, CommandConnect, CommandFlow, CommandMessage, CommandProducer,
    CommandSeek, CommandSend, CommandSubscribe, MessageIdData, MessageMetadata, Schema, SchemaType,
};
use longhaul_wire::payload::Payload;

mod acking;
mod admin;
mod cleaning;
mod consuming;
mod failover;
mod inactive;
mod invariants;
mod keeping;
mod key_shared;
mod listing;
mod logins;
mod names;
mod order;
mod policies;
mod probing;
mod producing;
mod reading;
mod rounds;
mod sessions;
mod space;
mod starting;
mod support;
mod terminating;
mod unreadable;
mod windows;

const TOPIC: &str = "persistent://public/default/t";

/// A machine and its log.
struct Rig {
    machine: BrokerMachine,
    log: Stepped,
    now: u64,
}

impl Rig {
    /// Creates a rig with connections 1 and 2.
    fn new() -> Self {
        Self::guarded(None, [None, None])
    }

    /// Like `new`, with producer 1 on connection 1.
    fn with_producer() -> Self {
        let mut rig = Self::new();
        rig.produce(1, 1, AccessMode::Shared).unwrap();
        rig
    }

    /// Like `new`, with clients that show these tokens.
    fn guarded(auth: Option<Arc<Authenticator>>, tokens: [Option<String>; 2]) -> Self {
        let options = LogOptions {
            segment_bytes_first: 8192,
            segment_bytes_max: 8192,
            body_bytes_max: 4000,
            salt: 1,
            facts: None,
        };
        let storage = SimulatedStorage::new(1);
        let (machine, log) = kit::machine(kit::settings(), &options, &storage, auth);
        let mut rig = Self { machine, log, now: START };
        for (conn, token) in (1..).zip(tokens) {
            rig.machine.opened(conn, "/test".to_owned());
            let connect = CommandConnect {
                protocol_version: Some(21),
                auth_method_name: token.is_some().then(|| "token".to_owned()),
                auth_data: token.map(Into::into),
                ..CommandConnect::default()
            };
            rig.ask(conn, connect);
        }
        rig
    }

    /// The immediate effects of a command.
    fn at_once(&mut self, conn: u64, command: impl Into<Command>) -> Vec<MachineEffect> {
        self.machine.set_time(self.now, self.now);
        self.machine.request(conn, ClientRequest::Command(command.into()));
        self.machine.take_effects()
    }

    /// All effects of a command, after everything was written.
    fn ask(&mut self, conn: u64, command: impl Into<Command>) -> Vec<MachineEffect> {
        let mut effects = self.at_once(conn, command);
        effects.extend(self.settle());
        effects
    }

    fn settle(&mut self) -> Vec<MachineEffect> {
        kit::settle(&mut self.machine, &mut self.log);
        self.machine.take_effects()
    }

    /// Advances the time in steps, and performs everything that is due in the end.
    fn pass(&mut self, ms: u64) -> Vec<MachineEffect> {
        let end = self.now + ms;
        while self.now < end {
            self.now = end.min(self.now + 1000);
            self.machine.set_time(self.now, self.now);
        }
        self.stall(0)
    }

    /// Advances the time at once, as after a pause of the process, and performs everything that is
    /// due.
    fn stall(&mut self, ms: u64) -> Vec<MachineEffect> {
        self.now += ms;
        self.machine.set_time(self.now, self.now);
        self.machine.tick();
        self.settle()
    }

    fn produce(&mut self, conn: u64, producer_id: u64, mode: AccessMode) -> Result<bool, i32> {
        let effects = self.ask(conn, producer(producer_id, 7, mode));
        let ready = effects.iter().find_map(|effect| match effect {
            MachineEffect::Send(_, Command::ProducerSuccess(success)) => {
                Some(Ok(success.producer_ready()))
            }
            MachineEffect::Send(_, Command::Error(error)) => Some(Err(error.error)),
            _ => None,
        });
        ready.unwrap()
    }

    fn publish(&mut self, conn: u64, producer_id: u64, body: &[u8]) -> Vec<MachineEffect> {
        let metadata = MessageMetadata { publish_time: self.now, ..MessageMetadata::default() };
        let send = CommandSend { producer_id, ..CommandSend::default() };
        let message = verified(Payload::new(&metadata, body));
        self.machine.set_time(self.now, self.now);
        self.machine.request(conn, ClientRequest::Publish(send, message));
        self.settle()
    }

    /// Subscribes with ten permits. Returns the deliveries.
    fn subscribe(
        &mut self,
        conn: u64,
        consumer_id: u64,
        change: impl FnOnce(&mut CommandSubscribe),
    ) -> Vec<u64> {
        let mut subscribe = CommandSubscribe { initial_position: Some(1), ..consumer(consumer_id) };
        change(&mut subscribe);
        self.ask(conn, subscribe);
        delivered(&self.ask(conn, CommandFlow { consumer_id, message_permits: 10 }))
    }

    /// The lowest mark: everything before it is acknowledged.
    fn mark(&self) -> u64 {
        self.topic().lowest_mark().unwrap()
    }

    fn first(&self) -> u64 {
        self.topic().entries.first()
    }
}

fn producer(producer_id: u64, request_id: u64, mode: AccessMode) -> CommandProducer {
    CommandProducer {
        topic: TOPIC.to_owned(),
        producer_id,
        request_id,
        producer_name: Some(format!("p{producer_id}")),
        producer_access_mode: Some(mode.into()),
        ..CommandProducer::default()
    }
}

/// An exclusive consumer of the subscription `s`.
fn consumer(consumer_id: u64) -> CommandSubscribe {
    CommandSubscribe {
        topic: TOPIC.to_owned(),
        subscription: "s".to_owned(),
        consumer_id,
        ..CommandSubscribe::default()
    }
}

/// Entry numbers of the deliveries.
fn delivered(effects: &[MachineEffect]) -> Vec<u64> {
    let entry = |effect: &MachineEffect| match effect {
        MachineEffect::Deliver { command: CommandMessage { message_id, .. }, .. } => {
            Some(message_id.entry_id)
        }
        _ => None,
    };
    effects.iter().filter_map(entry).collect()
}

fn names(effects: &[MachineEffect]) -> Vec<i32> {
    let number = |effect: &MachineEffect| match effect {
        MachineEffect::Send(_, command) => Some(command.number()),
        _ => None,
    };
    effects.iter().filter_map(number).collect()
}

/// Compatibility of access modes: the answer to the second producer while the first one exists.
#[test]
fn access_modes_decide_who_may_produce() {
    use AccessMode::{Exclusive, ExclusiveWithFencing, Shared, WaitForExclusive};
    let busy = Err(i32::from(ServerError::ProducerBusy));
    let fenced = Err(i32::from(ServerError::ProducerFenced));
    for (first, second, expected) in [
        (Shared, Shared, Ok(true)),
        (Shared, Exclusive, fenced),
        (Shared, WaitForExclusive, Ok(false)),
        (Shared, ExclusiveWithFencing, Ok(true)),
        (Exclusive, Shared, busy),
        (Exclusive, Exclusive, fenced),
        (Exclusive, WaitForExclusive, Ok(false)),
        (Exclusive, ExclusiveWithFencing, Ok(true)),
        (WaitForExclusive, Shared, busy),
        (ExclusiveWithFencing, Exclusive, fenced),
    ] {
        let mut rig = Rig::new();
        assert_eq!(rig.produce(1, 1, first), Ok(true));
        assert_eq!(rig.produce(2, 2, second), expected, "{first:?}, then {second:?}");
        // The closed producer's client resends with its next producer, and gets no answer before.
        let answer = names(&rig.publish(1, 1, b"x"));
        let receipt = if second == ExclusiveWithFencing { vec![] } else { vec![7] };
        assert_eq!(answer, receipt, "{first:?}, {second:?}");
    }
}

/// A producer that waited for exclusive access and asked again got no answer.
#[test]
fn a_producer_that_waits_and_asks_again_is_answered() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Exclusive).unwrap();
    assert_eq!(rig.produce(2, 2, AccessMode::WaitForExclusive), Ok(false));
    let again = rig.ask(2, producer(2, 8, AccessMode::WaitForExclusive));
    assert!(matches!(&again[..], [MachineEffect::Send(2, Command::ProducerSuccess(success))]
        if success.request_id == 8 && !success.producer_ready()));
    rig.machine.closed(1);
    let entered = rig.settle();
    assert!(
        matches!(&entered[..], [MachineEffect::Send(2, Command::ProducerSuccess(success))]
        if success.request_id == 8 && success.producer_ready()),
        "{entered:?}"
    );
}

/// A round trimmed a topic and removed unneeded segments at once, while the records of the trim and
/// of its acks were still in memory. After a crash the entries came back without their bytes.
#[test]
fn segments_are_removed_when_the_trim_is_on_disk() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 1, |_| {});
    (0..8).for_each(|_| drop(rig.publish(1, 1, &[0; 3000])));
    rig.machine.checkpoint();
    rig.settle();
    rig.checkpointed(true);
    rig.look();
    let last = rig.topic().entries.next_position().unwrap();
    let id = MessageIdData {
        ledger_id: last.ledger,
        entry_id: last.entry - 1,
        ..MessageIdData::default()
    };
    let ack =
        CommandAck { consumer_id: 1, ack_type: 1, message_id: vec![id], ..CommandAck::default() };
    rig.at_once(1, ack);
    rig.now += 2000;
    rig.machine.set_time(rig.now, rig.now);
    rig.machine.tick();
    let is_removal = |effect: &MachineEffect| matches!(effect, MachineEffect::RemoveSegments(_));
    assert!(!rig.machine.take_effects().iter().any(is_removal), "nothing of it is on disk");
    assert!(rig.settle().iter().any(is_removal));
}

/// Two compactions within one millisecond, without an entry between them, had the same file name.
/// The file was removed as its own predecessor, and the broker did not start any more.
#[test]
fn no_two_compactions_share_a_file() {
    let mut rig = Rig::with_producer();
    rig.publish(1, 1, b"x");
    let mut files = BTreeSet::new();
    for _ in 0..3 {
        let effects = rig.call(BrokerMachine::start_compaction);
        let job = support::job(&effects).unwrap();
        assert!(files.insert(job.file.clone()), "{}", job.file);
        rig.machine.compacted(&job, Ok(Arc::from([])));
        rig.settle();
    }
}

#[test]
fn seeking_moves_the_cursor_and_closes_the_consumers() {
    let mut rig = Rig::with_producer();
    (0..4).for_each(|_| drop(rig.publish(1, 1, b"x")));
    assert_eq!(rig.subscribe(1, 5, |_| {}), [0, 1, 2, 3]);
    let seek = CommandSeek {
        consumer_id: 5,
        request_id: 3,
        message_id: Some(MessageIdData::EARLIEST),
        ..CommandSeek::default()
    };
    let (close, success) = (16, 13);
    assert_eq!(names(&rig.ask(1, seek)), [close, success]);
    assert_eq!(rig.subscribe(1, 5, |_| {}), [0, 1, 2, 3]);
    // The third message, which was published at a later time.
    rig.now += 10;
    rig.publish(1, 1, b"x");
    let time = Some(rig.now);
    let seek = CommandSeek { consumer_id: 5, message_publish_time: time, ..CommandSeek::default() };
    rig.ask(1, seek);
    assert_eq!(rig.subscribe(1, 5, |_| {}), [4]);
}

#[test]
fn what_is_older_than_its_time_to_live_is_acknowledged() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, |_| {});
    rig.publish(1, 1, b"x");
    rig.set(|policies| policies.message_ttl_s = Some(10));
    rig.pass(9_000);
    rig.publish(1, 1, b"y");
    assert_eq!(rig.mark(), 0);
    rig.pass(2_000);
    assert_eq!(rig.mark(), 1);
    rig.pass(20_000);
    assert_eq!(rig.mark(), 2);
}

#[test]
fn a_schema_of_another_type_is_refused() {
    let mut rig = Rig::new();
    let with = |kind: SchemaType, data: &'static str, id| CommandProducer {
        schema: Some(Schema {
            name: "s".to_owned(),
            schema_data: data.into(),
            r#type: kind.into(),
            properties: Vec::new(),
        }),
        ..producer(id, id, AccessMode::Shared)
    };
    let mut version = |command: CommandProducer| match rig.ask(1, command).pop() {
        Some(MachineEffect::Send(_, Command::ProducerSuccess(success))) => {
            Ok(success.schema_version.unwrap_or_default())
        }
        Some(MachineEffect::Send(_, Command::Error(error))) => Err(error.error),
        other => panic!("{other:?}"),
    };
    let number = |version: u64| Ok(version.to_be_bytes().to_vec().into());
    assert_eq!(version(with(SchemaType::Json, "a", 1)), number(0));
    assert_eq!(version(with(SchemaType::Json, "b", 2)), number(1));
    assert_eq!(version(with(SchemaType::Json, "a", 3)), number(0), "an equal one is found again");
    let refused = version(with(SchemaType::Avro, "a", 4));
    assert_eq!(refused, Err(ServerError::IncompatibleSchema.into()));
}

/// A message was refused because the disk was full, and room came back before the next ones. Later
/// messages of the producer were accepted, so the refused one was dropped as a duplicate when it
/// was resent: it got a receipt and was stored nowhere.
#[test]
fn nothing_overtakes_a_refused_message() {
    let mut rig = Rig::with_producer();
    rig.set(|policies| policies.deduplication = Some(true));
    let send = |rig: &mut Rig, producer_id: u64, sequence_id: u64| {
        let metadata = MessageMetadata { publish_time: 1, ..MessageMetadata::default() };
        let send = CommandSend { producer_id, sequence_id, ..CommandSend::default() };
        let message = verified(Payload::new(&metadata, b"x"));
        rig.machine.request(1, ClientRequest::Publish(send, message));
        rig.settle()
    };
    rig.machine.log.is_stuck = true;
    assert_eq!(names(&send(&mut rig, 1, 5)), [15], "CLOSE_PRODUCER");
    rig.machine.log.is_stuck = false;
    assert_eq!(names(&send(&mut rig, 1, 6)), [0; 0], "sent before it knew");
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    let again: Vec<_> =
        [5, 6].into_iter().flat_map(|sequence| send(&mut rig, 1, sequence)).collect();
    assert_eq!(names(&again), [7, 7]);
    assert_eq!(rig.topic().entries.end(), 2, "both are there");
}

/// The quota was compared with all stored bytes, and consumed entries stay until their segment is
/// full: a topic whose consumers had read everything refused publishes for ever.
#[test]
fn a_quota_counts_what_is_not_consumed() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, |_| {});
    let quota =
        BacklogQuota { limit_bytes: 300, limit_s: -1, policy: BacklogAction::ProducerException };
    rig.set(|policies| policies.backlog_quota = Some(quota));
    let mut refused = 0;
    for _ in 0..20 {
        refused += usize::from(names(&rig.publish(1, 1, &[7; 50])).contains(&15));
    }
    assert!(refused > 0, "the quota is in force");
    let before = Some(rig.topic().entries.end());
    rig.machine.record_ack(Ack { topic: 0, subscription: 0, before, ..Ack::default() }).unwrap();
    rig.settle();
    rig.produce(1, 2, AccessMode::Shared).unwrap();
    assert_eq!(names(&rig.publish(1, 2, b"x"))[0], 7, "there is no backlog any more");
}

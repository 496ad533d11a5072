//! Access modes of producers, their answers, and duplicates.

use super::support::{refusal, sent, with_roles};
use super::*;
use crate::machine::effect::RequestRefusal;
use longhaul_wire::messages::{
    CommandCloseProducer, CommandProducerSuccess, CommandSendError, CommandSendReceipt,
};

const SUCCESS: i32 = 13;
const CLOSE_PRODUCER: i32 = 15;
const PING: i32 = 18;
const SEND_ERROR: i32 = 8;
const RECEIPT: i32 = 7;

fn code(error: ServerError) -> Option<i32> {
    Some(error.into())
}

/// The answer to PRODUCER.
fn success(effects: &[MachineEffect]) -> CommandProducerSuccess {
    let found = sent(effects, |command| match command {
        Command::ProducerSuccess(success) => Some(success.clone()),
        _ => None,
    });
    *found.into_iter().next_back().unwrap().1
}

fn receipts(effects: &[MachineEffect]) -> Vec<CommandSendReceipt> {
    let receipt = |command: &Command| match command {
        Command::SendReceipt(receipt) => Some(receipt.clone()),
        _ => None,
    };
    sent(effects, receipt).into_iter().map(|(_, receipt)| receipt).collect()
}

fn errors(effects: &[MachineEffect]) -> Vec<CommandSendError> {
    let error = |command: &Command| match command {
        Command::SendError(error) => Some(error.clone()),
        _ => None,
    };
    sent(effects, error).into_iter().map(|(_, error)| error).collect()
}

fn nameless(producer_id: u64) -> CommandProducer {
    CommandProducer { producer_name: None, ..producer(producer_id, 7, AccessMode::Shared) }
}

#[test]
fn a_connection_has_so_many_producers() {
    let mut rig = Rig::new();
    for id in 0..10 {
        assert_eq!(refusal(&rig.ask(1, nameless(id))), None);
    }
    assert_eq!(refusal(&rig.ask(1, nameless(10))), code(ServerError::TooManyRequests));
    assert_eq!(refusal(&rig.ask(2, nameless(10))), None, "another connection has its own");
    assert_eq!(names(&rig.ask(1, CommandCloseProducer::new(3, 4))), [SUCCESS]);
    assert_eq!(refusal(&rig.ask(1, nameless(10))), None);
}

#[test]
fn the_number_of_a_producer_belongs_to_it() {
    let mut rig = Rig::new();
    let first = producer(1, 7, AccessMode::Shared);
    rig.ask(1, first.clone());
    // The client has lost patience and asks again.
    for again in [first.clone(), CommandProducer { producer_name: None, ..first.clone() }] {
        let answer = success(&rig.ask(1, again));
        assert_eq!((answer.producer_name.as_str(), answer.producer_ready), ("p1", Some(true)));
    }
    let other = "persistent://public/default/other".to_owned();
    let renamed = Some("p2".to_owned());
    for changed in [
        CommandProducer { topic: other, ..first.clone() },
        CommandProducer { producer_name: renamed, ..first },
    ] {
        assert_eq!(refusal(&rig.ask(1, changed)), code(ServerError::NotAllowedError));
    }
    assert_eq!(rig.machine.live[&0].producers.active.len(), 1);
}

#[test]
fn a_producer_has_a_name_of_some_length_and_a_mode_that_exists() {
    let mut rig = Rig::new();
    let named = |id, size| CommandProducer {
        producer_name: Some("n".repeat(size)),
        ..producer(id, 7, AccessMode::Shared)
    };
    assert_eq!(success(&rig.ask(1, named(1, 255))).producer_name.len(), 255);
    assert_eq!(refusal(&rig.ask(1, named(2, 256))), code(ServerError::NotAllowedError));
    let unknown = CommandProducer { producer_access_mode: Some(9), ..nameless(2) };
    assert_eq!(refusal(&rig.ask(1, unknown)), code(ServerError::NotAllowedError));
    let first = success(&rig.ask(1, named(3, 0))).producer_name;
    let second = success(&rig.ask(1, nameless(4))).producer_name;
    assert!(first.starts_with("longhaul-") && second.starts_with("longhaul-"));
    assert_ne!(first, second);
}

/// A client whose producer lost its connection without closing comes back under the name that the
/// broker chose, with the next epoch. No test had a client that came back too early, or a different
/// one.
#[test]
fn only_the_same_client_takes_over_its_producer() {
    let busy = code(ServerError::ProducerBusy);
    for (was_named, names_itself, epoch, expected) in [
        (false, false, 6, None),
        (false, false, 5, busy),
        (false, false, 4, busy),
        (true, false, 6, busy),
        (false, true, 6, busy),
        (true, true, 6, busy),
    ] {
        let mut rig = Rig::new();
        let first = CommandProducer {
            epoch: Some(5),
            user_provided_producer_name: Some(was_named),
            ..producer(1, 7, AccessMode::Shared)
        };
        rig.ask(1, first.clone());
        let again = CommandProducer {
            producer_id: 2,
            epoch: Some(epoch),
            user_provided_producer_name: names_itself.then_some(true).or(Some(false)),
            ..first.clone()
        };
        let case = format!("{was_named} {names_itself} {epoch}");
        assert_eq!(refusal(&rig.ask(1, again.clone())), expected, "{case}");
        assert_eq!(rig.machine.live[&0].producers.active.len(), 1);
        let by_old = names(&rig.publish(1, 1, b"x"));
        assert_eq!(by_old, if expected.is_none() { vec![] } else { vec![RECEIPT] }, "{case}");
        if expected.is_none() {
            assert_eq!(names(&rig.publish(1, 2, b"x")), [RECEIPT]);
            let anew = CommandProducer { producer_name: None, ..first.clone() };
            assert!(success(&rig.ask(1, anew)).producer_ready(), "its number can be used again");
        }
        // From another connection it may be anybody: the holder is pinged first.
        let other = CommandProducer { producer_id: 3, epoch: Some(9), ..again };
        let effects = rig.ask(2, other);
        assert!(
            matches!(&effects[..], [MachineEffect::Send(1, command)] if command.number() == PING),
            "{case}"
        );
    }
}

#[test]
fn the_epoch_of_a_topic_grows_with_its_exclusive_producers() {
    let mut rig = Rig::new();
    let epoch = |rig: &mut Rig, mode, topic_epoch| {
        let command = CommandProducer { topic_epoch, ..producer(1, 7, mode) };
        let told = success(&rig.ask(1, command)).topic_epoch;
        let before = rig.machine.recorded();
        rig.ask(1, CommandCloseProducer::new(1, 8));
        assert_eq!(rig.machine.recorded(), before);
        told
    };
    assert_eq!(epoch(&mut rig, AccessMode::Shared, None), None);
    assert_eq!(rig.topic().epoch, None);
    assert_eq!(epoch(&mut rig, AccessMode::Exclusive, None), Some(0));
    assert_eq!(epoch(&mut rig, AccessMode::ExclusiveWithFencing, None), Some(1));
    assert_eq!(epoch(&mut rig, AccessMode::WaitForExclusive, Some(5)), Some(5));
    let end = rig.machine.recorded();
    assert_eq!(epoch(&mut rig, AccessMode::Exclusive, Some(5)), Some(5), "the same one again");
    assert_eq!(rig.machine.recorded(), end, "which is known");
    assert_eq!(epoch(&mut rig, AccessMode::Shared, None), None, "it is no matter of theirs");
    assert_eq!(rig.topic().epoch, Some(5));
}

#[test]
fn who_waits_enters_when_all_others_have_gone() {
    let mut rig = Rig::with_producer();
    rig.produce(1, 2, AccessMode::Shared).unwrap();
    assert_eq!(rig.produce(2, 3, AccessMode::WaitForExclusive), Ok(false));
    assert_eq!(rig.produce(2, 4, AccessMode::WaitForExclusive), Ok(false));
    assert_eq!(names(&rig.ask(1, CommandCloseProducer::new(1, 8))), [SUCCESS]);
    let effects = rig.ask(1, CommandCloseProducer::new(2, 8));
    let entered = success(&effects);
    assert_eq!((entered.producer_name.as_str(), entered.producer_ready), ("p3", Some(true)));
    // The other producer continues to wait, until it withdraws.
    rig.ask(2, CommandCloseProducer::new(4, 8));
    assert_eq!(names(&rig.ask(2, CommandCloseProducer::new(3, 8))), [SUCCESS]);
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true));
    rig.produce(2, 3, AccessMode::WaitForExclusive).unwrap();
    let effects = rig.call(BrokerMachine::unload_topic);
    let closed = sent(&effects, |command| match command {
        Command::CloseProducer(close) => Some(close.producer_id),
        _ => None,
    });
    assert_eq!(closed, [(1, 1), (2, 3)], "those that wait, too");
}

/// A producer that had exclusive access and returns with that epoch does not wait again.
#[test]
fn who_was_fenced_does_not_wait() {
    let mut rig = Rig::new();
    let with_epoch = |topic_epoch| CommandProducer {
        topic_epoch: Some(topic_epoch),
        ..producer(2, 7, AccessMode::WaitForExclusive)
    };
    rig.ask(1, CommandProducer { producer_name: None, ..with_epoch(5) });
    assert_eq!(refusal(&rig.ask(2, with_epoch(4))), code(ServerError::ProducerFenced));
    let waits = success(&rig.ask(2, with_epoch(5)));
    assert_eq!((waits.producer_ready, waits.last_sequence_id), (Some(false), Some(-1)));
    let shared = rig.ask(2, producer(3, 7, AccessMode::Shared));
    assert_eq!(refusal(&shared), code(ServerError::ProducerBusy));
}

/// No producer is admitted after one that waits for exclusive access.
#[test]
fn who_waits_keeps_others_out() {
    let mut rig = Rig::with_producer();
    rig.produce(1, 2, AccessMode::WaitForExclusive).unwrap();
    assert_eq!(rig.produce(2, 3, AccessMode::Shared), Err(ServerError::ProducerBusy.into()));
    assert_eq!(rig.produce(2, 3, AccessMode::Exclusive), Err(ServerError::ProducerFenced.into()));
    assert_eq!(rig.produce(2, 3, AccessMode::ExclusiveWithFencing), Ok(true));
    assert!(rig.machine.live[&0].producers.waiting.is_empty());
}

#[test]
fn who_waits_publishes_nothing_and_goes_on_waiting() {
    let mut rig = Rig::new();
    rig.produce(2, 1, AccessMode::Exclusive).unwrap();
    rig.set(|policies| policies.deduplication = Some(true));
    rig.produce(1, 2, AccessMode::WaitForExclusive).unwrap();
    rig.machine.log.is_stuck = true;
    let effects = rig.publish(1, 2, b"x");
    assert_eq!(names(&effects), [SEND_ERROR]);
    assert_eq!(errors(&effects)[0].error, i32::from(ServerError::ProducerFenced));
    let unknown = rig.publish(1, 3, b"x");
    assert_eq!(errors(&unknown)[0].error, i32::from(ServerError::UnknownError));
    rig.machine.closed(2);
    assert!(success(&rig.settle()).producer_ready());
}

/// After a refused message, the producer is closed if later messages must not overtake it, and only
/// then.
#[test]
fn a_producer_ends_with_a_message_that_others_must_not_overtake() {
    for (deduplicates, is_full, ends) in
        [(false, false, false), (false, true, true), (true, false, true), (true, true, true)]
    {
        let mut rig = Rig::with_producer();
        rig.set(|policies| policies.deduplication = Some(deduplicates));
        rig.machine.log.is_stuck = is_full;
        let send = CommandSend {
            producer_id: 1,
            sequence_id: 4,
            highest_sequence_id: Some(6),
            ..CommandSend::default()
        };
        let metadata = MessageMetadata::default();
        let message = if is_full {
            verified(Payload::new(&metadata, b"x"))
        } else {
            Err(RequestRefusal::new(ServerError::ChecksumError, "broken"))
        };
        rig.machine.request(1, ClientRequest::Publish(send, message));
        let effects = rig.settle();
        let expected = match (is_full, ends) {
            (true, _) => vec![CLOSE_PRODUCER],
            (false, true) => vec![SEND_ERROR, CLOSE_PRODUCER],
            (false, false) => vec![SEND_ERROR],
        };
        assert_eq!(names(&effects), expected, "{deduplicates} {is_full}");
        for error in errors(&effects) {
            assert_eq!(error.sequence_id, 6, "a batch has the number of its last");
        }
        assert_eq!(rig.machine.totals.publish_errors, 1);
        rig.machine.log.is_stuck = false;
        let next = names(&rig.publish(1, 1, b"y"));
        assert_eq!(next, if ends { vec![] } else { vec![RECEIPT] }, "until it begins again");
    }
}

#[test]
fn what_is_sent_twice_is_stored_once() {
    let mut rig = Rig::with_producer();
    rig.set(|policies| policies.deduplication = Some(true));
    let mut send = |sequence: u64, highest: Option<u64>, has_next_chunk: bool| {
        let mut effects = rig.send(1, b"x", |send, message| {
            (send.sequence_id, send.highest_sequence_id) = (sequence, highest);
            message.has_next_chunk = has_next_chunk;
        });
        effects.extend(rig.settle());
        let receipt = receipts(&effects).remove(0);
        assert_eq!((receipt.sequence_id, receipt.highest_sequence_id), (sequence, highest));
        let id = receipt.message_id.unwrap();
        (id.entry_id, id.ledger_id)
    };
    let duplicate = (u64::MAX, u64::MAX);
    assert_eq!(send(0, None, false), (0, 0));
    assert_eq!(send(0, None, false), duplicate);
    assert_eq!(send(1, Some(5), false), (1, 0), "a batch");
    assert_eq!(send(5, None, false), duplicate);
    assert_eq!(send(1, Some(5), false), duplicate);
    // All chunks of a message have one sequence id.
    assert_eq!(send(6, None, true), (2, 0));
    assert_eq!(send(6, None, true), (3, 0));
    assert_eq!(send(6, None, false), (4, 0));
    assert_eq!(send(6, None, true), duplicate);
    let totals = rig.machine.totals;
    assert_eq!((totals.publishes, totals.publishes_deduplicated), (9, 4));
    let figures = &rig.machine.live[&0].figures;
    assert_eq!((figures.entries_in, figures.messages_in), (5, 5));
    // A producer that returns under the same name is told its last sequence id.
    rig.ask(1, CommandCloseProducer::new(1, 8));
    let first = rig.ask(1, producer(1, 7, AccessMode::Shared));
    assert_eq!(success(&first).last_sequence_id, Some(6));
    rig.set(|policies| policies.deduplication = Some(false));
    let again = rig.ask(1, producer(1, 7, AccessMode::Shared));
    assert_eq!(success(&again).last_sequence_id, Some(-1), "nothing is dropped any more");
}

#[test]
fn a_batch_counts_as_its_messages() {
    let mut rig = Rig::with_producer();
    rig.batch(3);
    rig.publish(1, 1, b"x");
    let figures = &rig.machine.live[&0].figures;
    assert_eq!((figures.entries_in, figures.messages_in), (2, 4));
    assert_eq!(rig.topic().entries.get(0).unwrap().messages(), 3);
}

/// Entries of earlier ledgers may have been unconfirmed: their ids are not used again.
#[test]
fn a_topic_that_was_unloaded_goes_on_in_a_new_ledger() {
    let mut rig = Rig::new();
    let id = |rig: &mut Rig| {
        rig.produce(1, 1, AccessMode::Shared).unwrap();
        let id = receipts(&rig.publish(1, 1, b"x"))[0].message_id.clone().unwrap();
        (id.ledger_id, id.entry_id)
    };
    assert_eq!(id(&mut rig), (0, 0));
    rig.call(BrokerMachine::unload_topic);
    let records = rig.machine.totals.records;
    assert_eq!(id(&mut rig), (1, 0));
    assert!(rig.machine.totals.records > records);
    assert_eq!(id(&mut rig), (1, 1));
}

/// A producer of dead letters names the subscription that keeps them, which exists before the first
/// message.
#[test]
fn a_producer_makes_the_subscription_that_it_names() {
    let mut rig = Rig::new();
    let with = |name: &str| CommandProducer {
        initial_subscription_name: Some(name.to_owned()),
        ..producer(1, 7, AccessMode::Shared)
    };
    assert_eq!(refusal(&rig.ask(1, with("a\nb"))), Some(ServerError::NotAllowedError.into()));
    rig.ask(1, with("keep"));
    rig.publish(1, 1, b"x");
    let marks = |rig: &Rig| -> Vec<_> {
        rig.topic()
            .durable()
            .map(|subscription| (subscription.name.clone(), subscription.cursor.mark()))
            .collect()
    };
    assert_eq!(marks(&rig), [("keep".to_owned(), 0)]);
    rig.ask(1, CommandProducer { producer_id: 2, producer_name: None, ..with("keep") });
    rig.ask(1, CommandProducer { producer_id: 3, producer_name: None, ..with("") });
    assert_eq!(marks(&rig).len(), 1, "it is made once, and none without a name");
    assert_eq!(rig.subscribe(2, 5, |command| command.subscription = "keep".to_owned()), [0]);
}

/// The producer's role needs the permission to consume too.
#[test]
fn who_may_only_produce_makes_no_subscription() {
    let mut rig = with_roles();
    let initial_subscription_name = Some("keep".to_owned());
    let command =
        CommandProducer { initial_subscription_name, ..producer(1, 7, AccessMode::Shared) };
    assert_eq!(refusal(&rig.ask(1, command)), Some(ServerError::AuthorizationError.into()));
}

/// C++ and Python clients retried for 30 s after `InvalidTopicName`, for example for a name that is
/// too long or has a control character, and ended with a timeout, without the reason.
#[test]
fn a_name_that_is_no_topics_is_refused_for_good() {
    let mut rig = Rig::new();
    let long = format!("persistent://public/default/{}", "x".repeat(300));
    let names = [
        "non-persistent://public/default/t",
        "persistent://public",
        "persistent://public/default/a\nb",
        &long,
    ];
    for topic in names {
        let command =
            CommandProducer { topic: topic.to_owned(), ..producer(1, 7, AccessMode::Shared) };
        let code = refusal(&rig.ask(1, command));
        assert_eq!(code, Some(ServerError::NotAllowedError.into()), "{topic:?}");
    }
}

/// A client may choose an epoch. After the largest one, the next exclusive producer ended the
/// broker.
#[test]
fn the_largest_epoch_is_not_the_end() {
    let mut rig = Rig::new();
    let largest =
        CommandProducer { topic_epoch: Some(u64::MAX), ..producer(1, 7, AccessMode::Exclusive) };
    rig.ask(1, largest);
    rig.machine.closed(1);
    assert_eq!(rig.produce(2, 2, AccessMode::Exclusive), Ok(true));
}

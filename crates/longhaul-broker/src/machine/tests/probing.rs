//! Checks of exclusive holders, from the clients' view.

use super::*;
use crate::machine::probing::{self, PROBES_MAX};
use longhaul_wire::messages::{CommandCloseConsumer, CommandCloseProducer, CommandPong};

/// One step of the clock may pass before answers are read.
const PATIENCE_MS: u64 = probing::PATIENCE_MS + 1000;
const BUSY: i32 = ServerError::ConsumerBusy as i32;

fn subscribe(consumer_id: u64, request_id: u64) -> CommandSubscribe {
    CommandSubscribe { request_id, ..consumer(consumer_id) }
}

/// Commands sent to the connections: number of the command, and the request if there is one.
fn sent(effects: &[MachineEffect]) -> Vec<(u64, String)> {
    let sent = effects.iter().map(|effect| match effect {
        MachineEffect::Send(conn, Command::Ping(_)) => (*conn, "ping".to_owned()),
        MachineEffect::Send(conn, Command::Success(success)) => {
            (*conn, format!("success {}", success.request_id))
        }
        MachineEffect::Send(conn, Command::ProducerSuccess(success)) => {
            (*conn, format!("producer {}", success.request_id))
        }
        MachineEffect::Send(conn, Command::Error(error)) => {
            (*conn, format!("error {} for {}", error.error, error.request_id))
        }
        MachineEffect::Close(conn) => (*conn, "close".to_owned()),
        other => panic!("{other:?}"),
    });
    sent.collect()
}

fn line(conn: u64, what: &str) -> (u64, String) {
    (conn, what.to_owned())
}

/// Connection 1 holds the subscription; connection 2 wants it and waits.
fn contended() -> Rig {
    let mut rig = Rig::new();
    rig.ask(1, subscribe(1, 10));
    let effects = rig.ask(2, subscribe(2, 20));
    assert_eq!(sent(&effects), [line(1, "ping")], "the holder is asked, the newcomer waits");
    rig
}

#[test]
fn a_holder_that_lives_keeps_its_place() {
    let mut rig = contended();
    let effects = rig.ask(1, CommandPong {});
    assert_eq!(sent(&effects), [line(2, &format!("error {BUSY} for 20"))]);
    assert!(sent(&rig.ask(1, CommandPong {})).is_empty(), "the newcomer is told once");
    assert!(sent(&rig.pass(2 * PATIENCE_MS)).is_empty());
}

#[test]
fn a_holder_that_goes_leaves_its_place_to_who_waits() {
    let mut rig = contended();
    rig.machine.closed(1);
    assert_eq!(sent(&rig.settle()), [line(2, "success 20")]);
}

#[test]
fn a_silent_holder_is_ended_in_time() {
    let mut rig = contended();
    assert_eq!(rig.machine.next_deadline(), START, "the next round comes first");
    rig.pass(PATIENCE_MS - 1);
    assert_eq!(rig.machine.next_deadline(), START + PATIENCE_MS);
    rig.machine.opened(3, "/test".to_owned());
    rig.ask(3, CommandConnect { protocol_version: Some(21), ..CommandConnect::default() });
    assert_eq!(sent(&rig.ask(3, subscribe(3, 30))), [line(1, "ping")]);
    assert!(sent(&rig.pass(0)).is_empty(), "it has a moment left");
    let effects = rig.pass(1);
    let expected = [line(1, "close"), line(2, "success 20"), line(2, "ping")];
    assert_eq!(sent(&effects), expected, "and now 3 waits for 2");
    rig.pass(PATIENCE_MS - 1);
    assert_eq!(sent(&rig.pass(1)), [line(2, "close"), line(3, "success 30")]);
}

/// Regression: after a turn or a pause of 5 s, a holder was ended although its answer was there,
/// unread.
#[test]
fn a_pause_of_the_broker_ends_no_holder() {
    let mut rig = contended();
    assert!(sent(&rig.stall(60_000)).is_empty());
    assert!(sent(&rig.pass(4_999)).is_empty(), "5 s are really heard");
    let effects = rig.ask(1, CommandPong {});
    assert_eq!(sent(&effects), [line(2, &format!("error {BUSY} for 20"))]);
    let mut rig = contended();
    rig.stall(60_000);
    assert_eq!(sent(&rig.pass(5_000)), [line(1, "close"), line(2, "success 20")]);
}

/// Regression: while the disk hung, the driver took no requests, and holders were ended whose
/// answers it did not take either.
#[test]
fn no_holder_is_ended_while_its_answer_is_not_taken() {
    let mut rig = contended();
    rig.pass(1_000);
    rig.machine.set_listening(false);
    assert!(sent(&rig.pass(60_000)).is_empty());
    assert_eq!(rig.machine.next_deadline(), rig.now + 1_000, "the next round: nothing is due");
    rig.machine.set_listening(true);
    assert!(sent(&rig.pass(PATIENCE_MS - 1_001)).is_empty());
    assert_eq!(sent(&rig.pass(1)), [line(1, "close"), line(2, "success 20")]);
}

/// Several clients can wait for one holder. Its connection was closed once for each of them.
#[test]
fn a_silent_holder_is_ended_once() {
    let mut rig = contended();
    rig.ask(2, CommandSubscribe { consumer_id: 9, ..subscribe(9, 90) });
    let effects = rig.pass(PATIENCE_MS);
    let closed = sent(&effects).into_iter().filter(|(_, text)| text == "close").collect::<Vec<_>>();
    assert_eq!(closed, [line(1, "close")]);
}

/// The holder keeps its place when the waiting client leaves, or withdraws its request.
#[test]
fn who_has_gone_waits_for_nothing() {
    let mut rig = contended();
    rig.machine.closed(2);
    rig.machine.closed(1);
    assert!(sent(&rig.settle()).is_empty());
    let mut rig = contended();
    let close = CommandCloseConsumer::new(2, 21);
    assert_eq!(sent(&rig.ask(2, close)), [line(2, "success 21")]);
    rig.machine.closed(1);
    assert!(sent(&rig.settle()).is_empty());
}

/// Closing something else, or something of the same id on another connection, does not affect a
/// waiting client.
#[test]
fn who_closes_something_else_goes_on_waiting() {
    let mut rig = contended();
    rig.ask(2, CommandCloseConsumer::new(7, 21));
    rig.ask(2, CommandCloseProducer::new(2, 22));
    rig.machine.opened(3, "/test".to_owned());
    rig.ask(3, CommandConnect { protocol_version: Some(21), ..CommandConnect::default() });
    rig.ask(3, CommandCloseConsumer::new(2, 31));
    rig.machine.closed(1);
    assert_eq!(sent(&rig.settle()), [line(2, "success 20")]);
}

#[test]
fn a_sign_of_life_of_somebody_else_is_none() {
    let mut rig = contended();
    assert!(sent(&rig.ask(2, CommandPong {})).is_empty());
    rig.machine.opened(3, "/test".to_owned());
    rig.machine.closed(3);
    assert!(sent(&rig.settle()).is_empty());
    rig.machine.closed(1);
    assert_eq!(sent(&rig.settle()), [line(2, "success 20")]);
}

/// A client that is in its own way need not be pinged: it has just proved that it is alive.
#[test]
fn a_client_in_its_own_way_is_refused_at_once() {
    let mut rig = Rig::new();
    rig.ask(1, subscribe(1, 10));
    let effects = rig.ask(1, subscribe(2, 20));
    assert_eq!(sent(&effects), [line(1, &format!("error {BUSY} for 20"))]);
    let unnamed = CommandSubscribe { subscription: String::new(), ..subscribe(2, 21) };
    let refused = i32::from(ServerError::NotAllowedError);
    let effects = rig.ask(2, unnamed);
    assert_eq!(
        sent(&effects),
        [line(2, &format!("error {refused} for 21"))],
        "nobody is in its way"
    );
}

#[test]
fn a_producer_waits_for_its_own_name() {
    let mut rig = Rig::with_producer();
    let effects = rig.ask(2, producer(1, 20, AccessMode::Shared));
    assert_eq!(sent(&effects), [line(1, "ping")]);
    rig.machine.closed(1);
    assert_eq!(sent(&rig.settle()), [line(2, "producer 20")]);
}

/// Waiting clients cost memory, so their number is limited.
#[test]
fn a_limited_number_waits() {
    let mut rig = contended();
    for number in 1..PROBES_MAX as u64 {
        let effects = rig.at_once(2, subscribe(2 + number, 1));
        assert_eq!(sent(&effects), [line(1, "ping")]);
    }
    let effects = rig.at_once(2, subscribe(5000, 1));
    assert_eq!(sent(&effects), [line(2, &format!("error {BUSY} for 1"))]);
}

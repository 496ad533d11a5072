//! A broker whose machine finds a contradiction in its own state.

use super::driver::{BrokerDriver, QUEUE};
use super::messages::Messages;
use crate::error::BrokerError;
use crate::log::{self, FileStorage, LogOptions, Storage};
use crate::machine::BrokerMachine;
use crate::machine::effect::ClientRequest;
use crate::state::BrokerState;
use crate::state::replay::replay;
use longhaul_wire::messages::{
    Command, CommandConnect, CommandProducer, CommandSend, MessageMetadata,
};
use longhaul_wire::payload::Payload;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The broker ends with the reason, and writes no checkpoint of the unreliable state. The next
/// start rebuilds the state from the log.
#[tokio::test]
async fn a_contradiction_ends_the_broker_and_leaves_a_sound_log() {
    let directory = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(directory.path()).unwrap());
    let opened = log::open(Arc::clone(&storage), LogOptions::default(), &mut |_| Ok(())).unwrap();
    let messages = Messages::new(opened.log.reader(), HashMap::new());
    let mut machine = BrokerMachine::new(
        crate::kit::settings(),
        None,
        BrokerState::default(),
        (opened.composer, opened.log.status()),
        HashMap::new(),
        1,
    );
    machine.opened(1, "/test".to_owned());
    let topic = "persistent://public/default/t".to_owned();
    let producer = CommandProducer { topic, producer_id: 1, ..CommandProducer::default() };
    for command in [Command::from(CommandConnect::default()), producer.into()] {
        machine.request(1, ClientRequest::Command(command));
    }
    assert!(machine.plant_readable());
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    let message = super::requests::verified(Payload::new(&MessageMetadata::default(), b"message"));
    machine.request(1, ClientRequest::Publish(send, message));
    let (events, received) = mpsc::channel(QUEUE);
    let (_reads, to_read) = mpsc::channel(1);
    let storage_ = Arc::clone(&storage);
    let driver = BrokerDriver::new(machine, opened.log, storage_, messages, received, to_read);
    let outcome = driver.run(CancellationToken::new()).await;
    drop(events);
    match outcome {
        Err(BrokerError::Invariant(found)) => {
            assert!(found.starts_with("entry_order: "), "{found}")
        }
        other => panic!("{other:?}"),
    }
    let mut state = BrokerState::default();
    let again =
        log::open(storage, LogOptions::default(), &mut |replayed| replay(&mut state, replayed));
    assert_eq!(again.unwrap().log.status().checkpoint, None);
    assert_eq!(
        state.topic(0).unwrap().entries.count(),
        1,
        "the message is on disk, and nobody was told"
    );
}

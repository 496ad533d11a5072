//! Producers.

use crate::oracle::commands::{batch, close_producer, keyed, plain, producer, send};
use crate::oracle::stage::Stage;
use anyhow::Result;
use bytes::Bytes;
use longhaul_wire::messages::{AccessMode, CommandPing, CommandProducer, CommandSend};
use longhaul_wire::payload::Payload;

fn named(topic: &str, id: u64, name: &str) -> CommandProducer {
    CommandProducer { producer_name: Some(name.to_owned()), ..producer(topic, id) }
}

pub(super) async fn names(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.note("a name that the broker makes up");
    stage.ask(a, producer(&topic, 1), 1).await?;
    stage.note("a given name, twice");
    stage.ask(a, named(&topic, 2, "given"), 1).await?;
    stage.ask(b, named(&topic, 3, "given"), 1).await?;
    stage.note("a given name, twice on one connection");
    stage.ask(a, named(&topic, 4, "given"), 1).await?;
    stage.note("the same id again");
    stage.ask(a, named(&topic, 2, "given"), 1).await?;
    stage.note("after it was closed");
    stage.ask(a, close_producer(2, 10), 1).await?;
    stage.ask(b, named(&topic, 3, "given"), 1).await?;
    stage.note("after its connection was dropped");
    stage.drop_connection(b).await?;
    let c = stage.connect().await?;
    stage.ask(c, named(&topic, 5, "given"), 1).await?;
    stage.note("closing what is not there");
    stage.ask(a, close_producer(77, 11), 1).await?;
    stage.note("a message to a producer that is not there");
    let (send, payload) = plain(78, 0);
    stage.send_message(a, send, &payload).await;
    stage.send(a, CommandPing {}).await;
    stage.answers_sorted(a, 1).await
}

pub(super) async fn reconnects(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    let with = |epoch, user: bool, id| CommandProducer {
        epoch: Some(epoch),
        user_provided_producer_name: Some(user),
        ..named(&topic, id, "given")
    };
    stage.note("a made-up name comes back with the same number and a higher epoch");
    stage.ask(a, with(0, false, 1), 1).await?;
    stage.ask(b, with(1, false, 1), 1).await?;
    stage.answers(a, 0).await?;
    let c = stage.connect().await?;
    stage.note("with another number");
    stage.ask(c, with(2, false, 2), 1).await?;
    stage.note("with the same epoch");
    stage.ask(c, with(1, false, 1), 1).await?;
    stage.note("with a lower epoch");
    stage.ask(c, with(0, false, 1), 1).await?;
    stage.note("as if a user had given the name");
    stage.ask(c, with(2, true, 1), 1).await?;
    stage.quiet().await?;
    stage.note("a message of the one that was replaced");
    let (send, payload) = plain(1, 0);
    stage.send_message(a, send, &payload).await;
    stage.answers(a, 0).await
}

pub(super) async fn access_modes(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let with = |topic: &str, id, mode: AccessMode| CommandProducer {
        producer_access_mode: Some(mode as i32),
        ..producer(topic, id)
    };
    let topic = stage.topic("exclusive").await?;
    stage.note("exclusive, then shared, then exclusive");
    stage.ask(a, with(&topic, 1, AccessMode::Exclusive), 1).await?;
    stage.ask(b, with(&topic, 2, AccessMode::Shared), 1).await?;
    stage.ask(b, with(&topic, 3, AccessMode::Exclusive), 1).await?;
    stage.note("fencing");
    stage.ask(b, with(&topic, 4, AccessMode::ExclusiveWithFencing), 1).await?;
    stage.answers(a, 0).await?;
    stage.note("a message of the fenced one");
    let (send, payload) = plain(1, 0);
    stage.send_message(a, send, &payload).await;
    stage.answers(a, 0).await?;
    stage.note("the fenced one comes back with its epoch");
    let a = stage.connect().await?;
    let back = CommandProducer { topic_epoch: Some(0), ..with(&topic, 5, AccessMode::Exclusive) };
    stage.ask(a, back, 1).await?;
    let topic = stage.topic("shared").await?;
    stage.note("shared, then exclusive, then fencing");
    stage.ask(a, with(&topic, 6, AccessMode::Shared), 1).await?;
    stage.ask(b, with(&topic, 7, AccessMode::Exclusive), 1).await?;
    stage.ask(b, with(&topic, 8, AccessMode::ExclusiveWithFencing), 1).await?;
    stage.quiet().await
}

pub(super) async fn waiting_for_exclusive(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    let with = |id, mode: AccessMode| CommandProducer {
        producer_access_mode: Some(mode as i32),
        ..producer(&topic, id)
    };
    stage.ask(a, with(1, AccessMode::Exclusive), 1).await?;
    stage.note("wait");
    stage.ask(b, with(2, AccessMode::WaitForExclusive), 1).await?;
    stage.note("the first one goes");
    stage.ask(a, close_producer(1, 9), 1).await?;
    stage.answers(b, 1).await?;
    let (send, payload) = plain(2, 0);
    stage.send_message(b, send, &payload).await;
    stage.answers(b, 1).await
}

pub(super) async fn receipts(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    stage.ask(at, producer(&topic, 1), 1).await?;
    stage.note("five at once");
    for sequence in 0..5 {
        let (send, payload) = plain(1, sequence);
        stage.send_message(at, send, &payload).await;
    }
    stage.answers(at, 5).await?;
    stage.note("a sequence id again, a lower one");
    for sequence in [4, 1] {
        let (send, payload) = plain(1, sequence);
        stage.send_message(at, send, &payload).await;
    }
    stage.answers(at, 2).await?;
    stage.note("a batch");
    let (command, payload) = batch(1, 10, &[(None, Some("a")), (None, Some("b"))]);
    stage.send_message(at, command, &payload).await;
    stage.answers(at, 1).await?;
    stage.note("with a highest sequence id");
    let command = CommandSend {
        highest_sequence_id: Some(12),
        num_messages: Some(2),
        ..CommandSend { producer_id: 1, sequence_id: 11, ..CommandSend::default() }
    };
    stage.send_message(at, command, &payload).await;
    stage.answers(at, 1).await?;
    stage.note("an empty body");
    let (command, payload) = keyed(1, 13, "k", "");
    stage.send_message(at, command, &payload).await;
    stage.answers(at, 1).await?;
    stage.note("a wrong checksum, and a message behind it");
    let (_, payload) = plain(1, 14);
    let mut bytes = payload.bytes().to_vec();
    bytes[3] ^= 1;
    stage.send_message(at, send(1, 14), &Payload::parse(Bytes::from(bytes))?).await;
    let (command, payload) = plain(1, 15);
    stage.send_message(at, command, &payload).await;
    stage.answers(at, 2).await
}

pub(super) async fn deduplication(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    let topic = stage.topic("t").await?;
    stage.admin_topic("PUT", &topic, "", "").await?;
    stage.admin_topic("POST", &topic, "/deduplicationEnabled", "true").await?;
    for _ in 0..100 {
        let stats = stage.admin_topic("GET", &topic, "/internalStats", "").await?;
        if stats["cursors"].get("pulsar.dedup").is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let open = |id| named(&topic, id, "given");
    stage.ask(at, open(1), 1).await?;
    for sequence in [5, 6, 6, 5, 2, 9] {
        stage.note(format!("sequence {sequence}"));
        let (_, payload) = {
            let (command, _) = plain(1, sequence);
            let metadata = longhaul_wire::messages::MessageMetadata {
                producer_name: "given".to_owned(),
                ..crate::oracle::commands::metadata(sequence)
            };
            (command, Payload::new(&metadata, b"x"))
        };
        stage.send_message(at, send(1, sequence), &payload).await;
        stage.answers(at, 1).await?;
    }
    stage.note("the producer comes back");
    stage.ask(at, close_producer(1, 2), 1).await?;
    stage.ask(at, open(3), 1).await?;
    stage.note("after the topic was unloaded");
    stage.admin_topic("PUT", &topic, "/unload", "").await?;
    stage.answers(at, 1).await?;
    stage.ask(at, open(4), 1).await
}

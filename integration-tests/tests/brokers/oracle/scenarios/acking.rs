//! Acknowledgements and redeliveries.

use super::consuming::publish;
use crate::oracle::commands::{ack, batch, close_consumer, flow, producer, redeliver, subscribe};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{AckType, CommandAck, MessageIdData, SubType};

pub(super) async fn redelivery(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    publish(stage, p, &topic, 5).await?;
    stage.ask(a, flow(1, 3), 3).await?;
    stage.note("no permits for what comes again");
    let ids = vec![stage.id(1), stage.id(0)];
    stage.ask(a, redeliver(1, ids), 0).await?;
    stage.note("permits: what comes again is first");
    stage.ask(a, flow(1, 3), 3).await?;
    stage.note("somebody else's, and what is acknowledged");
    stage.ask(b, subscribe(&topic, 2, SubType::Shared), 1).await?;
    let (first, third) = (stage.id(0), stage.id(2));
    stage.ask(b, redeliver(2, vec![first.clone()]), 0).await?;
    stage.ask(a, ack(1, vec![third.clone()]), 0).await?;
    stage.ask(a, redeliver(1, vec![third]), 0).await?;
    stage.ask(a, flow(1, 10), 1).await?;
    stage.note("to whoever has permits");
    stage.ask(b, flow(2, 10), 0).await?;
    stage.ask(a, redeliver(1, vec![first]), 0).await?;
    stage.quiet().await
}

pub(super) async fn redelivery_of_all(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    for kind in [SubType::Shared, SubType::Exclusive] {
        stage.note(format!("{kind:?}"));
        let topic = stage.topic(&format!("{kind:?}")).await?;
        let id = 10 + kind as u64;
        stage.ask(a, subscribe(&topic, id, kind), 1).await?;
        stage.ask(p, producer(&topic, id), 1).await?;
        for sequence in 0..4 {
            let (command, payload) = crate::oracle::commands::plain(id, sequence);
            stage.send_message(p, command, &payload).await;
        }
        stage.answers(p, 4).await?;
        stage.ask(a, flow(id, 10), 4).await?;
        stage.note("all of them");
        stage.ask(a, redeliver(id, Vec::new()), 4).await?;
        stage.note("and again");
        stage.ask(a, redeliver(id, Vec::new()), 0).await?;
        stage.ask(a, close_consumer(id, 5), 1).await?;
    }
    Ok(())
}

fn receipted(command: CommandAck, request_id: u64) -> CommandAck {
    CommandAck { request_id: Some(request_id), ..command }
}

fn cumulatively(consumer: u64, id: MessageIdData) -> CommandAck {
    CommandAck { ack_type: AckType::Cumulative as i32, ..ack(consumer, vec![id]) }
}

pub(super) async fn cumulative(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Exclusive), 1).await?;
    publish(stage, p, &topic, 5).await?;
    stage.ask(a, flow(1, 10), 5).await?;
    let (second, fourth) = (stage.id(1), stage.id(3));
    stage.ask(a, receipted(cumulatively(1, second.clone()), 20), 1).await?;
    stage.note("backwards");
    stage.ask(a, receipted(cumulatively(1, stage.id(0)), 21), 1).await?;
    stage.note("one beyond");
    stage.ask(a, receipted(ack(1, vec![fourth]), 22), 1).await?;
    stage.ask(a, close_consumer(1, 2), 1).await?;
    stage.note("what is left");
    stage.ask(a, subscribe(&topic, 3, SubType::Shared), 1).await?;
    stage.ask(a, flow(3, 10), 2).await?;
    stage.note("of a shared subscription");
    stage.ask(a, receipted(cumulatively(3, second), 23), 1).await
}

pub(super) async fn receipts_of_acks(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    publish(stage, p, &topic, 3).await?;
    stage.ask(a, flow(1, 10), 3).await?;
    let (first, second) = (stage.id(0), stage.id(1));
    stage.note("one, the same again, twice in one");
    stage.ask(a, receipted(ack(1, vec![first.clone()]), 10), 1).await?;
    stage.ask(a, receipted(ack(1, vec![first.clone()]), 11), 1).await?;
    stage.ask(a, receipted(ack(1, vec![second.clone(), second, first]), 12), 1).await?;
    stage.note("what was never there");
    let beyond = MessageIdData { entry_id: 1000, ..stage.id(2) };
    stage.ask(a, receipted(ack(1, vec![beyond]), 13), 1).await?;
    stage.note("nothing");
    stage.ask(a, receipted(ack(1, Vec::new()), 14), 1).await?;
    stage.note("of a consumer that is not there");
    stage.ask(a, receipted(ack(77, vec![stage.id(2)]), 15), 1).await?;
    stage.note("what is left");
    stage.ask(a, close_consumer(1, 2), 1).await?;
    stage.ask(a, subscribe(&topic, 3, SubType::Shared), 1).await?;
    stage.ask(a, flow(3, 10), 1).await
}

pub(super) async fn batch_indexes(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    let (command, payload) =
        batch(1, 0, &[(None, Some("a")), (None, Some("b")), (None, Some("c"))]);
    stage.send_message(p, command, &payload).await;
    stage.answers(p, 1).await?;
    stage.ask(a, flow(1, 10), 1).await?;
    stage.note("one of three, in the way of a set of bits");
    let one = MessageIdData { ack_set: vec![0b101], batch_size: Some(3), ..stage.id(0) };
    stage.ask(a, receipted(ack(1, vec![one]), 10), 1).await?;
    stage.ask(a, redeliver(1, Vec::new()), 1).await?;
    stage.note("one of three, by its index alone");
    let one = MessageIdData { batch_index: Some(1), ..stage.id(0) };
    stage.ask(a, receipted(ack(1, vec![one]), 11), 1).await?;
    stage.ask(a, redeliver(1, Vec::new()), 0).await
}

//! Readers, seeks, and the end of subscriptions.

use super::consuming::{more, publish};
use crate::oracle::commands::{
    EARLIEST, LATEST, ack, close_consumer, flow, reader, redeliver, subscribe,
};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{
    CommandSeek, CommandSubscribe, CommandUnsubscribe, InitialPosition, MessageIdData, SubType,
};

pub(super) async fn reader_starts(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    publish(stage, p, &topic, 3).await?;
    let middle = stage.id(1);
    let beyond = MessageIdData { entry_id: 1000, ..middle.clone() };
    let starts = [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("the second", middle),
        ("beyond the last", beyond),
    ];
    for (id, (what, start)) in (10..).zip(starts) {
        stage.note(what);
        stage.ask(a, reader(&topic, id, start), 1).await?;
        stage.ask(a, flow(id, 10), 0).await?;
        stage.ask(a, close_consumer(id, 1), 1).await?;
    }
    for position in [InitialPosition::Latest, InitialPosition::Earliest] {
        stage.note(format!("no start, {position:?}"));
        let id = 20 + position as u64;
        let command = CommandSubscribe {
            start_message_id: None,
            initial_position: Some(position as i32),
            ..reader(&topic, id, EARLIEST)
        };
        stage.ask(a, command, 1).await?;
        stage.ask(a, flow(id, 10), 0).await?;
        stage.ask(a, close_consumer(id, 1), 1).await?;
    }
    stage.note("beyond the last, Earliest");
    let command = CommandSubscribe {
        initial_position: Some(InitialPosition::Earliest as i32),
        ..reader(&topic, 29, LATEST)
    };
    stage.ask(a, command, 1).await?;
    stage.ask(a, flow(29, 10), 0).await?;
    stage.ask(a, close_consumer(29, 1), 1).await?;
    stage.note("what comes later");
    stage.ask(a, reader(&topic, 30, LATEST), 1).await?;
    stage.ask(a, flow(30, 10), 0).await?;
    more(stage, p, 3..4).await?;
    stage.answers(a, 1).await?;
    stage.note("another reader of the same name");
    stage.ask(a, reader(&topic, 31, LATEST), 1).await
}

fn seek(consumer_id: u64, request_id: u64) -> CommandSeek {
    CommandSeek { consumer_id, request_id, message_id: None, message_publish_time: None }
}

pub(super) async fn seek_by_id(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    publish(stage, p, &topic, 4).await?;
    stage.ask(a, reader(&topic, 1, EARLIEST), 1).await?;
    stage.ask(a, flow(1, 10), 4).await?;
    for (request, (what, to)) in
        (10..).zip([("the third", stage.id(2)), ("earliest", EARLIEST), ("latest", LATEST)])
    {
        stage.note(what);
        let command = CommandSeek { message_id: Some(to), ..seek(1, request) };
        stage.ask(a, command, 2).await?;
        stage.note("the same consumer again, with the start it had");
        stage.ask(a, reader(&topic, 1, EARLIEST), 1).await?;
        stage.ask(a, flow(1, 10), 0).await?;
    }
    stage.note("a consumer that is not there");
    stage.ask(a, CommandSeek { message_id: Some(EARLIEST), ..seek(77, 20) }, 1).await?;
    stage.note("to nowhere");
    stage.ask(a, seek(1, 21), 1).await
}

pub(super) async fn seek_by_time(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    // Message n was published at second 1000 + n.
    publish(stage, p, &topic, 4).await?;
    stage.ask(a, reader(&topic, 1, EARLIEST), 1).await?;
    stage.ask(a, flow(1, 10), 4).await?;
    for (request, time) in (10..).zip([1_002_000, 1_001_500, 1, 1_003_001]) {
        stage.note(format!("{time}"));
        let command = CommandSeek { message_publish_time: Some(time), ..seek(1, request) };
        stage.ask(a, command, 2).await?;
        stage.ask(a, reader(&topic, 1, EARLIEST), 1).await?;
        stage.ask(a, flow(1, 10), 0).await?;
    }
    Ok(())
}

pub(super) async fn seek_of_a_subscription(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(b, subscribe(&topic, 2, SubType::Shared), 1).await?;
    publish(stage, p, &topic, 3).await?;
    stage.ask(a, flow(1, 10), 3).await?;
    let all = vec![stage.id(0), stage.id(1), stage.id(2)];
    stage.ask(a, ack(1, all), 0).await?;
    stage.note("seek: both consumers are closed");
    let command = CommandSeek { message_id: Some(stage.id(1)), ..seek(1, 9) };
    stage.ask(a, command, 2).await?;
    stage.answers(b, 1).await?;
    stage.ask(b, subscribe(&topic, 3, SubType::Shared), 1).await?;
    stage.ask(b, flow(3, 10), 2).await?;
    stage.note("by the admin interface");
    stage.admin_topic("POST", &topic, "/subscription/sub/resetcursor/1", "").await?;
    stage.quiet().await?;
    stage.ask(b, subscribe(&topic, 4, SubType::Shared), 1).await?;
    stage.ask(b, flow(4, 10), 3).await
}

pub(super) async fn unsubscribe(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    let gone =
        |consumer_id, request_id| CommandUnsubscribe { consumer_id, request_id, force: None };
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(b, subscribe(&topic, 2, SubType::Shared), 1).await?;
    publish(stage, p, &topic, 2).await?;
    stage.note("while another is there");
    stage.ask(a, gone(1, 10), 1).await?;
    stage.ask(b, close_consumer(2, 11), 1).await?;
    stage.note("alone");
    stage.ask(a, gone(1, 12), 1).await?;
    stage.note("the consumer is gone, too");
    stage.ask(a, close_consumer(1, 13), 1).await?;
    stage.note("the subscription is a new one");
    stage.ask(a, subscribe(&topic, 3, SubType::Shared), 1).await?;
    stage.ask(a, flow(3, 10), 2).await
}

pub(super) async fn moved_by_admin(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    publish(stage, p, &topic, 6).await?;
    let body = r#"{"ledgerId":-1,"entryId":-1}"#;
    stage.admin_topic("PUT", &topic, "/subscription/sub", body).await?;
    stage.note("skip two");
    stage.admin_topic("POST", &topic, "/subscription/sub/skip/2", "").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.ask(a, flow(1, 2), 2).await?;
    stage.note("skip all that is left, with a consumer");
    stage.admin_topic("POST", &topic, "/subscription/sub/skip_all", "").await?;
    stage.ask(a, flow(1, 10), 0).await?;
    stage.note("what the consumer holds is acknowledged, too");
    stage.ask(a, redeliver(1, Vec::new()), 0).await?;
    more(stage, p, 6..7).await?;
    stage.answers(a, 1).await?;
    stage.note("back to the fourth");
    let id = stage.id(3);
    let body = format!(r#"{{"ledgerId":{},"entryId":{}}}"#, id.ledger_id, id.entry_id);
    stage.admin_topic("POST", &topic, "/subscription/sub/resetcursor", &body).await?;
    stage.answers(a, 1).await?;
    stage.ask(a, subscribe(&topic, 2, SubType::Shared), 1).await?;
    stage.ask(a, flow(2, 10), 4).await?;
    stage.note("behind the fourth");
    let body = body.replace('}', r#","excluded":true}"#);
    stage.admin_topic("POST", &topic, "/subscription/sub/resetcursor", &body).await?;
    stage.answers(a, 1).await?;
    stage.ask(a, subscribe(&topic, 3, SubType::Shared), 1).await?;
    stage.ask(a, flow(3, 10), 3).await?;
    stage.note("deleted, by force");
    stage.admin_topic("DELETE", &topic, "/subscription/sub?force=true", "").await?;
    stage.answers(a, 1).await?;
    stage.note("made anew at the first message, and the topic truncated");
    let body = r#"{"ledgerId":-1,"entryId":-1}"#;
    stage.admin_topic("PUT", &topic, "/subscription/sub", body).await?;
    stage.admin_topic("DELETE", &topic, "/truncate", "").await?;
    stage.ask(a, subscribe(&topic, 4, SubType::Shared), 1).await?;
    stage.ask(a, flow(4, 10), 0).await
}

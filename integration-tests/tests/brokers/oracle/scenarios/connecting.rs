//! Before and besides topics.

use crate::oracle::commands::{plain, producer, subscribe};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{Command, CommandConnect, CommandPing, OtherRequest, SubType};

fn connect(version: Option<i32>) -> CommandConnect {
    CommandConnect {
        client_version: "oracle".to_owned(),
        protocol_version: version,
        ..CommandConnect::default()
    }
}

pub(super) async fn handshake(stage: &mut Stage) -> Result<()> {
    for version in [None, Some(0), Some(12), Some(21), Some(99)] {
        stage.note(format!("connect with version {version:?}"));
        let at = stage.open().await?;
        stage.ask(at, connect(version), 1).await?;
        stage.ask(at, CommandPing {}, 1).await?;
    }
    stage.note("connect twice");
    let at = stage.connect().await?;
    stage.ask(at, connect(Some(21)), 1).await?;
    stage.note("a method of authentication that nobody asked for");
    let at = stage.open().await?;
    let method = Some("token".to_owned());
    let with = CommandConnect {
        auth_method_name: method,
        auth_data: Some("x".into()),
        ..connect(Some(21))
    };
    stage.ask(at, with, 1).await
}

pub(super) async fn before_connect(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    stage.note("ping");
    let at = stage.open().await?;
    stage.ask(at, CommandPing {}, 1).await?;
    stage.note("producer");
    let at = stage.open().await?;
    stage.ask(at, producer(&topic, 1), 1).await?;
    stage.note("subscribe");
    let at = stage.open().await?;
    stage.ask(at, subscribe(&topic, 1, SubType::Shared), 1).await?;
    stage.note("send");
    let at = stage.open().await?;
    let (send, payload) = plain(1, 0);
    stage.send_message(at, send, &payload).await;
    stage.answers(at, 1).await
}

pub(super) async fn garbage(stage: &mut Stage) -> Result<()> {
    let whole: [(&str, &[u8]); 6] = [
        ("a frame that is too large", &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]),
        ("a frame without a command", &[0, 0, 0, 4, 0, 0, 0, 0]),
        ("a command that is longer than its frame", &[0, 0, 0, 8, 0, 0, 0, 99, 1, 2, 3, 4]),
        ("a command that is no message", &[0, 0, 0, 8, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff]),
        ("an unknown command", &[0, 0, 0, 7, 0, 0, 0, 3, 0x08, 0xe7, 0x07]),
        ("a frame of nothing", &[0, 0, 0, 0]),
    ];
    for (what, bytes) in whole {
        stage.note(what);
        let at = stage.connect().await?;
        stage.send_bytes(at, bytes).await;
        stage.send(at, CommandPing {}).await;
        stage.answers(at, 1).await?;
    }
    Ok(())
}

pub(super) async fn unsupported(stage: &mut Stage) -> Result<()> {
    let at = stage.connect().await?;
    stage.note("a transaction");
    stage.ask(at, Command::NewTxn(OtherRequest { request_id: 5 }), 1).await?;
    stage.note("a coordinator of transactions: command 62 with request 6 and coordinator 0");
    let bytes = [0, 0, 0, 13, 0, 0, 0, 9, 0x08, 62, 0xf2, 0x03, 4, 0x08, 6, 0x10, 0];
    stage.send_bytes(at, &bytes).await;
    stage.answers(at, 1).await?;
    stage.ask(at, CommandPing {}, 1).await
}

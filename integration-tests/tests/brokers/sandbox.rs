//! Tests the fixture itself: a real Pulsar starts and obeys, and a stock Java client sees and sends
//! what it should.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use integration_tests::java::{JavaClient, JavaSchema, Sending, SubmitOptions};
use integration_tests::sandbox::{Broker, BrokerConfig, BrokerKind, Sandbox};
use integration_tests::wait::until;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(1);

/// The variables in which the examples look for a broker.
const PROGRAMS: [&str; 2] = ["PULSAR_SERVICE_URL", "PULSAR_ADMIN_URL"];

/// An entry as the Java reference writes it. Base64 of `foo` and `bar`.
const COMPLETED: &str = r#"{"messageId":"7:3:-1","state":"COMPLETED","created":1000,"lastUpdated":2000,"attempts":2,"task":"Zm9v","result":"YmFy"}"#;

fn metadata() -> SubmitOptions {
    SubmitOptions {
        schema: JavaSchema::Metadata,
        sending: Sending::Unbatched,
        key: Some("7:3:-1".to_owned()),
        ..SubmitOptions::default()
    }
}

#[tokio::test]
async fn topics_are_created_and_deleted() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let admin = sandbox.admin();
    let (plain, partitioned) = (sandbox.topic("plain"), sandbox.topic("partitioned"));
    assert_ne!(plain, sandbox.topic("plain"));

    admin.create_topic(&plain).await?;
    admin.create_partitioned_topic(&partitioned, 3).await?;
    assert_eq!(admin.partitions(&plain).await?, 0);
    assert_eq!(admin.partitions(&partitioned).await?, 3);
    assert_eq!(admin.stats(&plain).await?["msgInCounter"], 0);

    admin.set_policy(&plain, "compactionThreshold", &json!(1_048_576)).await?;
    assert_eq!(admin.policy(&plain, "compactionThreshold").await?, 1_048_576);

    admin.delete_topic(&plain).await?;
    admin.delete_topic(&partitioned).await?;
    assert!(admin.stats(&plain).await.is_err());
    assert!(admin.partitions(&partitioned).await.is_err());
    Ok(())
}

#[tokio::test]
async fn java_ids_show_how_a_message_was_sent() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (sandbox.service_url(), sandbox.topic("submit"));
    sandbox.admin().create_topic(&topic).await?;

    let with = |sending| SubmitOptions { sending, ..SubmitOptions::default() };
    for sending in [Sending::Unbatched, Sending::OneByOne] {
        let ids = java.submit(url, &topic, &["a", "b"], &with(sending)).await?;
        assert!(ids.iter().all(|id| id.ends_with(":-1")), "{sending:?}: {ids:?}");
    }
    let ids = java.submit(url, &topic, &["a", "b", "c"], &with(Sending::Batched)).await?;
    let ends: Vec<_> =
        ids.iter().filter_map(|id| id.split_once(":-1")).map(|(_, end)| end).collect();
    assert!(ends.contains(&":1"), "{ids:?}");
    Ok(())
}

#[tokio::test]
async fn java_sees_entries_tombstones_and_nonsense() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (sandbox.service_url(), sandbox.topic("metadata"));
    sandbox.admin().create_topic(&topic).await?;

    // Attaching registers the schema, as on a fresh topic that a Java program watches before
    // anything is written.
    let mut watcher = java.watch(url, &topic).await?;
    assert_schema_is_the_references(&sandbox.admin().schema(&topic).await?);

    let properties = vec![("epoch".to_owned(), "1".to_owned())];
    let options = SubmitOptions { properties, ..metadata() };
    let ids = java.submit(url, &topic, &[COMPLETED], &options).await?;
    let entry = watcher.next(LIMIT).await?;
    assert_eq!(entry.id.as_ref(), ids.first());
    assert_eq!(entry.key.as_deref(), Some("7:3:-1"));
    assert_eq!(entry.properties["epoch"], "1");
    assert_eq!((entry.null, entry.state.as_deref()), (false, Some("COMPLETED")));
    assert_eq!(
        (entry.created, entry.last_updated, entry.attempts),
        (Some(1000), Some(2000), Some(2))
    );
    assert_eq!(
        (entry.task.as_deref(), entry.result.as_deref()),
        (Some(&b"foo"[..]), Some(&b"bar"[..]))
    );
    assert_eq!((entry.failure_reason, entry.error), (None, None));
    let view = java.table_view(url, &topic).await?;
    assert_eq!(view.len(), 1);
    assert_eq!(view[0].state.as_deref(), Some("COMPLETED"));

    java.submit(url, &topic, &["{}"], &SubmitOptions { tombstone: true, ..metadata() }).await?;
    let entry = watcher.next(LIMIT).await?;
    assert_eq!((entry.key.as_deref(), entry.null), (Some("7:3:-1"), true));
    assert!(java.table_view(url, &topic).await?.is_empty());

    // A producer of plain bytes declares no schema, so the broker lets anything through.
    let options = SubmitOptions { schema: JavaSchema::Bytes, ..metadata() };
    java.submit(url, &topic, &["no JSON"], &options).await?;
    assert!(watcher.next(LIMIT).await?.error.is_some());
    watcher.nothing_for(QUIET).await?;
    watcher.close().await
}

#[tokio::test]
async fn java_watches_partitioned_topics() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (sandbox.service_url(), sandbox.topic("partitioned"));
    sandbox.admin().create_partitioned_topic(&topic, 2).await?;
    let mut watcher = java.watch(url, &topic).await?;
    let mut sent = java.submit(url, &topic, &[COMPLETED; 4], &metadata()).await?;
    let mut seen = Vec::new();
    for _ in &sent {
        seen.extend(watcher.next(LIMIT).await?.id);
    }
    sent.sort();
    seen.sort();
    assert_eq!(seen, sent);
    Ok(())
}

#[tokio::test]
async fn clients_survive_an_unload() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (sandbox.service_url(), sandbox.topic("unloaded"));
    sandbox.admin().create_topic(&topic).await?;
    let mut watcher = java.watch(url, &topic).await?;
    let ledgers = ledgers(&sandbox, &topic).await?;
    java.submit(url, &topic, &[COMPLETED], &metadata()).await?;
    watcher.next(LIMIT).await?;
    sandbox.admin().unload(&topic).await?;
    let ids = java.submit(url, &topic, &[COMPLETED], &metadata()).await?;
    assert_eq!(watcher.next(LIMIT).await?.id.as_ref(), ids.first());
    assert!(ledgers < self::ledgers(&sandbox, &topic).await?, "an unloaded topic starts a ledger");
    Ok(())
}

#[tokio::test]
async fn a_broker_keeps_its_data_over_a_stop_and_a_kill() -> Result<()> {
    let extra = vec![("maxMessageSize".to_owned(), "2097152".to_owned())];
    let config = BrokerConfig { extra, ..BrokerConfig::default() };
    let Some(mut broker) = Broker::from_env(config).await? else { return Ok(()) };
    let Some(java) = JavaClient::build().await? else { return Ok(()) };
    let (url, topic) = (broker.service_url().to_owned(), broker.sandbox().topic("kept"));
    let setting =
        broker.admin().call(reqwest::Method::GET, "brokers/configuration/runtime", None).await?;
    assert_eq!(setting["maxMessageSize"], "2097152");

    broker.pause()?;
    assert!(
        timeout(QUIET, broker.admin().partitions("persistent://public/default/any")).await.is_err()
    );
    broker.resume()?;

    broker.admin().create_topic(&topic).await?;
    // Without retention or a cursor the broker would trim messages that no subscription waits for.
    let retention = json!({"retentionTimeInMinutes": -1, "retentionSizeInMB": -1});
    broker.admin().set_policy(&topic, "retention", &retention).await?;
    let mut ids = java.submit(&url, &topic, &[COMPLETED], &metadata()).await?;
    broker.stop().await?;
    broker.start().await?;
    ids.extend(java.submit(&url, &topic, &[COMPLETED], &metadata()).await?);
    broker.kill().await?;
    assert!(broker.admin().stats(&topic).await.is_err());
    broker.start().await?;
    // Behind a kill, Pulsar may for a while fail to recover its ledgers, and Java's client gives up.
    let loaded = async || Ok(broker.admin().stats(&topic).await.ok());
    until("the topic is loaded", LIMIT, loaded).await?;

    let mut watcher = java.watch(&url, &topic).await?;
    for id in &ids {
        let entry = watcher.next(LIMIT).await.with_context(|| broker.log_tail())?;
        assert_eq!(entry.id.as_ref(), Some(id));
    }
    watcher.nothing_for(QUIET).await
}

#[tokio::test]
async fn a_broker_dies_with_the_process_that_started_it() -> Result<()> {
    let Some(kind) = BrokerKind::from_env()? else { return Ok(()) };
    let mut owner = Command::new(env!("CARGO_BIN_EXE_sandbox"))
        .arg("up")
        .env("LONGHAUL_TEST_BROKER", kind.name())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines.next_line().await?.unwrap();
    let address = line.strip_prefix("export LONGHAUL_TEST_BROKER=pulsar://").unwrap();
    TcpStream::connect(address).await?;
    let mut exported = BTreeMap::from([("LONGHAUL_TEST_BROKER", format!("pulsar://{address}"))]);
    for name in ["LONGHAUL_TEST_ADMIN", "LONGHAUL_TEST_OWN_BROKER"].into_iter().chain(PROGRAMS) {
        let line = lines.next_line().await?.unwrap();
        let value = line.strip_prefix(&format!("export {name}=")).unwrap();
        exported.insert(name, value.to_owned());
    }
    assert_eq!(exported["PULSAR_SERVICE_URL"], exported["LONGHAUL_TEST_BROKER"]);
    assert_eq!(exported["PULSAR_ADMIN_URL"], exported["LONGHAUL_TEST_ADMIN"]);
    owner.kill().await?;
    // No event reports the end of the broker; its port shows it.
    let gone = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, gone).await?;
    Ok(())
}

#[tokio::test]
async fn a_command_finds_the_broker_as_any_program_would() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    for name in PROGRAMS {
        command.env_remove(name);
    }
    let output = command
        .args(["run", "--", "sh", "-c", "echo $PULSAR_SERVICE_URL $PULSAR_ADMIN_URL"])
        .env("LONGHAUL_TEST_BROKER", sandbox.service_url())
        .env("LONGHAUL_TEST_ADMIN", sandbox.admin().url())
        .output()
        .await?;
    let expected = format!("{} {}\n", sandbox.service_url(), sandbox.admin().url());
    assert_eq!(String::from_utf8(output.stdout)?, expected);
    Ok(())
}

async fn ledgers(sandbox: &Sandbox, topic: &str) -> Result<u64> {
    let stats = sandbox.admin().internal_stats(topic).await?;
    let ids = stats["ledgers"].as_array().into_iter().flatten();
    Ok(ids.filter_map(|ledger| ledger["ledgerId"].as_u64()).max().unwrap_or(0))
}

/// Java programs attach to a topic only if its schema is compatible, so the stand-in has to
/// register the same one.
#[track_caller]
fn assert_schema_is_the_references(schema: &Value) {
    assert_eq!(schema["type"], "JSON");
    assert_eq!(
        schema["properties"],
        json!({"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"})
    );
    let record: Value = serde_json::from_str(schema["data"].as_str().unwrap()).unwrap();
    let bytes = json!({"type": "bytes", "java-class": "[B"});
    let nullable =
        |name: &str, kind: Value| json!({"name": name, "type": ["null", kind], "default": null});
    let states = json!({
        "type": "enum",
        "name": "TaskState",
        "symbols": ["NEW", "PROCESSING", "FAILED", "COMPLETED", "UNKNOWN"],
    });
    let expected = json!({
        "type": "record",
        "name": "TaskMetadata",
        "namespace": "io.streamnative.pulsar.recipes.task",
        "fields": [
            {"name": "attempts", "type": "int"},
            {"name": "created", "type": "long"},
            nullable("failureReason", json!("string")),
            {"name": "lastUpdated", "type": "long"},
            nullable("messageId", json!("string")),
            nullable("result", bytes.clone()),
            nullable("state", states),
            nullable("task", bytes),
        ],
    });
    assert_eq!(record, expected);
}

//! Settings that others require or decide: a longer history, enforced schemas, required encryption,
//! replication.

use super::{Bench, LOOK_PAUSE, LOOKS_MAX};
use crate::support::note;
use anyhow::{Result, ensure};
use integration_tests::sandbox::{BrokerKind, Sandbox};
use longhaul::topics::{FindingKind, HistoryRetention, Policy, QuotaAction, QuotaKind, Severity};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Batching, TopicPartition, TopicSchema, Transport};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn history_is_kept_as_long_as_asked_for() -> Result<()> {
    let Some(mut bench) = Bench::new("history").await? else { return Ok(()) };
    bench.setup().await?;
    let retention = async |bench: &Bench, topic: &str| -> Result<i64> {
        let retention = bench.sandbox.admin().policy(topic, "retention").await?;
        Ok(retention["retentionTimeInMinutes"].as_i64().unwrap_or_default())
    };
    let week = HistoryRetention::For(Duration::from_secs(7 * 24 * 3600));
    for (wanted, minutes) in [(week, 7 * 1440), (HistoryRetention::Unlimited, -1)] {
        bench.settings.history_retention = wanted;
        let found = bench.check().await?;
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found.iter().all(|finding| finding.severity == Severity::Warning), "{found:#?}");
        assert_eq!(bench.setup().await?.len(), 4);
        assert_eq!(bench.check().await?, []);
        for topic in [
            &bench.names.ledger,
            &bench.names.metadata,
            &bench.names.register,
            &bench.names.dead_letters,
        ] {
            assert_eq!(retention(&bench, topic).await?, minutes, "{topic}");
        }
    }
    Ok(())
}

/// The embedded broker once refused publishes whatever the policy said, and never a producer.
#[tokio::test]
async fn a_backlog_over_its_quota_refuses_producers_unless_it_is_evicted() -> Result<()> {
    let Some(bench) = Bench::new("quota").await? else { return Ok(()) };
    let name = &bench.names.task;
    bench.admin.create_topic(name, None).await?;
    bench.admin.create_subscription(name, "stands still").await?;
    bench.publish(name).await?;
    let transport =
        PulsarTransport::connect(ConnectOptions::new(bench.sandbox.service_url())).await?;
    let topic = TopicPartition { topic: name.clone(), partition: -1 };
    let opened = || transport.publisher(&topic, Batching::Off, TopicSchema::None);
    let cases = [
        (QuotaAction::ProducerException, true),
        (QuotaAction::ProducerRequestHold, true),
        (QuotaAction::ConsumerBacklogEviction, false),
    ];
    for (action, refuses) in cases {
        let quota = Policy::BacklogQuota { kind: QuotaKind::Size, limit: Some(1), action };
        bench.set(name, quota).await?;
        let mut looks = 0;
        while opened().await.is_err() != refuses {
            looks += 1;
            ensure!(looks < LOOKS_MAX, "{action:?}");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
    bench.publish(name).await?;
    Ok(())
}

/// The path of a topic in schema calls.
fn schemas(topic: &str) -> String {
    format!("schemas/{}/schema", topic.trim_start_matches("persistent://"))
}

#[tokio::test]
async fn enforced_schemas_are_found_where_the_topic_has_one() -> Result<()> {
    let Some(bench) = Bench::new("schema").await? else { return Ok(()) };
    bench.setup().await?;
    let admin = bench.sandbox.admin();
    for topic in
        [&bench.names.ledger, &bench.names.task, &bench.names.register, &bench.names.dead_letters]
    {
        admin.set_policy(topic, "schemaValidationEnforced", &json!(true)).await?;
        assert_eq!(bench.check().await?, [], "without a schema nothing is enforced");
        let schema = json!({ "type": "STRING", "schema": "", "properties": {} });
        admin.call(Method::POST, &schemas(topic), Some(&schema)).await?;
        bench.found(topic, FindingKind::SchemaEnforced).await?;
        admin.call(Method::DELETE, &schemas(topic), None).await?;
        bench.clean().await?;
    }
    Ok(())
}

/// Creates a namespace for one test, for settings that Pulsar has for namespaces only.
async fn namespace(bench: &mut Bench, name: &str) -> Result<String> {
    let namespace = format!("public/{name}-{:08x}", fastrand::u32(..));
    let policies = json!({ "replication_clusters": ["standalone"] });
    let path = format!("namespaces/{namespace}");
    bench.sandbox.admin().call(Method::PUT, &path, Some(&policies)).await?;
    bench.names = format!("persistent://{namespace}/tasks").parse()?;
    Ok(path)
}

/// Needs a Pulsar broker whose clusters may be changed: the embedded one supports neither.
#[tokio::test]
async fn required_encryption_and_replication_are_found() -> Result<()> {
    let Some(mut bench) = Bench::new("subject").await? else { return Ok(()) };
    if Sandbox::pulsar_kind()? != Some(BrokerKind::Maven) {
        note(
            "required encryption and replication are skipped: they need LONGHAUL_TEST_BROKER=maven",
        );
        return Ok(());
    }
    let path = namespace(&mut bench, "subject").await?;
    bench.setup().await?;
    let admin = bench.sandbox.admin();
    let require = async |required: bool| {
        let path = format!("{path}/encryptionRequired");
        admin.call(Method::POST, &path, Some(&json!(required))).await
    };
    require(true).await?;
    bench.found_everywhere(FindingKind::EncryptionRequired, Severity::Error).await?;
    require(false).await?;
    bench.clean().await?;

    // A cluster that does not run: messages for it wait for ever.
    let url = bench.sandbox.admin().url();
    let other = json!({ "serviceUrl": url, "brokerServiceUrl": "pulsar://127.0.0.1:9" });
    let known = admin.call(Method::GET, "clusters", None).await?;
    if !known.as_array().is_some_and(|known| known.contains(&json!("elsewhere"))) {
        admin.call(Method::PUT, "clusters/elsewhere", Some(&other)).await?;
    }
    let tenant = json!({ "adminRoles": [], "allowedClusters": ["standalone", "elsewhere"] });
    admin.call(Method::POST, "tenants/public", Some(&tenant)).await?;
    let replicate = async |clusters: Value| {
        admin.call(Method::POST, &format!("{path}/replication"), Some(&clusters)).await
    };
    replicate(json!(["standalone", "elsewhere"])).await?;
    bench.found_everywhere(FindingKind::Replicated, Severity::Warning).await?;
    replicate(json!(["standalone"])).await?;
    bench.clean().await?;
    Ok(())
}

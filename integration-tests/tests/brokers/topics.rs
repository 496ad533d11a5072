//! Sets topics up on a real broker and breaks their settings; then the check finds and set-up fixes
//! each fault, or a worker refuses to start.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

mod dead_letters;
mod ended;
mod first_worker;
mod levels;
mod subject;

use anyhow::{Result, bail};
use integration_tests::sandbox::Sandbox;
use longhaul::topics::{
    Admin, AdminErrorKind, AdminOptions, CompactionStatus, DEAD_LETTER_SUBSCRIPTION, FindingKind,
    Policy, QuotaAction, QuotaKind, SetupError, SetupStep, Severity, TopicFinding, TopicNames,
    TopicSettings, check, dry_run, setup,
};
use longhaul::{Client, ConnectError, TaskContext, TaskError, TaskProcessor, Text, WorkerError};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Batching, Outgoing, TopicPartition, TopicSchema, Transport};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

/// The number of checks before a test gives up: a policy takes effect some milliseconds after it
/// was set.
const LOOKS_MAX: usize = 100;
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A broker to test against, and topics of one test on it.
struct Bench {
    sandbox: Sandbox,
    admin: Admin,
    names: TopicNames,
    settings: TopicSettings,
}

impl Bench {
    /// `None` when the environment names no broker.
    async fn new(test: &str) -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        Ok(Some(Self {
            admin: Admin::new(sandbox.admin().url(), &AdminOptions::default())?,
            names: sandbox.topic(&format!("topics-{test}")).parse()?,
            sandbox,
            settings: TopicSettings::default(),
        }))
    }

    fn partitioned(mut self, partitions: u32) -> Self {
        self.settings.partitions = Some(partitions);
        self
    }

    async fn setup(&self) -> Result<Vec<SetupStep>> {
        let report = setup(&self.admin, &self.names, &self.settings).await?;
        assert_eq!(report.findings, []);
        Ok(report.steps)
    }

    async fn check(&self) -> Result<Vec<TopicFinding>> {
        Ok(check(&self.admin, &self.names, &self.settings).await?)
    }

    /// Waits until the check finds exactly this, then lets set-up fix it.
    async fn found_and_mended(&self, topic: &str, expected: FindingKind) -> Result<()> {
        self.found(topic, expected).await?;
        assert!(!self.setup().await?.is_empty(), "{expected:?}");
        assert_eq!(self.check().await?, [], "{expected:?}");
        Ok(())
    }

    async fn found(&self, topic: &str, expected: FindingKind) -> Result<()> {
        let mut found = Vec::new();
        for _ in 0..LOOKS_MAX {
            found = self.check().await?;
            if let [one] = found.as_slice()
                && one.kind == expected
                && one.topic == topic
            {
                return Ok(());
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        bail!("expected {expected:?} on {topic}, found {found:#?}");
    }

    /// Waits until the check finds this for each topic, and nothing else.
    async fn found_everywhere(&self, kind: FindingKind, severity: Severity) -> Result<()> {
        let TopicNames { task, metadata, ledger, register, dead_letters, .. } = &self.names;
        let mut expected = [task, metadata, ledger, register, dead_letters]
            .map(|topic| (topic.clone(), kind, severity));
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        self.until_found(&expected).await
    }

    /// Waits until the check finds nothing.
    async fn clean(&self) -> Result<()> {
        self.until_found(&[]).await
    }

    async fn until_found(&self, expected: &[(String, FindingKind, Severity)]) -> Result<()> {
        let mut found = Vec::new();
        for _ in 0..LOOKS_MAX {
            found = self.check().await?;
            let mut seen: Vec<_> =
                found.iter().map(|f| (f.topic.clone(), f.kind, f.severity)).collect();
            seen.sort_by(|one, other| one.0.cmp(&other.0));
            if seen == expected {
                return Ok(());
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        bail!("expected {expected:?}, found {found:#?}");
    }

    async fn set(&self, topic: &str, policy: Policy) -> Result<()> {
        Ok(self.admin.set_policy(topic, &policy).await?)
    }

    async fn publish(&self, topic: &str) -> Result<()> {
        let transport =
            PulsarTransport::connect(ConnectOptions::new(self.sandbox.service_url())).await?;
        let partition = transport.partitions(topic).await?.map_or(-1, |_| 0);
        let part = TopicPartition { topic: topic.to_owned(), partition };
        let mut publisher = transport.publisher(&part, Batching::Off, TopicSchema::None).await?;
        let message = Outgoing { payload: "x".into(), ..Outgoing::default() };
        publisher.send(message).await?.await?;
        Ok(())
    }
}

/// From fresh topics to a second run that changes nothing.
async fn set_up_twice(bench: &Bench) -> Result<()> {
    assert_eq!(
        bench.admin.partitions(&bench.names.task).await.map_err(|e| e.kind),
        Err(AdminErrorKind::NotFound)
    );
    let missing = bench.check().await?;
    assert!(missing.iter().all(|f| f.kind == FindingKind::TopicMissing), "{missing:#?}");
    assert_eq!(missing.len(), 5);

    let planned = dry_run(&bench.admin, &bench.names, &bench.settings).await?;
    assert_eq!(bench.check().await?.len(), 5, "a dry run changes nothing");
    let taken = bench.setup().await?;
    // Brokers up to 3.0 forget a policy when the next one follows at once: set-up then sets it
    // again.
    assert!(taken.starts_with(&planned), "{taken:#?}");
    assert!(taken.iter().all(|step| planned.contains(step)), "{taken:#?}");
    assert_eq!(bench.check().await?, []);
    assert_eq!(bench.setup().await?, []);

    let partitions = bench.admin.partitions(&bench.names.task).await?;
    assert_eq!(partitions, bench.settings.partitions);
    let subscriptions = bench.admin.subscriptions(&bench.names.task).await?;
    assert_eq!(subscriptions, ["longhaul"]);
    assert!(bench.admin.subscriptions(&bench.names.ledger).await?.is_empty());
    let dead_letters = &bench.names.dead_letters;
    assert_eq!(bench.admin.partitions(dead_letters).await?, None);
    assert_eq!(bench.admin.subscriptions(dead_letters).await?, [DEAD_LETTER_SUBSCRIPTION]);
    Ok(())
}

#[tokio::test]
async fn fresh_topics_are_set_up_once() -> Result<()> {
    let Some(bench) = Bench::new("plain").await? else { return Ok(()) };
    set_up_twice(&bench).await
}

#[tokio::test]
async fn fresh_partitioned_topics_are_set_up_once() -> Result<()> {
    let Some(bench) = Bench::new("parts").await? else { return Ok(()) };
    set_up_twice(&bench.partitioned(3)).await
}

#[tokio::test]
async fn setups_at_the_same_time_do_not_hurt_each_other() -> Result<()> {
    let Some(bench) = Bench::new("race").await? else { return Ok(()) };
    let bench = bench.partitioned(4);
    tokio::try_join!(bench.setup(), bench.setup(), bench.setup())?;
    assert_eq!(bench.check().await?, []);
    let bench = bench.partitioned(6);
    tokio::try_join!(bench.setup(), bench.setup(), bench.setup())?;
    assert_eq!(bench.check().await?, []);
    Ok(())
}

#[tokio::test]
async fn an_existing_task_topic_is_taken_as_it_is() -> Result<()> {
    let Some(bench) = Bench::new("existing").await? else { return Ok(()) };
    bench.admin.create_topic(&bench.names.task, Some(2)).await?;
    bench.publish(&bench.names.task).await?;
    bench.setup().await?;
    assert_eq!(bench.admin.partitions(&bench.names.ledger).await?, Some(2));
    assert_eq!(bench.admin.partitions(&bench.names.metadata).await?, Some(2));
    Ok(())
}

#[tokio::test]
async fn each_broken_setting_is_found_and_mended() -> Result<()> {
    use FindingKind as Kind;
    let Some(bench) = Bench::new("broken").await? else { return Ok(()) };
    bench.setup().await?;
    let TopicNames { task, metadata, ledger, register, dead_letters, .. } = bench.names.clone();
    let evict = QuotaAction::ConsumerBacklogEviction;
    // Pulsar refuses a limit that is not below the topic's retention: 1 GiB, and ten minutes.
    let quota = |kind, action| {
        let limit = if kind == QuotaKind::Size { 1 << 30 } else { 600 };
        Policy::BacklogQuota { kind, limit: Some(limit), action }
    };
    let short = Policy::Retention { minutes: 10, megabytes: -1 };
    let small = Policy::Retention { minutes: 240, megabytes: 10 };
    let broken = [
        (&ledger, Policy::Deduplication(false), Kind::DeduplicationOff),
        (&ledger, short.clone(), Kind::RetentionTooShort),
        (&ledger, small, Kind::RetentionTooShort),
        (&ledger, Policy::CompactionThreshold { bytes: 0 }, Kind::CompactionThreshold),
        (&ledger, Policy::MessageTtl { seconds: 60 }, Kind::MessageTtl),
        (&metadata, short.clone(), Kind::RetentionTooShort),
        (&metadata, Policy::CompactionThreshold { bytes: 0 }, Kind::CompactionThreshold),
        (&metadata, Policy::MessageTtl { seconds: 60 }, Kind::MessageTtl),
        (&dead_letters, short.clone(), Kind::RetentionTooShort),
        (&dead_letters, Policy::MessageTtl { seconds: 60 }, Kind::MessageTtl),
        (&task, Policy::Deduplication(false), Kind::DeduplicationOff),
        (&task, Policy::MessageTtl { seconds: 60 }, Kind::MessageTtl),
        (&task, Policy::UnackedPerConsumer(5), Kind::UnackedLimit),
        (&task, Policy::UnackedPerSubscription(5), Kind::UnackedLimit),
        (&ledger, quota(QuotaKind::Size, QuotaAction::ProducerException), Kind::BacklogQuota),
        (&metadata, quota(QuotaKind::Size, QuotaAction::ProducerRequestHold), Kind::BacklogQuota),
        (&register, quota(QuotaKind::Age, QuotaAction::ProducerRequestHold), Kind::BacklogQuota),
        (&dead_letters, quota(QuotaKind::Size, evict), Kind::BacklogQuota),
        (&task, quota(QuotaKind::Age, evict), Kind::BacklogQuota),
        (&ledger, Policy::DeleteWhileInactive(true), Kind::DeleteWhileInactive),
        (&metadata, Policy::DeleteWhileInactive(true), Kind::DeleteWhileInactive),
        (&dead_letters, Policy::DeleteWhileInactive(true), Kind::DeleteWhileInactive),
    ];
    for (topic, policy, kind) in broken {
        bench.set(topic, policy).await?;
        bench.found_and_mended(topic, kind).await?;
    }
    let bookies = bench.sandbox.admin().call(Method::GET, "bookies/all", None).await?;
    let is_pulsar = bookies["bookies"] != json!([]);
    if is_pulsar {
        bench.set(&task, short).await?;
        bench.found_and_mended(&task, Kind::RetentionTooShort).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_longer_retention_is_a_warning_that_setup_leaves_alone() -> Result<()> {
    let Some(bench) = Bench::new("archive").await? else { return Ok(()) };
    bench.setup().await?;
    let archive = Policy::Retention { minutes: -1, megabytes: -1 };
    bench.set(&bench.names.task, archive).await?;
    bench.found(&bench.names.task, FindingKind::RetentionTooLong).await?;
    let report = setup(&bench.admin, &bench.names, &bench.settings).await?;
    assert_eq!(report.steps, []);
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].severity, Severity::Warning);
    Ok(())
}

#[tokio::test]
async fn a_missing_topic_and_a_missing_cursor_are_found_and_mended() -> Result<()> {
    let Some(bench) = Bench::new("missing").await? else { return Ok(()) };
    bench.setup().await?;
    let TopicNames { task, metadata, ledger, register, dead_letters, .. } = bench.names.clone();
    for topic in [&metadata, &ledger, &register, &dead_letters, &task] {
        bench.admin.delete_topic(topic).await?;
        bench.found_and_mended(topic, FindingKind::TopicMissing).await?;
    }
    // The embedded broker has no such cursor that could be lost.
    if bench.sandbox.admin().delete_subscription(&ledger, "__compaction").await.is_ok() {
        bench.found_and_mended(&ledger, FindingKind::CompactionCursor).await?;
    }
    bench.sandbox.admin().delete_subscription(&task, "longhaul").await?;
    bench.found_and_mended(&task, FindingKind::SubscriptionMissing).await?;
    bench.sandbox.admin().delete_subscription(&dead_letters, DEAD_LETTER_SUBSCRIPTION).await?;
    bench.found_and_mended(&dead_letters, FindingKind::SubscriptionMissing).await?;
    // Dead letters may be handled through a subscription of another name.
    bench.admin.create_subscription(&dead_letters, "support").await?;
    bench.sandbox.admin().delete_subscription(&dead_letters, DEAD_LETTER_SUBSCRIPTION).await?;
    assert_eq!(bench.check().await?, []);
    Ok(())
}

#[tokio::test]
async fn a_lost_subscription_needs_an_explicit_replay() -> Result<()> {
    let Some(mut bench) = Bench::new("lost").await? else { return Ok(()) };
    bench.settings.subscription = "a b:c".to_owned();
    bench.names = TopicNames::new(&bench.names.task, "a b:c")?;
    bench.setup().await?;
    bench.publish(&bench.names.ledger).await?;
    assert_eq!(bench.check().await?, []);
    bench.sandbox.admin().delete_subscription(&bench.names.task, "a b:c").await?;
    bench.found(&bench.names.task, FindingKind::SubscriptionLost).await?;
    let refused = setup(&bench.admin, &bench.names, &bench.settings).await;
    assert!(matches!(refused, Err(SetupError::SubscriptionLost(_))), "{refused:?}");
    bench.settings.replay = true;
    assert_eq!(bench.setup().await?.len(), 1);
    assert_eq!(bench.check().await?, []);
    Ok(())
}

/// Does nothing and succeeds.
struct Nothing;

impl TaskProcessor for Nothing {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, _context: TaskContext) -> Result<Text, TaskError> {
        Ok(task)
    }
}

#[tokio::test]
async fn a_worker_does_not_start_where_its_subscription_was_lost() -> Result<()> {
    let Some(mut bench) = Bench::new("start").await? else { return Ok(()) };
    let client = bench.sandbox.client().await?;
    let start = async || client.worker(&bench.names.task, Nothing).start().await;
    let lose =
        async || bench.sandbox.admin().delete_subscription(&bench.names.task, "longhaul").await;
    bench.setup().await?;

    // A worker that has not run anything leaves heartbeats and settings, which prove nothing.
    let worker = start().await?;
    worker.ready().await;
    worker.stop();
    worker.join().await?;
    lose().await?;
    let worker = start().await?;
    worker.ready().await;
    let task = client.submit(&bench.names.task, &Text("once".to_owned())).await?;
    client.wait::<Text>(&task).await?;
    worker.drain(Duration::from_secs(30)).await?;

    lose().await?;
    let refused = start().await.err();
    let Some(WorkerError::SubscriptionLost(finding)) = &refused else { bail!("{refused:?}") };
    assert_eq!(finding.kind, FindingKind::SubscriptionLost);
    assert!(refused.is_some_and(|error| error.to_string().contains("`replay`")));
    assert!(bench.admin.subscriptions(&bench.names.task).await?.is_empty(), "nothing was made");
    bench.settings.replay = true;
    setup(&bench.admin, &bench.names, &bench.settings).await?;
    let worker = start().await?;
    worker.ready().await;
    worker.drain(Duration::from_secs(30)).await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_starts_on_a_ledger_without_deduplication() -> Result<()> {
    let Some(bench) = Bench::new("doubled").await? else { return Ok(()) };
    let client = bench.sandbox.client().await?;
    bench.setup().await?;
    bench.set(&bench.names.ledger, Policy::Deduplication(false)).await?;
    bench.found(&bench.names.ledger, FindingKind::DeduplicationOff).await?;
    let worker = client.worker(&bench.names.task, Nothing).set_up_topics(false).start().await?;
    let task = client.submit(&bench.names.task, &Text("once".to_owned())).await?;
    client.wait::<Text>(&task).await?;
    worker.drain(Duration::from_secs(30)).await?;
    bench.found(&bench.names.ledger, FindingKind::DeduplicationOff).await?;
    // A worker with an admin URL switches it on by itself.
    let worker = client.worker(&bench.names.task, Nothing).start().await?;
    worker.drain(Duration::from_secs(30)).await?;
    assert_eq!(bench.check().await?, []);
    Ok(())
}

#[tokio::test]
async fn an_admin_url_that_is_none_is_refused_at_once() -> Result<()> {
    let Some(bench) = Bench::new("url").await? else { return Ok(()) };
    let refused =
        Client::builder(bench.sandbox.service_url()).admin_url("localhost:8080").connect().await;
    assert!(matches!(refused, Err(ConnectError::Admin(_))), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn partitions_grow_on_the_ledger_before_the_task_topic() -> Result<()> {
    let Some(bench) = Bench::new("grow").await? else { return Ok(()) };
    let bench = bench.partitioned(2);
    bench.setup().await?;
    bench.publish(&bench.names.ledger).await?;

    // An operator adds partitions to the task topic only.
    bench.admin.grow_partitions(&bench.names.task, 3).await?;
    let bench = bench.partitioned(3);
    let kinds: Vec<_> = bench.check().await?.into_iter().map(|f| (f.topic, f.kind)).collect();
    let differ = |topic: &String| (topic.clone(), FindingKind::PartitionsDiffer);
    assert_eq!(kinds, [differ(&bench.names.ledger), differ(&bench.names.metadata)]);

    let bench = bench.partitioned(4);
    let grown = bench.setup().await?;
    let TopicNames { task, metadata, ledger, .. } = bench.names.clone();
    let grow = |topic: &String| format!("grow {topic} to 4 partitions");
    let shown: Vec<_> = grown.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [grow(&ledger), grow(&metadata), grow(&task)]);
    assert_eq!(bench.check().await?, []);
    let last = format!("{task}-partition-3");
    assert_eq!(bench.admin.subscriptions(&last).await?, ["longhaul"]);

    let bench = bench.partitioned(2);
    let refused = setup(&bench.admin, &bench.names, &bench.settings).await;
    assert!(matches!(refused, Err(SetupError::Partitions { .. })), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_deleted_partition_is_found_and_mended() -> Result<()> {
    let Some(bench) = Bench::new("hole").await? else { return Ok(()) };
    let bench = bench.partitioned(2);
    bench.setup().await?;
    let ledger = bench.names.ledger.clone();
    bench.admin.delete_topic(&format!("{ledger}-partition-1")).await?;
    bench.found_and_mended(&ledger, FindingKind::PartitionsMissing).await?;
    Ok(())
}

#[tokio::test]
async fn topics_are_unloaded_compacted_and_their_cursors_read() -> Result<()> {
    let Some(bench) = Bench::new("calls").await? else { return Ok(()) };
    let bench = bench.partitioned(2);
    bench.setup().await?;
    let Bench { admin, names, .. } = &bench;
    bench.publish(&names.ledger).await?;

    admin.compact(&names.ledger).await?;
    for partition in 0..2 {
        let partition = format!("{}-partition-{partition}", names.ledger);
        let mut compaction = admin.compaction(&partition).await?;
        for _ in 0..LOOKS_MAX {
            if compaction.status != CompactionStatus::Running {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
            compaction = admin.compaction(&partition).await?;
        }
        assert_eq!(compaction.status, CompactionStatus::Success, "{}", compaction.last_error);
    }

    let partition = format!("{}-partition-0", names.task);
    let admin = bench.sandbox.admin();
    let before = admin.mark_delete_position(&partition, "longhaul").await?;
    assert!(before.is_some());
    assert_eq!(admin.mark_delete_position(&partition, "nobody").await?, None);
    admin.unload(&names.task).await?;
    let after = admin.mark_delete_position(&partition, "longhaul").await?;
    assert!(after >= before, "{after:?} < {before:?}");
    assert_eq!(bench.check().await?, []);
    Ok(())
}

//! The first worker of a task topic: the topics that it finds and creates, with and without an
//! admin URL.

use super::{Bench, Nothing};
use anyhow::{Context, Result};
use longhaul::topics::{
    Admin, AdminOptions, FindingKind, SetupError, TopicNames, TopicSettings, check, dry_run,
};
use longhaul::{Client, Text};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;

const DRAIN: Duration = Duration::from_secs(30);

/// A first worker once reported seven problems of its topics and left them although it could have
/// fixed them.
#[tokio::test]
async fn it_sets_its_topics_up_if_it_may() -> Result<()> {
    let Some(bench) = Bench::new("first").await? else { return Ok(()) };
    let client = bench.sandbox.client().await?;
    let worker = client.worker(&bench.names.task, Nothing).start().await?;
    worker.ready().await;
    assert_eq!(bench.check().await?, []);
    assert_eq!(dry_run(&bench.admin, &bench.names, &bench.settings).await?, []);
    let task = client.submit(&bench.names.task, &Text("once".to_owned())).await?;
    client.wait::<Text>(&task).await?;
    worker.drain(DRAIN).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_sets_topics_up_with_its_own_subscription() -> Result<()> {
    let Some(bench) = Bench::new("client").await? else { return Ok(()) };
    let builder = Client::builder(bench.sandbox.service_url()).subscription("audit");
    let client = builder.clone().connect().await?;
    let refused = client.queue(&bench.names.task).setup_topics(TopicSettings::default()).await;
    assert!(matches!(refused, Err(SetupError::NoAdminUrl)), "{refused:?}");
    let client = builder.admin_url(bench.sandbox.admin().url()).connect().await?;
    assert!(
        !client
            .queue(&bench.names.task)
            .setup_topics(TopicSettings::default())
            .await?
            .steps
            .is_empty()
    );
    assert_eq!(
        client.queue(&bench.names.task).setup_topics(TopicSettings::default()).await?.steps,
        []
    );
    let names = TopicNames::new(&bench.names.task, "audit")?;
    assert_eq!(bench.admin.subscriptions(&names.task).await?, ["audit"]);
    Ok(())
}

/// The embedded broker behaved by a topic's name as the protocol needs, but its admin API did not
/// say so: the check once reported seven problems.
#[tokio::test]
async fn on_the_embedded_broker_topics_are_right_without_set_up() -> Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let worker = client.worker("tasks", Nothing).start().await?;
    let task = client.submit("tasks", &Text("once".to_owned())).await?;
    client.wait::<Text>(&task).await?;
    let admin = Admin::new(&broker.admin_url().context("no admin")?, &AdminOptions::default())?;
    let names: TopicNames = "tasks".parse()?;
    let found = check(&admin, &names, &TopicSettings::default()).await?;
    let seen: Vec<_> = found.iter().map(|it| (it.topic.as_str(), it.kind)).collect();
    // The topic of the dead letters is created with the first one.
    assert_eq!(seen, [(names.dead_letters.as_str(), FindingKind::TopicMissing)], "{found:#?}");
    // As the first dead letter does it.
    admin.create_topic(&names.dead_letters, None).await?;
    assert_eq!(check(&admin, &names, &TopicSettings::default()).await?, []);
    worker.drain(DRAIN).await?;
    tokio::task::spawn_blocking(move || broker.shutdown()).await??;
    Ok(())
}

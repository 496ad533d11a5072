//! A topic that moves, and the broker's information about its new place.

use super::*;
use longhaul_wire::messages::{
    CommandCloseConsumer, CommandCloseProducer, CommandTopicMigrated, ResourceType,
};

fn urls() -> (Option<String>, Option<String>) {
    (Some("pulsar://there".to_owned()), Some("pulsar+ssl://there".to_owned()))
}

fn moved(migrated: bool) -> TopicRedirect {
    let (url, url_tls) = urls();
    let (url, url_tls) = (url.unwrap(), url_tls.unwrap());
    TopicRedirect { topic: "topic".to_owned(), url, url_tls, migrated }
}

/// A broker that moves a topic names the new broker. The session ignored that, and looked up the
/// topic before any broker had taken it.
#[test]
fn where_a_topic_goes_is_told() {
    let mut bench = Bench::open();
    let (producer, consumer) = (bench.producer(Batching::Off), bench.consumer());
    let (assigned_broker_service_url, assigned_broker_service_url_tls) = urls();
    bench.says(CommandCloseProducer {
        assigned_broker_service_url,
        assigned_broker_service_url_tls,
        ..CommandCloseProducer::new(producer, u64::MAX)
    });
    let (assigned_broker_service_url, assigned_broker_service_url_tls) = urls();
    bench.says(CommandCloseConsumer {
        assigned_broker_service_url,
        assigned_broker_service_url_tls,
        ..CommandCloseConsumer::new(consumer, u64::MAX)
    });
    let outcome = bench.outcome();
    assert_eq!(outcome.moved, [moved(false), moved(false)]);
    assert_eq!((outcome.producers_over, outcome.consumers_over), (vec![producer], vec![consumer]));
}

#[test]
fn a_topic_that_migrates_ends_what_is_open_on_it() {
    let mut bench = Bench::open();
    let (producer, consumer) = (bench.producer(Batching::Off), bench.consumer());
    for (resource_id, kind) in
        [(producer, ResourceType::Producer), (consumer, ResourceType::Consumer)]
    {
        let (broker_service_url, broker_service_url_tls) = urls();
        let resource_type = kind as i32;
        bench.says(CommandTopicMigrated {
            resource_id,
            resource_type,
            broker_service_url,
            broker_service_url_tls,
        });
    }
    let outcome = bench.outcome();
    assert_eq!(outcome.moved, [moved(true), moved(true)]);
    assert_eq!((outcome.producers_over, outcome.consumers_over), (vec![producer], vec![consumer]));
    let written = bench.commands();
    assert!(
        matches!(&written[..], [Command::CloseProducer(_), Command::CloseConsumer(_)]),
        "{written:?}"
    );
}

#[test]
fn addresses_that_help_nobody_are_not_told() {
    let mut bench = Bench::open();
    let consumer = bench.consumer();
    let long = Some(format!("pulsar://{}", "x".repeat(10_000)));
    let elsewhere = CommandCloseConsumer {
        assigned_broker_service_url: urls().0,
        ..CommandCloseConsumer::new(consumer + 100, u64::MAX)
    };
    bench.says(elsewhere);
    bench.says(CommandCloseConsumer {
        assigned_broker_service_url: long,
        ..CommandCloseConsumer::new(consumer, u64::MAX)
    });
    let outcome = bench.outcome();
    assert!(outcome.moved.is_empty());
    assert_eq!(outcome.consumers_over, [consumer]);
}

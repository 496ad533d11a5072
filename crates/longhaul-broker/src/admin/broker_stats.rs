//! Statistics of all topics, in the JSON of Pulsar's `broker-stats`, for tools that monitor a
//! cluster. Pure.

use super::answer::{Advertised, host_of};
use super::stats::TopicStats;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The only bundle of every namespace.
pub(super) const BUNDLE: &str = "0x00000000_0xffffffff";

/// Statistics by full topic name.
pub(super) type TopicStatsMap = BTreeMap<String, TopicStats>;

/// `tenant/namespace` of a full topic name.
fn namespace_of(topic: &str) -> &str {
    let short = topic.split_once("://").map_or(topic, |(_, rest)| rest);
    short.rsplit_once('/').map_or(short, |(namespace, _)| namespace)
}

fn bundle_of(namespace: &str) -> String {
    format!("{namespace}/{BUNDLE}")
}

/// Statistics by namespace, bundle and domain.
pub(super) fn topics(topics: TopicStatsMap) -> Value {
    let mut namespaces: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (name, stats) in topics {
        let namespace = namespace_of(&name).to_owned();
        namespaces.entry(namespace).or_default().insert(name, topic(&stats));
    }
    let bundles = namespaces.into_iter();
    bundles.map(|(name, topics)| (name, json!({ BUNDLE: { "persistent": topics } }))).collect()
}

/// The statistics of a topic, with some values repeated under the names that are used here.
fn topic(stats: &TopicStats) -> Value {
    let mut value = json!(stats);
    if let Value::Object(fields) = &mut value {
        let more = json!({
            "producerCount": stats.publishers.len(),
            "msgInCount": stats.msg_in_counter,
            "bytesInCount": stats.bytes_in_counter,
            "msgOutCount": stats.msg_out_counter,
            "bytesOutCount": stats.bytes_out_counter,
            "pendingAddEntriesCount": 0,
            "replication": {},
        });
        fields.extend(more.as_object().cloned().unwrap_or_default());
    }
    value
}

/// Sums over some topics.
#[derive(Default)]
struct Sum {
    topics: u64,
    producers: u64,
    consumers: u64,
    subscriptions: u64,
    backlog: u64,
    storage: u64,
    rates: [f64; 4],
}

impl Sum {
    fn add(&mut self, stats: &TopicStats) {
        self.topics += 1;
        self.producers += stats.publishers.len() as u64;
        self.subscriptions += stats.subscriptions.len() as u64;
        self.storage += stats.storage_size;
        for subscription in stats.subscriptions.values() {
            self.consumers += subscription.consumers.len() as u64;
            self.backlog += subscription.msg_backlog;
        }
        let more = [
            stats.msg_rate_in,
            stats.msg_throughput_in,
            stats.msg_rate_out,
            stats.msg_throughput_out,
        ];
        for (rate, more) in self.rates.iter_mut().zip(more) {
            *rate += more;
        }
    }
}

fn by_namespace(topics: &TopicStatsMap) -> BTreeMap<&str, Sum> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (name, stats) in topics {
        sums.entry(namespace_of(name)).or_default().add(stats);
    }
    sums
}

/// Sums per namespace, under the names of Pulsar's monitoring.
pub(super) fn monitoring(topics: &TopicStatsMap) -> Value {
    let sums = by_namespace(topics).into_iter();
    sums.map(|(namespace, sum)| {
        let [rate_in, bytes_in, rate_out, bytes_out] = sum.rates;
        json!({
            "metrics": {
                "brk_in_rate": rate_in, "brk_in_tp_rate": bytes_in,
                "brk_out_rate": rate_out, "brk_out_tp_rate": bytes_out,
                "brk_storage_size": sum.storage, "brk_msg_backlog": sum.backlog,
                "brk_no_of_producers": sum.producers, "brk_no_of_consumers": sum.consumers,
                "brk_no_of_subscribers": sum.subscriptions,
            },
            "dimensions": { "namespace": namespace },
        })
    })
    .collect()
}

/// The load report of Pulsar's load balancer, without the machine's own figures.
pub(super) fn load_report(topics: &TopicStatsMap, advertised: &Advertised) -> Value {
    let sums = by_namespace(topics);
    let mut total = Sum::default();
    topics.values().for_each(|stats| total.add(stats));
    let [rate_in, bytes_in, rate_out, bytes_out] = total.rates;
    let last: Map<String, Value> = sums
        .iter()
        .map(|(namespace, sum)| {
            let [rate_in, bytes_in, rate_out, bytes_out] = sum.rates;
            let stats = json!({
                "msgRateIn": rate_in, "msgThroughputIn": bytes_in,
                "msgRateOut": rate_out, "msgThroughputOut": bytes_out,
                "consumerCount": sum.consumers, "producerCount": sum.producers, "topics": sum.topics,
                "cacheSize": 0,
            });
            (bundle_of(namespace), stats)
        })
        .collect();
    json!({
        "webServiceUrl": advertised.http_url,
        "webServiceUrlTls": advertised.http_url_tls,
        "pulsarServiceUrl": advertised.broker_url,
        "pulsarServiceUrlTls": advertised.broker_url_tls,
        "persistentTopicsEnabled": true,
        "nonPersistentTopicsEnabled": false,
        "msgRateIn": rate_in, "msgThroughputIn": bytes_in,
        "msgRateOut": rate_out, "msgThroughputOut": bytes_out,
        "numTopics": total.topics, "numBundles": sums.len(),
        "numConsumers": total.consumers, "numProducers": total.producers,
        "bundles": last.keys().collect::<Vec<_>>(),
        "lastStats": last,
        "brokerVersionString": env!("CARGO_PKG_VERSION"),
        "loadReportType": "LocalBrokerData",
    })
}

/// The bundles of namespaces that have topics.
pub(super) fn owned_namespaces(topics: &TopicStatsMap) -> Value {
    let owned = json!({"broker_assignment": "shared", "is_controlled": false, "is_active": true});
    by_namespace(topics).keys().map(|namespace| (bundle_of(namespace), owned.clone())).collect()
}

/// The only broker is the leader.
pub(super) fn leader(advertised: &Advertised) -> Value {
    let url = &advertised.http_url;
    json!({ "serviceUrl": url.trim_end_matches('/'), "brokerId": host_of(url) })
}

/// A namespace has one bundle.
pub(super) fn bundles() -> Value {
    let (first, last) = BUNDLE.split_once('_').unwrap_or_default();
    json!({ "boundaries": [first, last], "numBundles": 1 })
}

#[cfg(test)]
mod tests {
    use super::super::stats::{ConsumerStats, PublisherStats, SubscriptionStats};
    use super::*;

    fn sample() -> TopicStatsMap {
        let subscription = SubscriptionStats {
            msg_backlog: 3,
            consumers: vec![ConsumerStats::default(); 2],
            ..SubscriptionStats::default()
        };
        let stats = TopicStats {
            msg_rate_in: 0.5,
            msg_in_counter: 4,
            storage_size: 10,
            publishers: vec![PublisherStats::default()],
            subscriptions: [("s".to_owned(), subscription)].into(),
            ..TopicStats::default()
        };
        let names = ["persistent://a/b/t", "persistent://a/b/u", "persistent://a/c/t"];
        names.map(|name| (name.to_owned(), stats.clone())).into()
    }

    #[test]
    fn topics_lie_in_the_bundle_of_their_namespace() {
        let value = topics(sample());
        let topic = &value["a/b"][BUNDLE]["persistent"]["persistent://a/b/u"];
        assert_eq!((&topic["msgInCount"], &topic["producerCount"]), (&json!(4), &json!(1)));
        assert_eq!(topic["subscriptions"]["s"]["msgBacklog"], 3);
        assert!(value["a/c"][BUNDLE]["persistent"]["persistent://a/c/t"].is_object());
    }

    #[test]
    fn figures_are_summed_up_by_namespace() {
        let value = monitoring(&sample());
        assert_eq!(value[0]["dimensions"]["namespace"], "a/b");
        let metrics = &value[0]["metrics"];
        assert_eq!(
            (&metrics["brk_in_rate"], &metrics["brk_msg_backlog"]),
            (&json!(1.0), &json!(6))
        );
        assert_eq!(value[1]["metrics"]["brk_no_of_consumers"], 2);
        let advertised = Advertised {
            broker_url: "pulsar://h:1".to_owned(),
            broker_url_tls: None,
            http_url: "http://h:2".to_owned(),
            http_url_tls: None,
            message_bytes_max: 1,
        };
        let report = load_report(&sample(), &advertised);
        assert_eq!((&report["numTopics"], &report["numConsumers"]), (&json!(3), &json!(6)));
        assert_eq!(report["lastStats"][format!("a/b/{BUNDLE}")]["topics"], 2);
        assert_eq!(report["bundles"], json!([format!("a/b/{BUNDLE}"), format!("a/c/{BUNDLE}")]));
        assert_eq!(owned_namespaces(&sample()).as_object().unwrap().len(), 2);
        let leader = leader(&advertised);
        assert_eq!(
            (&leader["serviceUrl"], &leader["brokerId"]),
            (&json!("http://h:2"), &json!("h:2"))
        );
        assert_eq!(bundles()["boundaries"], json!(["0x00000000", "0xffffffff"]));
    }
}

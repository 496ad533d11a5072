//! Statistics of a partitioned topic: the sums over its partitions.

use super::stats::{SubscriptionStats, TopicStats, earlier};
use super::values::PartitionedTopicMetadata;
use serde::Serialize;
use std::collections::BTreeMap;

/// A partitioned topic in Pulsar's format.
#[derive(Debug, Serialize)]
pub(super) struct PartitionedStats {
    #[serde(flatten)]
    sum: TopicStats,
    metadata: PartitionedTopicMetadata,
    partitions: BTreeMap<String, TopicStats>,
}

impl PartitionedStats {
    /// Sums up the partitions; they are only included themselves on request.
    pub(super) fn new(
        metadata: PartitionedTopicMetadata,
        partitions: BTreeMap<String, TopicStats>,
        each: bool,
    ) -> Self {
        let mut sum = TopicStats::default();
        for stats in partitions.values() {
            add(&mut sum, stats);
        }
        let sum = sum.derive();
        Self { sum, metadata, partitions: if each { partitions } else { BTreeMap::new() } }
    }
}

fn add(sum: &mut TopicStats, stats: &TopicStats) {
    sum.msg_rate_in += stats.msg_rate_in;
    sum.msg_throughput_in += stats.msg_throughput_in;
    sum.msg_rate_out += stats.msg_rate_out;
    sum.msg_throughput_out += stats.msg_throughput_out;
    sum.bytes_in_counter += stats.bytes_in_counter;
    sum.msg_in_counter += stats.msg_in_counter;
    sum.bytes_out_counter += stats.bytes_out_counter;
    sum.msg_out_counter += stats.msg_out_counter;
    sum.msg_chunk_published |= stats.msg_chunk_published;
    sum.storage_size += stats.storage_size;
    sum.backlog_size += stats.backlog_size;
    sum.unreadable_entries += stats.unreadable_entries;
    sum.waiting_publishers += stats.waiting_publishers;
    sum.publishers.extend(stats.publishers.iter().cloned());
    for (name, subscription) in &stats.subscriptions {
        add_subscription(sum.subscriptions.entry(name.clone()).or_default(), subscription);
    }
}

fn add_subscription(sum: &mut SubscriptionStats, stats: &SubscriptionStats) {
    sum.msg_rate_out += stats.msg_rate_out;
    sum.msg_throughput_out += stats.msg_throughput_out;
    sum.bytes_out_counter += stats.bytes_out_counter;
    sum.msg_out_counter += stats.msg_out_counter;
    sum.msg_rate_redeliver += stats.msg_rate_redeliver;
    sum.message_ack_rate += stats.message_ack_rate;
    sum.msg_backlog += stats.msg_backlog;
    sum.backlog_size += stats.backlog_size;
    sum.earliest_msg_publish_time_in_backlog = earlier(
        sum.earliest_msg_publish_time_in_backlog,
        stats.earliest_msg_publish_time_in_backlog,
    );
    sum.msg_backlog_no_delayed += stats.msg_backlog_no_delayed;
    sum.blocked_subscription_on_unacked_msgs |= stats.blocked_subscription_on_unacked_msgs;
    sum.msg_delayed += stats.msg_delayed;
    sum.unacked_messages += stats.unacked_messages;
    sum.kind = stats.kind;
    sum.msg_rate_expired += stats.msg_rate_expired;
    sum.total_msg_expired += stats.total_msg_expired;
    sum.durable |= stats.durable;
    sum.non_contiguous_deleted_messages_ranges += stats.non_contiguous_deleted_messages_ranges;
    sum.consumers.extend(stats.consumers.iter().cloned());
    sum.subscription_properties.extend(stats.subscription_properties.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn two() -> PartitionedTopicMetadata {
        PartitionedTopicMetadata::new(2)
    }

    /// Regression: partitions with a backlog, and with holes in it, were summed up to none.
    #[test]
    fn times_and_holes_of_partitions_are_summed_up() {
        let partition = |earliest_msg_publish_time_in_backlog| {
            let subscription = SubscriptionStats {
                earliest_msg_publish_time_in_backlog,
                non_contiguous_deleted_messages_ranges: 2,
                ..Default::default()
            };
            let subscriptions = BTreeMap::from([("s".to_owned(), subscription)]);
            TopicStats { subscriptions, ..Default::default() }.derive()
        };
        let partitions = [("a", partition(0)), ("b", partition(9)), ("c", partition(7))];
        let partitions =
            partitions.into_iter().map(|(name, stats)| (name.to_owned(), stats)).collect();
        let shown = json!(PartitionedStats::new(two(), partitions, false));
        assert_eq!(shown["earliestMsgPublishTimeInBacklogs"], 7);
        assert_eq!(shown["nonContiguousDeletedMessagesRanges"], 6);
        assert_eq!(shown["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"], 7);
        assert_eq!(shown["subscriptions"]["s"]["nonContiguousDeletedMessagesRanges"], 6);
        assert_eq!(shown["averageMsgSize"], 0.0, "none");
    }

    #[test]
    fn partitions_are_summed_up() {
        let subscription =
            SubscriptionStats { msg_backlog: 2, durable: true, ..Default::default() };
        let subscriptions = BTreeMap::from([("s".to_owned(), subscription)]);
        let stats = TopicStats {
            msg_in_counter: 3,
            bytes_in_counter: 30,
            subscriptions,
            ..Default::default()
        };
        let partitions = BTreeMap::from([("a".to_owned(), stats.clone()), ("b".to_owned(), stats)]);
        let shown = json!(PartitionedStats::new(two(), partitions.clone(), true));
        assert_eq!(shown["msgInCounter"], 6);
        assert_eq!(shown["averageMsgSize"], 10.0);
        assert_eq!(shown["subscriptions"]["s"]["msgBacklog"], 4);
        assert_eq!(shown["metadata"]["partitions"], 2);
        assert_eq!(shown["partitions"]["b"]["msgInCounter"], 3);
        assert_eq!(json!(PartitionedStats::new(two(), partitions, false))["partitions"], json!({}));
    }
}

//! Metrics of the broker and of its topics.

use super::figures::{oldest_open_time, open_for_s};
use super::stats::{METRICS_TOPICS_MAX, backlog};
use super::{BrokerMachine, Live};
use crate::auth::AuthRole;
use crate::metrics::{
    LogMetrics, MetricsPart, MetricsSelection, MetricsSnapshot, SubscriptionMetrics, TopicMetrics,
    UpkeepFigures,
};
use crate::state::BrokerTopic;
use std::collections::BTreeMap;

impl BrokerMachine {
    /// All metrics, or those of the topics that `viewer` may use.
    pub(crate) fn metrics(&self, viewer: Option<&AuthRole>) -> MetricsSnapshot {
        let all = MetricsSelection::default();
        let (topics, _) = self.metrics_of(viewer, &all);
        if viewer.is_some() {
            let part = MetricsPart::OfRole;
            return MetricsSnapshot { topics, part, ..MetricsSnapshot::default() };
        }
        MetricsSnapshot {
            topics,
            part: MetricsPart::All,
            topics_total: self.live.len() as u64,
            connections: self.sessions.len() as u64,
            totals: self.totals,
            oldest_open_s: open_for_s(self.keeper.oldest_open(), self.now),
            broken_invariants: self.invariants.counts(),
            log: self.log_metrics(),
        }
    }

    /// Metrics of selected topics that `viewer` may use, without those of the broker.
    pub(crate) fn selected_metrics(
        &self,
        viewer: Option<&AuthRole>,
        selection: &MetricsSelection,
    ) -> MetricsSnapshot {
        let (topics, next) = self.metrics_of(viewer, selection);
        let part = MetricsPart::Selected { next };
        MetricsSnapshot { topics, part, ..MetricsSnapshot::default() }
    }

    /// Metrics of the first selected topics, and the last one of them if there are more.
    fn metrics_of(
        &self,
        viewer: Option<&AuthRole>,
        selection: &MetricsSelection,
    ) -> (BTreeMap<String, TopicMetrics>, Option<String>) {
        let is_seen =
            |topic: &BrokerTopic| viewer.is_none_or(|role| self.allows_any(role, &topic.name));
        let MetricsSelection { prefix, after } = selection;
        let seen = self.state.topics_named_after(prefix, after);
        let mut seen = seen.filter(|(_, topic)| is_seen(topic));
        let shown = seen.by_ref().take(METRICS_TOPICS_MAX).filter_map(|(id, topic)| {
            let live = self.live.get(&id)?;
            Some((topic.name.as_str().to_owned(), topic_metrics(topic, live, self.now)))
        });
        let topics: BTreeMap<_, _> = shown.collect();
        let has_more = topics.len() == METRICS_TOPICS_MAX && seen.next().is_some();
        let next = topics.last_key_value().filter(|_| has_more).map(|(name, _)| name.clone());
        (topics, next)
    }

    fn log_metrics(&self) -> LogMetrics {
        LogMetrics {
            group_age_ms: self.writing.map_or(0, |(_, since)| self.up.saturating_sub(since)),
            sync_times: self.log.syncs,
            segments: self.log.segments.len() as u64,
            usage: None,
            upkeep: UpkeepFigures::default(),
            disk_limit_bytes: self.settings.disk_bytes_max,
            disk_left_bytes: self.space.left(),
            disk_full_in_s: self.disk_full_in_s(),
            is_disk_full: self.is_disk_full(),
        }
    }

    /// Notes the oldest open entry of a topic that is visited: clients wait while all topics are
    /// looked at.
    pub(super) fn note_oldest_open(&mut self, topic: u32) {
        let readable = self.readable(topic);
        let oldest = self.state.topic(topic).and_then(|kept| oldest_open_time(kept, readable));
        let both = self.keeper.oldest_so_far.into_iter().chain(oldest);
        self.keeper.oldest_so_far = both.min();
    }
}

fn topic_metrics(topic: &BrokerTopic, live: &Live, now: u64) -> TopicMetrics {
    let subscriptions = topic.subscriptions.iter().map(|(&id, known)| {
        let (figures, dispatcher) = (live.figures.of(id), live.dispatchers.get(&id));
        let metrics = SubscriptionMetrics {
            consumers: dispatcher.map_or(0, |dispatcher| dispatcher.consumers().len()) as u64,
            backlog: backlog(topic, &known.cursor, live.readable),
            delayed: dispatcher.map_or(0, |dispatcher| dispatcher.delayed()) as u64,
            unacked: dispatcher.map_or(0, |dispatcher| dispatcher.unacked()),
            messages_out: figures.messages_out,
            bytes_out: figures.bytes_out,
            redeliveries: figures.redeliveries,
            acks: figures.acks,
        };
        (known.name.clone(), metrics)
    });
    TopicMetrics {
        producers: live.producers.active.len() as u64,
        messages_in: live.figures.messages_in,
        bytes_in: live.figures.bytes_in,
        storage_bytes: topic.bytes,
        oldest_open_s: open_for_s(oldest_open_time(topic, live.readable), now),
        subscriptions: subscriptions.collect(),
    }
}

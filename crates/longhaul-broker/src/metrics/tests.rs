//! Tests the Prometheus output.

use super::*;

/// Alerts on the broker's metrics stopped, and nothing on the page explained why.
#[test]
fn a_page_for_some_topics_says_so() {
    let page = |part| render(&MetricsSnapshot { part, ..MetricsSnapshot::default() });
    let (all, of_role) = (page(MetricsPart::All), page(MetricsPart::OfRole));
    assert!(of_role.starts_with(PART) && !of_role.contains("pulsar_active_connections"));
    assert!(!all.contains(PART) && all.contains("pulsar_active_connections"));
}

/// Regression: topics behind the first 1,000 were on no page. With the broker's figures on each
/// page, a sum over pages would count them several times.
#[test]
fn pages_of_selected_topics_leave_out_the_figures_of_the_broker() {
    let page = |next: Option<&str>| {
        let part = MetricsPart::Selected { next: next.map(str::to_owned) };
        render(&MetricsSnapshot { part, ..snapshot(1) })
    };
    let (last, first) = (page(None), page(Some("persistent://a/b/c")));
    for text in [&last, &first] {
        assert!(text.starts_with(SELECTED) && text.contains("\npulsar_in_messages_total{"));
        assert!(
            !text.contains("pulsar_active_connections") && !text.contains("longhaul_broker_log")
        );
    }
    let more = "\n# There are more topics: after=persistent://a/b/c\n";
    assert!(first.contains(more) && !last.contains("more topics"), "{first}");
}

fn snapshot(topics: usize) -> MetricsSnapshot {
    let subscription = SubscriptionMetrics { backlog: 7, consumers: 2, ..Default::default() };
    let topic = TopicMetrics {
        messages_in: 3,
        subscriptions: BTreeMap::from([("a\"b".to_owned(), subscription)]),
        ..TopicMetrics::default()
    };
    let name = |number| format!("persistent://public/default/t{number}");
    let topics: BTreeMap<_, _> = (0..topics).map(|number| (name(number), topic.clone())).collect();
    MetricsSnapshot { topics_total: 9, topics, ..MetricsSnapshot::default() }
}

#[test]
fn each_figure_has_its_help_and_type_once() {
    let text = render(&snapshot(2));
    let mut heads = std::collections::BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let name = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).unwrap().0;
        assert!(heads.insert(name), "{name} twice");
        let kind = lines.next().unwrap();
        assert!(kind.starts_with(&format!("# TYPE {name} ")), "{kind}");
        assert_eq!(
            kind.ends_with("counter"),
            name.ends_with("_total") || name.ends_with("_total_count"),
            "{kind}"
        );
        while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
            let (labelled, value) = sample.rsplit_once(' ').unwrap();
            let shown = labelled.split('{').next().unwrap();
            let is_part = ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"));
            let is_part = kind.ends_with("histogram") && is_part.iter().any(|part| part == shown);
            assert!(shown == name || is_part, "{sample}");
            assert!(value.parse::<f64>().is_ok(), "{sample}");
        }
    }
}

/// The meaning of a metric was only documented in the code.
#[test]
fn the_documentation_names_each_figure() {
    let docs = include_str!("../../../../docs/broker.md");
    let mut snapshot = snapshot(1);
    let log = &mut snapshot.log;
    log.usage = Some(Usage::default());
    (log.disk_limit_bytes, log.disk_left_bytes, log.disk_full_in_s) = (Some(1), Some(1), Some(1));
    let text = render(&snapshot);
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(docs.contains(&format!("`{name}`")), "docs/broker.md lacks {name}");
    }
    for (kind, _) in Usage::default().kinds() {
        assert!(docs.contains(&format!("`{kind}`")), "docs/broker.md lacks {kind}");
    }
}

/// A sum of seconds hides the one sync in a hundred that takes a second.
#[test]
fn times_are_a_histogram() {
    let mut snapshot = MetricsSnapshot::default();
    for (ms, times) in [(0, 5), (3, 2), (2494, 1), (6000, 3)] {
        for _ in 0..times {
            let took = Duration::from_millis(ms);
            snapshot.log.sync_times.note(took);
            snapshot.totals.publish_times.note(took);
        }
    }
    let text = render(&snapshot);
    for name in ["longhaul_broker_log_sync_seconds", "longhaul_broker_publish_seconds"] {
        for line in [
            "_bucket{le=\"0.0001\"} 5",
            "_bucket{le=\"0.002\"} 5",
            "_bucket{le=\"0.005\"} 7",
            "_bucket{le=\"1\"} 7",
            "_bucket{le=\"5\"} 8",
            "_bucket{le=\"+Inf\"} 11",
            "_sum 20.5",
            "_count 11",
        ] {
            assert!(text.contains(&format!("\n{name}{line}\n")), "{line} is not in {text}");
        }
    }
    assert!(text.contains("\nlonghaul_broker_log_syncs_total 11\n"));
}

/// The size of the data directory only counted its segments.
#[test]
fn the_disk_is_told_by_kind_and_as_a_whole() {
    let usage = Usage {
        segments: 1000,
        spare: 200,
        indices: 30,
        checkpoint: 4,
        views: 50_000,
        reserve: 600_000,
        other: 7_000_000,
    };
    let mut snapshot = MetricsSnapshot::default();
    assert!(!render(&snapshot).contains("longhaul_broker_disk_used_bytes"), "nobody has looked");
    snapshot.log.usage = Some(usage);
    let text = render(&snapshot);
    assert!(text.contains("\nlonghaul_broker_disk_used_bytes 7651234\n"), "{text}");
    for kind in ["segments\"} 1000", "spare\"} 200", "indices\"} 30", "checkpoint\"} 4"] {
        assert!(text.contains(&format!("\nlonghaul_broker_disk_kind_bytes{{kind=\"{kind}\n")));
    }
    assert_eq!(text.matches("\nlonghaul_broker_disk_kind_bytes{").count(), 7);
}

#[test]
fn topics_and_subscriptions_are_labelled() {
    let text = render(&snapshot(1));
    let topic =
        r#"cluster="standalone",namespace="public/default",topic="persistent://public/default/t0""#;
    assert!(text.contains(&format!("\npulsar_in_messages_total{{{topic}}} 3\n")), "{text}");
    let subscription = format!(r#"{{{topic},subscription="a\"b"}}"#);
    assert!(text.contains(&format!("\npulsar_subscription_back_log{subscription} 7\n")), "{text}");
    assert!(text.contains("\npulsar_broker_topics_count 9\n"));
    assert!(!text.contains("disk_limit"));
}

use super::*;
use crate::observe::PartitionState;
use crate::policy::{EffectivePolicies, InactiveTopic, RetentionPolicies};
use crate::quota::Quotas;
use crate::settings::HistoryRetention;
use crate::traits::Traits;
use std::time::Duration;

fn names() -> TopicNames {
    "tasks".parse().unwrap()
}

/// A topic without findings, except those of its role.
fn topic(shape: Option<u32>, retention_minutes: i64) -> TopicState {
    let partition = PartitionState {
        exists: true,
        subscribed: true,
        compaction_cursor: true,
        terminated: false,
        has_entries: false,
        stored_bytes: 0,
    };
    TopicState {
        shape,
        policies: EffectivePolicies {
            source: PolicySource::Applied,
            retention: RetentionPolicies { minutes: retention_minutes, megabytes: -1 },
            compaction_threshold_bytes: 1,
            deduplication: true,
            ttl_s: 0,
            unacked_per_consumer: 0,
            unacked_per_subscription: 0,
            inactive: inactive(false, "delete_when_no_subscriptions"),
            quotas: Quotas::default(),
            ensemble: Some(3),
        },
        traits: Traits::default(),
        partitions: vec![partition; shape.unwrap_or(1) as usize],
    }
}

fn inactive(delete: bool, mode: &str) -> InactiveTopic {
    let json = format!(r#"{{"deleteWhileInactive":{delete},"inactiveTopicDeleteMode":"{mode}"}}"#);
    serde_json::from_str(&json).unwrap()
}

fn healthy(shape: Option<u32>) -> Observed {
    Observed {
        task: Some(topic(shape, 60)),
        metadata: Some(topic(shape, 1440)),
        ledger: Some(topic(shape, 1440)),
        register: Some(topic(None, 1440)),
        dead_letters: Some(topic(None, 1440)),
        bookies: Some(4),
    }
}

/// Breaks one thing and expects one finding.
#[track_caller]
fn check(
    expected: (&str, FindingKind, Severity),
    words: &str,
    break_it: impl FnOnce(&mut Observed),
) {
    let mut observed = healthy(Some(2));
    break_it(&mut observed);
    let found = findings(&observed, &names(), &TopicSettings::default());
    let [finding] = found.as_slice() else { panic!("expected one finding, got {found:#?}") };
    let topic = finding.topic.rsplit('/').next().unwrap();
    assert_eq!((topic, finding.kind, finding.severity), expected);
    let shown = finding.to_string();
    assert!(shown.contains(words), "{shown}");
    for part in [&finding.what, &finding.risk, &finding.remedy] {
        assert!(!part.is_empty() && !part.ends_with('.') && !part.contains('\n'), "{part}");
    }
}

fn task(observed: &mut Observed) -> &mut TopicState {
    observed.task.as_mut().unwrap()
}

fn metadata(observed: &mut Observed) -> &mut TopicState {
    observed.metadata.as_mut().unwrap()
}

fn ledger(observed: &mut Observed) -> &mut TopicState {
    observed.ledger.as_mut().unwrap()
}

#[test]
fn healthy_topics_have_no_findings() {
    for shape in [None, Some(1), Some(7)] {
        let found = findings(&healthy(shape), &names(), &TopicSettings::default());
        assert_eq!(found, [], "{shape:?}");
    }
}

#[test]
fn a_missing_topic_is_named() {
    use FindingKind::TopicMissing;
    check(("tasks-ledger", TopicMissing, Severity::Error), "`longhaul topic setup tasks`", |o| {
        o.ledger = None
    });
    check(("tasks-metadata", TopicMissing, Severity::Error), "does not exist", |o| {
        o.metadata = None
    });
    check(("tasks-register", TopicMissing, Severity::Error), "loses keys", |o| o.register = None);
    check(("tasks", TopicMissing, Severity::Error), "does not exist", |o| o.task = None);
}

#[test]
fn partitions_that_differ_are_counted() {
    use FindingKind::{PartitionsDiffer, PartitionsMissing};
    let fewer = "the topic has 1 partition, the task topic has 2 partitions";
    check(("tasks-ledger", PartitionsDiffer, Severity::Error), fewer, |o| {
        *ledger(o) = topic(Some(1), 1440);
    });
    check(("tasks-metadata", PartitionsDiffer, Severity::Error), "delete persistent://", |o| {
        *metadata(o) = topic(None, 1440);
    });
    check(
        ("tasks-register", PartitionsDiffer, Severity::Error),
        "a register must have none",
        |o| {
            o.register = Some(topic(Some(2), 1440));
        },
    );
    check(("tasks-ledger", PartitionsMissing, Severity::Error), "partition 1", |o| {
        ledger(o).partitions[1].exists = false;
    });
    let mut more = healthy(Some(2));
    *ledger(&mut more) = topic(Some(4), 1440);
    assert_eq!(findings(&more, &names(), &TopicSettings::default()), []);
}

#[test]
fn partitions_of_the_task_topic_are_held_against_the_settings() {
    let observed = healthy(Some(2));
    for (partitions, remedy) in [(4, "`longhaul topic setup tasks`"), (1, "set partitions to")] {
        let settings = TopicSettings { partitions: Some(partitions), ..TopicSettings::default() };
        let found = findings(&observed, &names(), &settings);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].kind, FindingKind::PartitionsDiffer);
        assert!(found[0].remedy.contains(remedy), "{}", found[0]);
    }
}

#[test]
fn a_ledger_that_is_not_safe_is_named() {
    use FindingKind::{
        CompactionCursor, CompactionThreshold, DeduplicationOff, DeleteWhileInactive, MessageTtl,
        RetentionTooLong, RetentionTooShort,
    };
    let error = |kind| ("tasks-ledger", kind, Severity::Error);
    let warning = |kind| ("tasks-ledger", kind, Severity::Warning);
    check(warning(DeduplicationOff), "tasks-ledger/deduplicationEnabled with the body true", |o| {
        ledger(o).policies.deduplication = false;
    });
    check(error(RetentionTooShort), "retention is 239 min", |o| {
        ledger(o).policies.retention.minutes = 239
    });
    check(error(RetentionTooShort), "retention is none", |o| {
        ledger(o).policies.retention = RetentionPolicies::default();
    });
    check(error(RetentionTooShort), "10 MiB", |o| ledger(o).policies.retention.megabytes = 10);
    check(warning(RetentionTooLong), "unlimited in time", |o| {
        ledger(o).policies.retention.minutes = -1
    });
    check(error(CompactionThreshold), "67108864", |o| {
        ledger(o).policies.compaction_threshold_bytes = 0
    });
    check(error(CompactionCursor), "partition 0", |o| {
        ledger(o).partitions[0].compaction_cursor = false
    });
    check(warning(MessageTtl), "message TTL is 5 s", |o| ledger(o).policies.ttl_s = 5);
    check(error(DeleteWhileInactive), "inactiveTopicPolicies", |o| {
        ledger(o).policies.inactive = InactiveTopic::default();
    });
}

#[test]
fn metadata_that_is_not_kept_is_named() {
    use FindingKind::{CompactionThreshold, DeleteWhileInactive, MessageTtl, RetentionTooShort};
    let warning = |kind| ("tasks-metadata", kind, Severity::Warning);
    check(warning(RetentionTooShort), "retention is none", |o| {
        metadata(o).policies.retention = RetentionPolicies::default();
    });
    check(("tasks-metadata", CompactionThreshold, Severity::Error), "is 0", |o| {
        metadata(o).policies.compaction_threshold_bytes = 0;
    });
    check(warning(MessageTtl), "?messageTTL=0", |o| metadata(o).policies.ttl_s = 5);
    check(warning(DeleteWhileInactive), "is on", |o| {
        metadata(o).policies.inactive = InactiveTopic::default();
    });
}

#[test]
fn a_task_topic_that_loses_or_withholds_tasks_is_named() {
    use FindingKind::{
        DeduplicationOff, DeleteWhileInactive, MessageTtl, RetentionTooLong, RetentionTooShort,
        SubscriptionMissing, UnackedLimit,
    };
    let error = |kind| ("tasks", kind, Severity::Error);
    let warning = |kind| ("tasks", kind, Severity::Warning);
    check(warning(DeduplicationOff), "two tasks", |o| task(o).policies.deduplication = false);
    check(error(MessageTtl), "drops every task", |o| task(o).policies.ttl_s = 1);
    check(error(UnackedLimit), "per consumer is 50000", |o| {
        task(o).policies.unacked_per_consumer = 50_000
    });
    check(error(UnackedLimit), "per subscription is 9", |o| {
        task(o).policies.unacked_per_subscription = 9
    });
    check(error(DeleteWhileInactive), "deletes the task topic", |o| {
        task(o).policies.inactive = inactive(true, "delete_when_subscriptions_caught_up");
    });
    check(warning(RetentionTooLong), "61 min", |o| task(o).policies.retention.minutes = 61);
    check(warning(RetentionTooLong), "if older messages are not needed: POST", |o| {
        task(o).policies.retention.minutes = -1
    });
    check(warning(RetentionTooShort), "none", |o| {
        task(o).policies.retention = RetentionPolicies::default()
    });
    check(error(SubscriptionMissing), "`longhaul` is missing on partition 1", |o| {
        task(o).partitions[1].subscribed = false;
    });
}

#[test]
fn a_durable_subscription_is_enough_to_keep_the_task_topic() {
    let mut observed = healthy(None);
    task(&mut observed).policies.inactive = InactiveTopic::default();
    assert_eq!(findings(&observed, &names(), &TopicSettings::default()), []);
}

#[test]
fn a_subscription_is_lost_only_where_the_ledger_remembers_its_tasks() {
    check(("tasks", FindingKind::SubscriptionLost, Severity::Error), "and `replay`", |o| {
        task(o).partitions[1].subscribed = false;
        ledger(o).partitions[1].has_entries = true;
    });
    check(("tasks", FindingKind::SubscriptionMissing, Severity::Error), "partition 0", |o| {
        task(o).partitions[0].subscribed = false;
        ledger(o).partitions[1].has_entries = true;
    });
}

#[test]
fn an_ensemble_of_all_bookies_is_a_warning() {
    let mut observed = healthy(None);
    observed.bookies = Some(3);
    let found = findings(&observed, &names(), &TopicSettings::default());
    assert_eq!(found.len(), 5);
    assert!(
        found.iter().all(|f| f.kind == FindingKind::Ensemble && f.severity == Severity::Warning)
    );
    for bookies in [Some(1), None] {
        observed.bookies = bookies;
        assert_eq!(findings(&observed, &names(), &TopicSettings::default()), []);
    }
}

#[test]
fn without_topic_policies_the_remedy_is_to_enable_them() {
    let mut observed = healthy(None);
    ledger(&mut observed).policies.source = PolicySource::Namespace;
    ledger(&mut observed).policies.deduplication = false;
    let found = findings(&observed, &names(), &TopicSettings::default());
    let kinds: Vec<_> = found.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::DeduplicationOff, FindingKind::PoliciesDisabled]);
    assert!(found.iter().all(|finding| finding.remedy.contains("topicLevelPoliciesEnabled=true")));
    let namespace = "POST /admin/v2/namespaces/public/default/deduplication with the body true";
    assert!(found[0].remedy.contains(namespace), "{}", found[0]);
}

#[test]
fn needs_follow_the_ledger_retention() {
    let settings = TopicSettings {
        ledger_retention: Duration::from_secs(7 * 3600),
        ..TopicSettings::default()
    };
    let kinds: Vec<_> = findings(&healthy(None), &names(), &settings)
        .iter()
        .map(|finding| (finding.topic.rsplit('/').next().unwrap().to_owned(), finding.kind))
        .collect();
    let short = FindingKind::RetentionTooShort;
    let expected =
        ["tasks-ledger", "tasks-register", "tasks", "tasks-metadata", "tasks-longhaul-DLQ"]
            .map(|topic| (topic.to_owned(), short));
    assert_eq!(kinds, expected);
}

fn register(observed: &mut Observed) -> &mut TopicState {
    observed.register.as_mut().unwrap()
}

fn letters(observed: &mut Observed) -> &mut TopicState {
    observed.dead_letters.as_mut().unwrap()
}

/// Setup and check did not cover the dead letters: a stock Pulsar deleted the idle topic with all
/// its messages.
#[test]
fn dead_letters_that_may_get_lost_are_named() {
    use FindingKind as Kind;
    let error = |kind| ("tasks-longhaul-DLQ", kind, Severity::Error);
    let warning = |kind| ("tasks-longhaul-DLQ", kind, Severity::Warning);
    check(error(Kind::TopicMissing), "soon after the last worker has ended", |o| {
        o.dead_letters = None
    });
    check(error(Kind::SubscriptionMissing), "`dead-letters`", |o| {
        letters(o).partitions[0].subscribed = false;
    });
    check(error(Kind::MessageTtl), "drops every dead letter", |o| letters(o).policies.ttl_s = 1);
    check(warning(Kind::DeleteWhileInactive), "only a subscription", |o| {
        letters(o).policies.inactive = InactiveTopic::default();
    });
    check(error(Kind::DeleteWhileInactive), "handled or not", |o| {
        letters(o).policies.inactive = inactive(true, "delete_when_subscriptions_caught_up");
    });
    check(warning(Kind::RetentionTooShort), "at least 1440 min, and unlimited in size", |o| {
        letters(o).policies.retention.minutes = 1439;
    });
    check(error(Kind::PartitionsDiffer), "use another dead-letter topic", |o| {
        *letters(o) = topic(Some(2), 1440);
    });
}

#[test]
fn dead_letters_are_held_to_nothing_that_they_do_not_need() {
    let mut observed = healthy(Some(2));
    let state = letters(&mut observed);
    state.policies.retention.minutes = -1;
    state.policies.compaction_threshold_bytes = 0;
    state.policies.deduplication = false;
    state.policies.unacked_per_consumer = 50_000;
    state.partitions[0].compaction_cursor = false;
    assert_eq!(findings(&observed, &names(), &TopicSettings::default()), []);
}

/// Findings of the given history by topic, severity and what is needed.
fn history(
    history_retention: HistoryRetention,
    found_minutes: i64,
) -> Vec<(String, Severity, String)> {
    let settings = TopicSettings { history_retention, ..TopicSettings::default() };
    let mut observed = healthy(None);
    for topic in [ledger as fn(&mut Observed) -> &mut TopicState, metadata, register, letters] {
        topic(&mut observed).policies.retention.minutes = found_minutes;
    }
    let found = findings(&observed, &names(), &settings);
    assert!(
        found.iter().all(|f| matches!(
            f.kind,
            FindingKind::RetentionTooShort | FindingKind::RetentionTooLong
        ))
    );
    let short = |f: TopicFinding| {
        let topic = f.topic.rsplit('/').next().unwrap().to_owned();
        let needed = f.what.split("needed is ").nth(1).unwrap().to_owned();
        (topic, f.severity, needed)
    };
    found.into_iter().map(short).collect()
}

#[test]
fn history_is_as_long_as_asked_for_and_never_shorter_than_is_safe() {
    let day = HistoryRetention::For(Duration::from_secs(24 * 3600));
    assert_eq!(history(day, 1440), []);
    assert_eq!(history(HistoryRetention::Unlimited, -1), []);
    // A worker that reads slowly misses nothing at 240 min; less history can be read.
    for (wanted, needed) in
        [(day, "at least 1440 min"), (HistoryRetention::Unlimited, "unlimited in time and in size")]
    {
        let found = history(wanted, 240);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found.iter().all(|(_, severity, what)| {
            *severity == Severity::Warning && what.starts_with(needed)
        }));
        let (topic, severity, _) = &history(wanted, 239)[0];
        assert_eq!((topic.as_str(), *severity), ("tasks-ledger", Severity::Error));
    }
    let topics: Vec<_> = history(day, -1).into_iter().map(|(topic, ..)| topic).collect();
    assert_eq!(
        topics,
        ["tasks-ledger", "tasks-metadata", "tasks-register"],
        "dead letters may be an archive"
    );
}

#[test]
fn an_enforced_schema_matters_only_where_the_topic_has_one_and_we_name_none() {
    use FindingKind::SchemaEnforced;
    fn enforce(state: &mut TopicState) {
        state.traits = Traits { schema_enforced: true, has_schema: true, ..Traits::default() };
    }
    check(("tasks", SchemaEnforced, Severity::Warning), "refuses its tasks", |o| enforce(task(o)));
    let remedy = "DELETE /admin/v2/schemas/public/default/tasks-ledger/schema";
    check(("tasks-ledger", SchemaEnforced, Severity::Error), remedy, |o| enforce(ledger(o)));
    check(("tasks-longhaul-DLQ", SchemaEnforced, Severity::Error), "stay open", |o| {
        enforce(letters(o))
    });
    check(("tasks-register", SchemaEnforced, Severity::Error), "wait for ever", |o| {
        enforce(register(o))
    });
    let mut observed = healthy(None);
    enforce(metadata(&mut observed));
    ledger(&mut observed).traits.schema_enforced = true;
    task(&mut observed).traits.has_schema = true;
    assert_eq!(findings(&observed, &names(), &TopicSettings::default()), []);
}

#[test]
fn required_encryption_is_an_error_on_every_topic() {
    use FindingKind::EncryptionRequired;
    let remedy = "namespaces/public/default/encryptionRequired with the body false";
    let topics = [
        ("tasks", task as fn(&mut Observed) -> &mut TopicState),
        ("tasks-ledger", ledger),
        ("tasks-metadata", metadata),
        ("tasks-register", register),
        ("tasks-longhaul-DLQ", letters),
    ];
    for (name, topic) in topics {
        check((name, EncryptionRequired, Severity::Error), remedy, |o| {
            topic(o).traits.encryption_required = true;
        });
    }
}

#[test]
fn replication_to_other_clusters_is_a_warning() {
    use FindingKind::Replicated;
    let clusters = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    check(("tasks", Replicated, Severity::Warning), "the clusters here, there", |o| {
        task(o).traits.clusters = clusters(&["here", "there"]);
    });
    check(("tasks-metadata", Replicated, Severity::Warning), "do not leave their cluster", |o| {
        metadata(o).traits.clusters = clusters(&["here", "there"]);
    });
    let mut observed = healthy(None);
    task(&mut observed).traits.clusters = clusters(&["here"]);
    assert_eq!(findings(&observed, &names(), &TopicSettings::default()), []);
}

#[test]
fn many_partitions_are_not_all_listed() {
    assert_eq!(listed(&[]), None);
    assert_eq!(listed(&[3]).unwrap(), "partition 3");
    assert_eq!(listed(&[3, 5]).unwrap(), "partitions 3, 5");
    let many: Vec<usize> = (0..100).collect();
    assert_eq!(listed(&many).unwrap(), "partitions 0, 1, 2, 3, 4, 5, 6, 7 and 92 more");
}

/// The check reported that the embedded broker keeps acknowledged tasks too briefly for an outage
/// of bookies, although it has none.
#[test]
fn without_bookies_nobody_waits_for_their_outage() {
    let mut observed = healthy(None);
    observed.task.as_mut().unwrap().policies.retention = RetentionPolicies::default();
    let kinds = |observed: &Observed| -> Vec<_> {
        let found = findings(observed, &names(), &TopicSettings::default());
        found.into_iter().map(|finding| finding.kind).collect()
    };
    assert_eq!(kinds(&observed), [FindingKind::RetentionTooShort]);
    observed.bookies = None;
    assert_eq!(kinds(&observed), [FindingKind::RetentionTooShort], "it is not known");
    observed.bookies = Some(0);
    assert_eq!(kinds(&observed), []);
    observed.ledger.as_mut().unwrap().policies.retention = RetentionPolicies::default();
    assert_eq!(
        kinds(&observed),
        [FindingKind::RetentionTooShort],
        "the ledger's is another matter"
    );
}

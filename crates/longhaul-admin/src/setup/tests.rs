use super::*;
use crate::observe::PartitionState;
use crate::policy::{EffectivePolicies, InactiveTopic, RetentionPolicies};
use crate::quota::Quotas;
use crate::traits::Traits;

fn names() -> TopicNames {
    "tasks".parse().unwrap()
}

fn nothing() -> Observed {
    Observed {
        task: None,
        metadata: None,
        ledger: None,
        register: None,
        dead_letters: None,
        bookies: None,
    }
}

/// A topic as the broker creates it without a setup.
fn untouched(shape: Option<u32>) -> TopicState {
    let partition = PartitionState {
        exists: true,
        subscribed: false,
        compaction_cursor: false,
        terminated: false,
        has_entries: false,
        stored_bytes: 0,
    };
    TopicState {
        shape,
        policies: EffectivePolicies {
            source: PolicySource::Applied,
            retention: RetentionPolicies::default(),
            compaction_threshold_bytes: 0,
            deduplication: false,
            ttl_s: 0,
            unacked_per_consumer: 50_000,
            unacked_per_subscription: 200_000,
            inactive: InactiveTopic::default(),
            quotas: Quotas::default(),
            ensemble: None,
        },
        traits: Traits::default(),
        partitions: vec![partition; shape.unwrap_or(1) as usize],
    }
}

#[track_caller]
fn check(observed: &Observed, settings: &TopicSettings, expected: &[&str]) {
    let steps = plan(observed, &names(), settings).unwrap();
    let shown: Vec<_> = steps.iter().map(ToString::to_string).collect();
    let shown: Vec<_> =
        shown.iter().map(|step| step.replace("persistent://public/default/", "")).collect();
    assert_eq!(shown, expected);
}

#[test]
fn from_nothing_the_ledger_comes_first_and_the_task_topic_last() {
    let settings = TopicSettings { partitions: Some(2), ..TopicSettings::default() };
    check(
        &nothing(),
        &settings,
        &[
            "create tasks-ledger with 2 partitions",
            "set retention 1440 min, unlimited in size on tasks-ledger",
            "set message TTL 0 s on tasks-ledger",
            "set deletion while inactive off on tasks-ledger",
            "set compaction threshold 67108864 bytes on tasks-ledger",
            "set deduplication on on tasks-ledger",
            "create tasks-metadata with 2 partitions",
            "set retention 1440 min, unlimited in size on tasks-metadata",
            "set message TTL 0 s on tasks-metadata",
            "set deletion while inactive off on tasks-metadata",
            "set compaction threshold 67108864 bytes on tasks-metadata",
            "create tasks-register with no partitions",
            "set retention 1440 min, unlimited in size on tasks-register",
            "set message TTL 0 s on tasks-register",
            "set deletion while inactive off on tasks-register",
            "set compaction threshold 67108864 bytes on tasks-register",
            "set deduplication on on tasks-register",
            "create tasks-longhaul-DLQ with no partitions",
            "create the subscription `dead-letters` of tasks-longhaul-DLQ at the earliest message",
            "set retention 1440 min, unlimited in size on tasks-longhaul-DLQ",
            "set message TTL 0 s on tasks-longhaul-DLQ",
            "set deletion while inactive off on tasks-longhaul-DLQ",
            "create tasks with 2 partitions",
            "create the subscription `longhaul` of tasks at the earliest message",
            "set unacked limit per consumer 0 on tasks",
            "set unacked limit per subscription 0 on tasks",
            "set retention 60 min, unlimited in size on tasks",
            "set message TTL 0 s on tasks",
            "set deletion while inactive off on tasks",
            "set deduplication on on tasks",
        ],
    );
}

#[test]
fn an_existing_task_topic_gives_the_others_its_partitions() {
    let observed = Observed { task: Some(untouched(Some(3))), ..nothing() };
    let steps = plan(&observed, &names(), &TopicSettings::default()).unwrap();
    let mut created = Vec::new();
    for step in &steps {
        if let SetupStep::CreateTopic { partitions, .. } = step {
            created.push(*partitions);
        }
    }
    assert_eq!(created, [Some(3), Some(3), None, None]);
}

#[test]
fn growth_reaches_the_task_topic_last() {
    let all = |shape| Some(untouched(shape));
    let two = Some(2);
    let observed = Observed { task: all(two), metadata: all(two), ledger: all(two), ..nothing() };
    let settings = TopicSettings { partitions: Some(4), ..TopicSettings::default() };
    let steps = plan(&observed, &names(), &settings).unwrap();
    let mut grown = Vec::new();
    for step in &steps {
        if let SetupStep::GrowPartitions { topic, partitions: 4 } = step {
            grown.extend(topic.rsplit('/').next());
        }
    }
    assert_eq!(grown, ["tasks-ledger", "tasks-metadata", "tasks"]);
}

#[test]
fn partitions_cannot_be_taken_away_or_added_to_none() {
    let cases = [
        (Some(4), Some(2), "4 partitions, which cannot become 2 partitions"),
        (None, Some(2), "no partitions, which cannot become 2 partitions"),
    ];
    for (found, partitions, words) in cases {
        let observed = Observed { task: Some(untouched(found)), ..nothing() };
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        let refused = plan(&observed, &names(), &settings).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    let observed = Observed { ledger: Some(untouched(Some(2))), ..nothing() };
    let refused = plan(&observed, &names(), &TopicSettings::default()).unwrap_err().to_string();
    assert!(
        refused.contains("tasks-ledger has 2 partitions, which cannot become no partitions"),
        "{refused}"
    );
}

#[test]
fn a_longer_retention_is_left_alone() {
    let mut task = untouched(None);
    task.policies.retention = RetentionPolicies { minutes: -1, megabytes: -1 };
    let mut observed = Observed { task: Some(task), ..nothing() };
    let lowered = |observed: &Observed| {
        let steps = plan(observed, &names(), &TopicSettings::default()).unwrap();
        steps.iter().any(|step| step.to_string().contains("retention 60 min"))
    };
    assert!(!lowered(&observed));
    observed.task = None;
    assert!(lowered(&observed));
}

#[test]
fn a_lost_subscription_is_made_anew_only_on_demand() {
    let mut ledger = untouched(None);
    ledger.partitions[0].has_entries = true;
    let observed = Observed { task: Some(untouched(None)), ledger: Some(ledger), ..nothing() };
    let refused = plan(&observed, &names(), &TopicSettings::default());
    assert!(matches!(refused, Err(SetupError::SubscriptionLost(_))), "{refused:?}");
    let settings = TopicSettings { replay: true, ..TopicSettings::default() };
    let steps = plan(&observed, &names(), &settings).unwrap();
    assert!(steps.iter().any(|step| matches!(step, SetupStep::CreateSubscription { .. })));
}

#[test]
fn without_topic_policies_none_is_set() {
    let mut task = untouched(None);
    task.policies.source = PolicySource::Namespace;
    task.partitions[0].subscribed = true;
    let steps =
        plan(&Observed { task: Some(task), ..nothing() }, &names(), &TopicSettings::default());
    assert!(steps.unwrap().iter().all(|step| !step.to_string().ends_with("/tasks")));
}

#[test]
fn a_missing_compaction_cursor_is_made_by_setting_the_threshold_again() {
    let mut ledger = untouched(None);
    ledger.policies.compaction_threshold_bytes = 5;
    let state = Observed { ledger: Some(ledger), ..nothing() };
    let steps = plan(&state, &names(), &TopicSettings::default()).unwrap();
    let again = "set compaction threshold 5 bytes on persistent://public/default/tasks-ledger";
    assert!(steps.iter().any(|step| step.to_string() == again), "{steps:?}");
}

#[test]
fn dead_letters_get_a_subscription_unless_somebody_has_one() {
    let subscriptions = |state: TopicState| {
        let observed = Observed { dead_letters: Some(state), ..nothing() };
        let steps = plan(&observed, &names(), &TopicSettings::default()).unwrap();
        let of_letters = |step: &&SetupStep| matches!(step, SetupStep::CreateSubscription { topic, .. } if topic.ends_with("-DLQ"));
        steps.iter().filter(of_letters).count()
    };
    let mut state = untouched(None);
    assert_eq!(subscriptions(state.clone()), 1);
    state.partitions[0].subscribed = true;
    assert_eq!(subscriptions(state), 0);
}

#[test]
fn dead_letters_on_partitions_are_refused() {
    let observed = Observed { dead_letters: Some(untouched(Some(2))), ..nothing() };
    let refused = plan(&observed, &names(), &TopicSettings::default()).unwrap_err().to_string();
    let words = "tasks-longhaul-DLQ has 2 partitions, which cannot become no partitions";
    assert!(refused.contains(words), "{refused}");
}

//! Which policies the protocol needs on which topic, and what goes wrong without them. Pure.
//!
//! `setup` sets what `unmet` names, and `check` reports it, so that the two never disagree.

use super::check::{FindingKind, Severity};
use super::observe::Role;
use super::policy::{Policies, Policy, on_off};
use super::settings::TopicSettings;

/// Uncompacted bytes at which the broker compacts the ledger or the metadata by itself.
pub(super) const COMPACTION_THRESHOLD_BYTES: u64 = 64 * 1024 * 1024;

const UNLIMITED: i64 = -1;

/// A policy that is not as the protocol needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmet {
    /// The value to set.
    pub(super) policy: Policy,
    pub(super) kind: FindingKind,
    pub(super) severity: Severity,
    /// What was found, against what is needed.
    pub(super) what: String,
    pub(super) risk: &'static str,
}

/// Everything that a new topic gets.
pub(super) fn wanted(role: Role, settings: &TopicSettings) -> Vec<Policy> {
    let mut policies = vec![
        retention(role, settings),
        Policy::MessageTtl { seconds: 0 },
        Policy::DeleteWhileInactive(false),
    ];
    match role {
        Role::Task => {
            policies.insert(0, Policy::UnackedPerConsumer(0));
            policies.insert(1, Policy::UnackedPerSubscription(0));
        }
        Role::Metadata | Role::Ledger => {
            policies.push(Policy::CompactionThreshold { bytes: COMPACTION_THRESHOLD_BYTES });
        }
    }
    if role != Role::Metadata {
        policies.push(Policy::Deduplication(true));
    }
    policies
}

/// What an existing topic lacks.
pub(super) fn unmet(role: Role, found: &Policies, settings: &TopicSettings) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    unmet.extend(unmet_retention(role, found, settings));
    unmet.extend(unmet_ttl(role, found));
    unmet.extend(unmet_deletion(role, found));
    match role {
        Role::Task => {
            unmet.extend(unmet_unacked(found));
            unmet.extend(unmet_deduplication(role, found));
        }
        Role::Metadata => unmet.extend(unmet_compaction(found)),
        Role::Ledger => {
            unmet.extend(unmet_compaction(found));
            unmet.extend(unmet_deduplication(role, found));
        }
    }
    unmet
}

fn retention(role: Role, settings: &TopicSettings) -> Policy {
    match role {
        // The broker takes zero only for both.
        Role::Task => match settings.task_retention_minutes() {
            0 => Policy::Retention { minutes: 0, megabytes: 0 },
            minutes => Policy::Retention { minutes, megabytes: UNLIMITED },
        },
        Role::Metadata | Role::Ledger => {
            Policy::Retention { minutes: settings.ledger_retention_minutes(), megabytes: UNLIMITED }
        }
    }
}

fn unmet_retention(role: Role, found: &Policies, settings: &TopicSettings) -> Option<Unmet> {
    let needed_minutes = match role {
        Role::Task => settings.task_retention_minutes(),
        Role::Metadata | Role::Ledger => settings.ledger_retention_minutes(),
    };
    let retention_found = found.retention;
    let unlimited = retention_found.minutes < 0;
    let kept_minutes = if retention_found.megabytes == 0 { 0 } else { retention_found.minutes };
    // Whatever limit is reached first ends it, so a limit in size can make any time too short.
    let too_short = (!unlimited && kept_minutes < needed_minutes)
        || (retention_found.megabytes >= 0 && needed_minutes > 0);
    let too_long = match role {
        Role::Task => unlimited || kept_minutes > needed_minutes,
        Role::Metadata | Role::Ledger => unlimited,
    };
    let (kind, severity, risk) = match (role, too_short, too_long) {
        (_, false, false) => return None,
        (Role::Ledger, true, _) => {
            (FindingKind::RetentionTooShort, Severity::Error, LEDGER_TRIMMED)
        }
        (Role::Metadata, true, _) => {
            (FindingKind::RetentionTooShort, Severity::Warning, METADATA_TRIMMED)
        }
        (Role::Task, _, true) => (FindingKind::RetentionTooLong, Severity::Warning, TASKS_REMAIN),
        (Role::Task, true, false) => {
            (FindingKind::RetentionTooShort, Severity::Warning, TASKS_TRIMMED)
        }
        (Role::Metadata | Role::Ledger, false, true) => {
            (FindingKind::RetentionTooLong, Severity::Warning, LOG_GROWS)
        }
    };
    let bound = match (role, needed_minutes) {
        (Role::Task, 0) => "none".to_owned(),
        (Role::Task, minutes) => format!("{minutes} min, unlimited in size"),
        (Role::Metadata | Role::Ledger, minutes) => {
            format!("at least {minutes} min but not unlimited, and unlimited in size")
        }
    };
    let what = format!("retention is {retention_found}, needed is {bound}");
    Some(Unmet { policy: retention(role, settings), kind, severity, what, risk })
}

const LEDGER_TRIMMED: &str = "a worker that reads slowly silently skips ledger entries that the broker has already \
    deleted, and may run a finished task again";
const METADATA_TRIMMED: &str = "watchers that read slowly silently miss states of tasks";
const TASKS_REMAIN: &str = "acknowledged tasks outlive their ledger entries: they run again if the subscription is ever \
    reset or made anew";
const TASKS_TRIMMED: &str = "after an outage of bookies, brokers of 2025 may stop delivering from such a topic until \
    the workers reconnect (apache/pulsar#25174)";
const LOG_GROWS: &str = "the disk fills up: the broker keeps all that compaction has replaced";

fn unmet_ttl(role: Role, found: &Policies) -> Option<Unmet> {
    if found.ttl_s == 0 {
        return None;
    }
    let (severity, risk) = match role {
        Role::Task => (
            Severity::Error,
            "the broker drops every task that was not finished in that time, and nobody is told",
        ),
        Role::Metadata | Role::Ledger => (
            Severity::Warning,
            "the broker acknowledges old entries in the name of durable readers, which then never see them",
        ),
    };
    let what = format!("message TTL is {} s, needed is 0 (off)", found.ttl_s);
    let policy = Policy::MessageTtl { seconds: 0 };
    Some(Unmet { policy, kind: FindingKind::MessageTtl, severity, what, risk })
}

fn unmet_deletion(role: Role, found: &Policies) -> Option<Unmet> {
    let deletes = found.inactive.delete_while_inactive;
    let (severity, risk) = match role {
        // A durable subscription keeps it, in all modes but one.
        Role::Task if !found.inactive.ignores_subscriptions() => return None,
        Role::Task => (
            Severity::Error,
            "the broker deletes the task topic with its subscription as soon as it is idle, and tasks \
             submitted before the next worker comes are lost",
        ),
        Role::Ledger => (
            Severity::Error,
            "the broker may delete the ledger while it is idle, and finished tasks may run again",
        ),
        Role::Metadata => (
            Severity::Warning,
            "the broker may delete the metadata while it is idle, and results are lost",
        ),
    };
    if !deletes {
        return None;
    }
    let what = format!("deletion while inactive is {}, needed is off", on_off(deletes));
    let policy = Policy::DeleteWhileInactive(false);
    Some(Unmet { policy, kind: FindingKind::DeleteWhileInactive, severity, what, risk })
}

fn unmet_unacked(found: &Policies) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    let mut limit = |found: u64, whom: &str, policy: Policy| {
        if found > 0 {
            unmet.push(Unmet {
                policy,
                kind: FindingKind::UnackedLimit,
                severity: Severity::Error,
                what: format!("unacked limit per {whom} is {found}, needed is 0 (off)"),
                risk: "running and waiting tasks count against the limit: when they reach it, no new task is \
                       delivered, and raising it later does not help consumers that are already blocked",
            });
        }
    };
    limit(found.unacked_per_consumer, "consumer", Policy::UnackedPerConsumer(0));
    limit(found.unacked_per_subscription, "subscription", Policy::UnackedPerSubscription(0));
    unmet
}

fn unmet_compaction(found: &Policies) -> Option<Unmet> {
    (found.compaction_threshold_bytes == 0).then(|| Unmet {
        policy: Policy::CompactionThreshold { bytes: COMPACTION_THRESHOLD_BYTES },
        kind: FindingKind::CompactionThreshold,
        severity: Severity::Error,
        what: format!("compaction threshold is 0 (off), needed is {COMPACTION_THRESHOLD_BYTES} bytes"),
        risk: "the broker never compacts the topic, and deletes what is older than the retention, unfinished tasks included",
    })
}

fn unmet_deduplication(role: Role, found: &Policies) -> Option<Unmet> {
    let (severity, risk) = match role {
        Role::Task => (
            Severity::Warning,
            "a producer sends again what has no receipt when its connection breaks: one submit may become two tasks",
        ),
        Role::Ledger | Role::Metadata => (
            Severity::Error,
            "an entry that a client sends twice can overrule what lies between, and a task may run twice or lose its outcome",
        ),
    };
    (!found.deduplication).then(|| Unmet {
        policy: Policy::Deduplication(true),
        kind: FindingKind::DeduplicationOff,
        severity,
        what: "deduplication is off, needed is on".to_owned(),
        risk,
    })
}

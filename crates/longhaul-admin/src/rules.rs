//! The policies that the protocol needs on each topic, and the risks without them. Pure.
//!
//! `setup` sets the policies that `unmet` returns and `check` reports them, so the two always
//! agree.

use super::check::{FindingKind, Severity};
use super::observe::TopicRole;
use super::policy::{EffectivePolicies, Policy, RetentionPolicies, UNLIMITED, on_off};
use super::quota;
use super::settings::TopicSettings;

/// Uncompacted bytes at which the broker compacts the ledger or the metadata by itself. It is
/// fixed: half the compacted size would save work on a ledger above 128 MiB, but that size changes
/// constantly, and seals keep it far below.
pub(super) const COMPACTION_THRESHOLD_BYTES: u64 = 64 * 1024 * 1024;

/// A policy that does not meet the protocol's needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmet {
    /// The value to set.
    pub(super) policy: Policy,
    pub(super) kind: FindingKind,
    pub(super) severity: Severity,
    /// The value found and the value needed.
    pub(super) what: String,
    pub(super) risk: &'static str,
}

/// All policies that a new topic gets.
pub(super) fn wanted(role: TopicRole, settings: &TopicSettings) -> Vec<Policy> {
    let mut policies = vec![
        retention(role, settings),
        Policy::MessageTtl { seconds: 0 },
        Policy::DeleteWhileInactive(false),
    ];
    match role {
        TopicRole::Task => {
            policies.insert(0, Policy::UnackedPerConsumer(0));
            policies.insert(1, Policy::UnackedPerSubscription(0));
        }
        TopicRole::Metadata | TopicRole::Ledger | TopicRole::Register => {
            policies.push(Policy::CompactionThreshold { bytes: COMPACTION_THRESHOLD_BYTES });
        }
        TopicRole::DeadLetters => {}
    }
    if matches!(role, TopicRole::Task | TopicRole::Ledger | TopicRole::Register) {
        policies.push(Policy::Deduplication(true));
    }
    policies
}

/// Policies that an existing topic lacks. `bookies` is the number of bookies, if known.
pub(super) fn unmet(
    role: TopicRole,
    found: &EffectivePolicies,
    settings: &TopicSettings,
    bookies: Option<u32>,
) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    // Acknowledged tasks are kept only in case bookies fail; the embedded broker reports that it
    // has none.
    let is_idle = |unmet: &Unmet| {
        role == TopicRole::Task
            && bookies == Some(0)
            && unmet.kind == FindingKind::RetentionTooShort
    };
    unmet.extend(unmet_retention(role, found, settings).filter(|unmet| !is_idle(unmet)));
    unmet.extend(unmet_ttl(role, found));
    unmet.extend(unmet_deletion(role, found));
    unmet.extend(quota::unmet(role, &found.quotas));
    match role {
        TopicRole::Task => {
            unmet.extend(unmet_unacked(found));
            unmet.extend(unmet_deduplication(role, found));
        }
        TopicRole::Metadata => unmet.extend(unmet_compaction(found)),
        TopicRole::Ledger | TopicRole::Register => {
            unmet.extend(unmet_compaction(found));
            unmet.extend(unmet_deduplication(role, found));
        }
        TopicRole::DeadLetters => {}
    }
    unmet
}

fn retention(role: TopicRole, settings: &TopicSettings) -> Policy {
    match wanted_minutes(role, settings) {
        // The broker accepts zero only for both values.
        0 => Policy::Retention { minutes: 0, megabytes: 0 },
        minutes => Policy::Retention { minutes, megabytes: UNLIMITED },
    }
}

fn wanted_minutes(role: TopicRole, settings: &TopicSettings) -> i64 {
    match role {
        TopicRole::Task => settings.task_retention_minutes(),
        TopicRole::Metadata | TopicRole::Ledger | TopicRole::Register | TopicRole::DeadLetters => {
            settings.history_minutes()
        }
    }
}

fn unmet_retention(
    role: TopicRole,
    found: &EffectivePolicies,
    settings: &TopicSettings,
) -> Option<Unmet> {
    let RetentionPolicies { minutes, megabytes } = found.retention;
    let kept = if megabytes == 0 { 0 } else { minutes };
    // The first limit reached applies, so a limit in size can make any time too short.
    let below = |bound: i64| {
        let shorter = kept >= 0 && (bound < 0 || kept < bound);
        shorter || (megabytes >= 0 && bound != 0)
    };
    let wanted = wanted_minutes(role, settings);
    let too_long = match role {
        TopicRole::Task => kept < 0 || kept > wanted,
        TopicRole::Metadata | TopicRole::Ledger | TopicRole::Register => kept < 0 && wanted >= 0,
        // Dead letters are few, and may be an archive.
        TopicRole::DeadLetters => false,
    };
    let unsafe_for_readers = below(settings.least_history_minutes());
    let (kind, severity, risk) = match (role, below(wanted), too_long) {
        (_, false, false) => return None,
        (TopicRole::Task, _, true) => {
            (FindingKind::RetentionTooLong, Severity::Warning, TASKS_REMAIN)
        }
        (TopicRole::Task, true, false) => {
            (FindingKind::RetentionTooShort, Severity::Warning, TASKS_TRIMMED)
        }
        (_, false, true) => (FindingKind::RetentionTooLong, Severity::Warning, LOG_GROWS),
        (TopicRole::DeadLetters, true, _) => {
            (FindingKind::RetentionTooShort, Severity::Warning, LETTERS_TRIMMED)
        }
        (_, true, _) if !unsafe_for_readers => {
            (FindingKind::RetentionTooShort, Severity::Warning, HISTORY_TRIMMED)
        }
        (TopicRole::Ledger, true, _) => {
            (FindingKind::RetentionTooShort, Severity::Error, LEDGER_TRIMMED)
        }
        (TopicRole::Register, true, _) => {
            (FindingKind::RetentionTooShort, Severity::Error, REGISTER_TRIMMED)
        }
        (TopicRole::Metadata, true, _) => {
            (FindingKind::RetentionTooShort, Severity::Warning, METADATA_TRIMMED)
        }
    };
    let bound = match (role, wanted) {
        (_, UNLIMITED) => "unlimited in time and in size".to_owned(),
        (TopicRole::Task, 0) => "none".to_owned(),
        (TopicRole::Task, minutes) => format!("{minutes} min, unlimited in size"),
        (TopicRole::Metadata | TopicRole::Ledger | TopicRole::Register, minutes) => {
            format!("at least {minutes} min but not unlimited, and unlimited in size")
        }
        (TopicRole::DeadLetters, minutes) => {
            format!("at least {minutes} min, and unlimited in size")
        }
    };
    let what = format!("retention is {}, needed is {bound}", found.retention);
    Some(Unmet { policy: retention(role, settings), kind, severity, what, risk })
}

const LEDGER_TRIMMED: &str = "a worker that reads slowly silently skips ledger entries that the broker has already \
    deleted, and may run a finished task again";
const REGISTER_TRIMMED: &str = "a worker or client that reads slowly silently skips entries that the broker has already \
    deleted, and may run a second task of one key";
const METADATA_TRIMMED: &str = "watchers that read slowly silently miss states of tasks";
const TASKS_REMAIN: &str = "acknowledged tasks outlive their ledger entries: they run again if the \
    subscription is ever reset or created again";
const TASKS_TRIMMED: &str = "after an outage of bookies, brokers of 2025 may stop delivering from such a topic until \
    the workers reconnect (apache/pulsar#25174)";
const HISTORY_TRIMMED: &str = "the history of tasks goes back less far than the settings ask";
const LETTERS_TRIMMED: &str = "dead letters are deleted as soon as they are handled, and all of \
    them if their subscription is deleted";
const LOG_GROWS: &str =
    "the disk fills up: the broker keeps all messages that compaction has replaced";

fn unmet_ttl(role: TopicRole, found: &EffectivePolicies) -> Option<Unmet> {
    if found.ttl_s == 0 {
        return None;
    }
    let (severity, risk) = match role {
        TopicRole::Task => (
            Severity::Error,
            "the broker drops every task that is not finished in that time, without notice",
        ),
        TopicRole::DeadLetters => (
            Severity::Error,
            "the broker drops every dead letter that is not handled in that time, without notice",
        ),
        TopicRole::Metadata | TopicRole::Ledger | TopicRole::Register => (
            Severity::Warning,
            "the broker acknowledges old entries for durable readers, which then never see them",
        ),
    };
    let what = format!("message TTL is {} s, needed is 0 (off)", found.ttl_s);
    let policy = Policy::MessageTtl { seconds: 0 };
    Some(Unmet { policy, kind: FindingKind::MessageTtl, severity, what, risk })
}

fn unmet_deletion(role: TopicRole, found: &EffectivePolicies) -> Option<Unmet> {
    let deletes = found.inactive.delete_while_inactive;
    let (severity, risk) = match role {
        // A durable subscription keeps the topic in all modes but one.
        TopicRole::Task if !found.inactive.ignores_subscriptions() => return None,
        TopicRole::Task => (
            Severity::Error,
            "the broker deletes the task topic with its subscription as soon as it is idle, and \
             tasks submitted before the next worker starts are lost",
        ),
        TopicRole::Ledger => (
            Severity::Error,
            "the broker may delete the ledger while it is idle, and finished tasks may run again",
        ),
        TopicRole::Register => (
            Severity::Error,
            "the broker may delete the register while it is idle, and a second task of one key may run",
        ),
        TopicRole::DeadLetters if found.inactive.ignores_subscriptions() => (
            Severity::Error,
            "the broker deletes the dead letters, handled or not, as soon as the topic is idle and its subscriptions have \
             delivered everything",
        ),
        TopicRole::DeadLetters => (
            Severity::Warning,
            "only a subscription keeps the broker from deleting the idle topic with all dead letters",
        ),
        TopicRole::Metadata => (
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

fn unmet_unacked(found: &EffectivePolicies) -> Vec<Unmet> {
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

fn unmet_compaction(found: &EffectivePolicies) -> Option<Unmet> {
    (found.compaction_threshold_bytes == 0).then(|| Unmet {
        policy: Policy::CompactionThreshold { bytes: COMPACTION_THRESHOLD_BYTES },
        kind: FindingKind::CompactionThreshold,
        severity: Severity::Error,
        what: format!("compaction threshold is 0 (off), needed is {COMPACTION_THRESHOLD_BYTES} bytes"),
        risk: "the broker never compacts the topic, and deletes entries older than the retention, even of unfinished tasks",
    })
}

fn unmet_deduplication(role: TopicRole, found: &EffectivePolicies) -> Option<Unmet> {
    let (severity, risk) = match role {
        TopicRole::Task => (
            Severity::Warning,
            "a producer whose connection breaks resends messages without a receipt: one submit may become two tasks",
        ),
        // Workers never send an entry twice, so this guards against other clients.
        TopicRole::Ledger | TopicRole::Register | TopicRole::Metadata | TopicRole::DeadLetters => (
            Severity::Warning,
            "workers send no entry twice, but an entry that another client sends twice can \
             overrule the entries in between, and a task may run twice or lose its outcome",
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

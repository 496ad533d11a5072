//! Backlog quotas: what the broker does when a subscription has too many or too old unread
//! messages. Pure.
//!
//! A namespace's quota applies to its topics too. A single stalled reader then stops every worker,
//! or the broker skips unread messages.

use super::check::{FindingKind, Severity};
use super::observe::TopicRole;
use super::policy::Policy;
use super::rules::Unmet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of a backlog quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Bytes that the slowest subscription has not read.
    Size,
    /// Age in seconds of the oldest unacknowledged message.
    Age,
}

/// The broker's action when a quota is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuotaAction {
    /// Producers wait.
    ProducerRequestHold,
    /// Producers are refused.
    ProducerException,
    /// The slowest subscription loses its oldest messages.
    ConsumerBacklogEviction,
    /// An action that this version does not know.
    #[serde(other)]
    Unknown,
}

impl QuotaKind {
    /// The admin API's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Size => "destination_storage",
            Self::Age => "message_age",
        }
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "backlog quota by size",
            Self::Age => "backlog quota by age",
        })
    }
}

/// A quota as brokers write it, with both limits. Brokers apply only the limit of the quota's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Quota {
    #[serde(default)]
    limit_size: Option<i64>,
    #[serde(default)]
    limit_time: Option<i64>,
    policy: QuotaAction,
}

/// The quotas in force on a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Quotas {
    #[serde(default, rename = "destination_storage")]
    size: Option<Quota>,
    #[serde(default, rename = "message_age")]
    age: Option<Quota>,
}

impl Quotas {
    /// The limits in force: kind, value, and the broker's action.
    fn limits(&self) -> impl Iterator<Item = (QuotaKind, i64, QuotaAction)> {
        // As the broker judges: a size of 0 is a limit, an age of 0 is not.
        let size =
            self.size.and_then(|quota| Some((QuotaKind::Size, quota.limit_size?, quota.policy)));
        let age =
            self.age.and_then(|quota| Some((QuotaKind::Age, quota.limit_time?, quota.policy)));
        let size = size.filter(|(_, limit, _)| *limit >= 0);
        size.into_iter().chain(age.filter(|(_, limit, _)| *limit > 0))
    }
}

/// The quotas of a topic that violate the protocol's needs.
pub(super) fn unmet(role: TopicRole, found: &Quotas) -> Vec<Unmet> {
    let unmet = found.limits().filter_map(|(kind, limit, action)| {
        let (severity, risk) = risk(role, kind, action)?;
        let unit = match kind {
            QuotaKind::Size => "bytes",
            QuotaKind::Age => "s",
        };
        let does = match action {
            QuotaAction::ProducerRequestHold => "holds producers",
            QuotaAction::ProducerException => "refuses producers",
            QuotaAction::ConsumerBacklogEviction => "skips unread messages",
            QuotaAction::Unknown => "takes an action unknown to this version",
        };
        let what = format!(
            "the {kind} is {limit} {unit}, at which the broker {does}, needed is none (-1)"
        );
        let (limit, action) = (None, QuotaAction::ProducerRequestHold);
        let policy = Policy::BacklogQuota { kind, limit, action };
        Some(Unmet { policy, kind: FindingKind::BacklogQuota, severity, what, risk })
    });
    unmet.collect()
}

/// The risk of such a quota; `None` if it is harmless.
const fn risk(
    role: TopicRole,
    kind: QuotaKind,
    action: QuotaAction,
) -> Option<(Severity, &'static str)> {
    let evicts = matches!(action, QuotaAction::ConsumerBacklogEviction);
    Some(match (role, evicts) {
        (TopicRole::Task, true) => (
            Severity::Error,
            "the broker drops the oldest tasks, even running ones, without notice",
        ),
        (TopicRole::DeadLetters, true) => {
            (Severity::Error, "the broker drops the oldest unhandled dead letters without notice")
        }
        (TopicRole::Ledger | TopicRole::Register, true) => (
            Severity::Error,
            "the broker also advances its compaction cursor and may delete entries that were never \
             compacted: finished tasks may run again",
        ),
        (TopicRole::Metadata, true) => (
            Severity::Warning,
            "the broker skips states of tasks that a subscription has not read, and may delete some that were never compacted",
        ),
        (TopicRole::Task, false) => match kind {
            // Submitters wait while too many tasks are open, which is the purpose of such a limit.
            QuotaKind::Size => return None,
            QuotaKind::Age => (
                Severity::Warning,
                "no task can be submitted while one is older than that, even if it is scheduled or running",
            ),
        },
        (TopicRole::DeadLetters, false) => (
            Severity::Warning,
            "when unhandled dead letters reach the limit, more are refused, and tasks that failed for good stay open",
        ),
        (TopicRole::Ledger | TopicRole::Register, false) => (
            Severity::Warning,
            "when the backlog of an idle subscription or of compaction reaches the limit, workers cannot begin or end tasks",
        ),
        (TopicRole::Metadata, false) => (
            Severity::Warning,
            "when the backlog of an idle subscription reaches the limit, workers cannot show \
             states, and finished tasks are not acknowledged",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(role: TopicRole, quotas: &str) -> Vec<(Severity, String, Policy)> {
        let unmet = unmet(role, &serde_json::from_str(quotas).unwrap());
        unmet.into_iter().map(|finding| (finding.severity, finding.what, finding.policy)).collect()
    }

    const ROLES: [TopicRole; 5] = [
        TopicRole::Task,
        TopicRole::Metadata,
        TopicRole::Ledger,
        TopicRole::Register,
        TopicRole::DeadLetters,
    ];

    /// Quotas without a limit: as Pulsar 4 and a bare broker answer for a topic, and as a later
    /// version may.
    #[test]
    fn without_a_limit_there_is_nothing_to_find() {
        let none = r#"{"limit":-1,"limitSize":-1,"limitTime":-1,"policy":"producer_request_hold"}"#;
        let no_age = r#"{"limitSize":9,"limitTime":0,"policy":"consumer_backlog_eviction"}"#;
        let both = format!(r#"{{"destination_storage":{none},"message_age":{no_age}}}"#);
        let later =
            r#"{"message_count":{"limitCount":7,"policy":"new"},"destination_storage":null}"#;
        for (role, quotas) in
            ROLES.iter().flat_map(|role| [(role, "{}"), (role, &both), (role, later)])
        {
            assert_eq!(found(*role, quotas), [], "{role:?} {quotas}");
        }
    }

    #[test]
    fn a_quota_is_found_with_what_the_broker_does_and_taken_away() {
        let quotas = r#"{"destination_storage":{"limitSize":0,"limitTime":-1,"policy":"producer_exception"},
            "message_age":{"limitSize":-1,"limitTime":60,"policy":"consumer_backlog_eviction"}}"#;
        let action = QuotaAction::ProducerRequestHold;
        let none = |kind| Policy::BacklogQuota { kind, limit: None, action };
        let size = "the backlog quota by size is 0 bytes, at which the broker refuses producers, needed is none (-1)";
        let age = "the backlog quota by age is 60 s, at which the broker skips unread messages, needed is none (-1)";
        for role in ROLES {
            let found = found(role, quotas);
            let severities = match role {
                TopicRole::Task => vec![Severity::Error],
                TopicRole::Metadata => vec![Severity::Warning, Severity::Warning],
                TopicRole::Ledger | TopicRole::Register | TopicRole::DeadLetters => {
                    vec![Severity::Warning, Severity::Error]
                }
            };
            let kinds: Vec<_> = found.iter().map(|finding| finding.0).collect();
            assert_eq!(kinds, severities, "{role:?}");
            let told: Vec<_> = found.into_iter().map(|finding| (finding.1, finding.2)).collect();
            let expected =
                [(size.to_owned(), none(QuotaKind::Size)), (age.to_owned(), none(QuotaKind::Age))];
            assert_eq!(told, expected[2 - told.len()..], "{role:?}");
        }
    }

    #[test]
    fn submitters_may_be_held_by_size_but_not_by_age() {
        let hold = |kind: &str, limits: &str| {
            let quotas = format!(r#"{{"{kind}":{{{limits},"policy":"producer_request_hold"}}}}"#);
            found(TopicRole::Task, &quotas).len()
        };
        assert_eq!(hold("destination_storage", r#""limitSize":9,"limitTime":-1"#), 0);
        assert_eq!(hold("message_age", r#""limitSize":-1,"limitTime":9"#), 1);
    }
}

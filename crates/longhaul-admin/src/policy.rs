//! The topic policies that longhaul sets and reads.

use super::admin::Admin;
use super::http::{AdminError, AdminErrorKind};
use super::quota::{QuotaAction, QuotaKind, Quotas};
use longhaul_core::topics::TopicParts;
use serde::Deserialize;
use serde_json::json;
use std::fmt;

/// A policy of a topic, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Time and size limits for messages that every subscription has acknowledged. -1 is unlimited.
    Retention {
        /// Time in minutes.
        minutes: i64,
        /// Size in MiB.
        megabytes: i64,
    },
    /// Size of the uncompacted part at which the broker compacts by itself; 0 means never.
    CompactionThreshold {
        /// Size in bytes.
        bytes: u64,
    },
    /// Whether the broker drops messages that a producer sends twice.
    Deduplication(bool),
    /// Time after which the broker itself acknowledges a message; 0 means never.
    MessageTtl {
        /// Time in seconds.
        seconds: u64,
    },
    /// Unacknowledged messages at which a consumer receives no more; 0 is unlimited.
    UnackedPerConsumer(u64),
    /// Unacknowledged messages at which a subscription receives no more; 0 is unlimited.
    UnackedPerSubscription(u64),
    /// Whether the broker deletes an unused topic.
    DeleteWhileInactive(bool),
    /// Unread messages of a subscription above which the broker acts.
    BacklogQuota {
        /// Kind of the limit.
        kind: QuotaKind,
        /// Limit in bytes or seconds; `None` is unlimited.
        limit: Option<u64>,
        /// The broker's action.
        action: QuotaAction,
    },
}

impl Policy {
    /// The last segment of the admin API's path.
    pub(super) const fn segment(&self) -> &'static str {
        match self {
            Self::Retention { .. } => RETENTION,
            Self::CompactionThreshold { .. } => COMPACTION_THRESHOLD,
            Self::Deduplication(_) => DEDUPLICATION,
            Self::MessageTtl { .. } => MESSAGE_TTL,
            Self::UnackedPerConsumer(_) => UNACKED_PER_CONSUMER,
            Self::UnackedPerSubscription(_) => UNACKED_PER_SUBSCRIPTION,
            Self::DeleteWhileInactive(_) => INACTIVE_TOPIC,
            Self::BacklogQuota { .. } => BACKLOG_QUOTA,
        }
    }

    pub(super) fn query(&self) -> Option<String> {
        match self {
            Self::MessageTtl { seconds } => Some(format!("{MESSAGE_TTL}={seconds}")),
            Self::BacklogQuota { kind, .. } => Some(format!("{BACKLOG_QUOTA}Type={}", kind.name())),
            Self::Retention { .. }
            | Self::CompactionThreshold { .. }
            | Self::Deduplication(_)
            | Self::UnackedPerConsumer(_)
            | Self::UnackedPerSubscription(_)
            | Self::DeleteWhileInactive(_) => None,
        }
    }

    pub(super) fn body(&self) -> Option<String> {
        Some(match self {
            Self::MessageTtl { .. } => return None,
            Self::Retention { minutes, megabytes } => {
                json!({ "retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes })
                    .to_string()
            }
            Self::CompactionThreshold { bytes: number }
            | Self::UnackedPerConsumer(number)
            | Self::UnackedPerSubscription(number) => number.to_string(),
            Self::Deduplication(enabled) => enabled.to_string(),
            Self::DeleteWhileInactive(enabled) => json!({
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": enabled,
            })
            .to_string(),
            Self::BacklogQuota { kind, limit, action } => {
                let limit = limit.map_or(UNLIMITED, u64::cast_signed);
                let (size, time) = match kind {
                    QuotaKind::Size => (limit, UNLIMITED),
                    QuotaKind::Age => (UNLIMITED, limit),
                };
                json!({ "limitSize": size, "limitTime": time, "policy": action }).to_string()
            }
        })
    }

    /// The call that sets the policy for all topics of a namespace, as one would type it.
    pub(super) fn namespace_request(&self, topic: TopicParts<'_>) -> String {
        let (method, segment) = match self {
            Self::Retention { .. } => ("POST", RETENTION),
            Self::CompactionThreshold { .. } => ("PUT", COMPACTION_THRESHOLD),
            Self::Deduplication(_) => ("POST", "deduplication"),
            Self::MessageTtl { .. } => ("POST", MESSAGE_TTL),
            Self::UnackedPerConsumer(_) => ("POST", "maxUnackedMessagesPerConsumer"),
            Self::UnackedPerSubscription(_) => ("POST", "maxUnackedMessagesPerSubscription"),
            Self::DeleteWhileInactive(_) => ("POST", INACTIVE_TOPIC),
            Self::BacklogQuota { .. } => ("POST", BACKLOG_QUOTA),
        };
        let (query, body) = if let Self::MessageTtl { seconds } = self {
            (None, seconds.to_string())
        } else {
            (self.query(), self.body().unwrap_or_default())
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let TopicParts { tenant, namespace, .. } = topic;
        format!(
            "{method} /admin/v2/namespaces/{tenant}/{namespace}/{segment}{query} with the body {body}"
        )
    }

    /// The call that sets the policy, as one would type it.
    pub(super) fn request(&self, topic: TopicParts<'_>) -> String {
        let TopicParts { tenant, namespace, local } = topic;
        let query = self.query().map(|query| format!("?{query}")).unwrap_or_default();
        let body = self.body().map(|body| format!(" with the body {body}")).unwrap_or_default();
        let segment = self.segment();
        format!("POST /admin/v2/persistent/{tenant}/{namespace}/{local}/{segment}{query}{body}")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retention { minutes, megabytes } => {
                write!(
                    f,
                    "retention {}",
                    RetentionPolicies { minutes: *minutes, megabytes: *megabytes }
                )
            }
            Self::CompactionThreshold { bytes } => write!(f, "compaction threshold {bytes} bytes"),
            Self::Deduplication(enabled) => write!(f, "deduplication {}", on_off(*enabled)),
            Self::MessageTtl { seconds } => write!(f, "message TTL {seconds} s"),
            Self::UnackedPerConsumer(max) => write!(f, "unacked limit per consumer {max}"),
            Self::UnackedPerSubscription(max) => write!(f, "unacked limit per subscription {max}"),
            Self::DeleteWhileInactive(enabled) => {
                write!(f, "deletion while inactive {}", on_off(*enabled))
            }
            Self::BacklogQuota { kind, limit: None, .. } => write!(f, "{kind} none"),
            Self::BacklogQuota { kind, limit: Some(limit), .. } => write!(f, "{kind} {limit}"),
        }
    }
}

pub(super) const fn on_off(enabled: bool) -> &'static str {
    if enabled { "on" } else { "off" }
}

/// How long messages are kept that every subscription has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct RetentionPolicies {
    #[serde(rename = "retentionTimeInMinutes")]
    pub(super) minutes: i64,
    #[serde(rename = "retentionSizeInMB")]
    pub(super) megabytes: i64,
}

impl fmt::Display for RetentionPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.minutes, self.megabytes) {
            (0, _) | (_, 0) => return f.write_str("none"),
            (minutes, _) if minutes < 0 => f.write_str("unlimited in time")?,
            (minutes, _) => write!(f, "{minutes} min")?,
        }
        match self.megabytes {
            megabytes if megabytes < 0 => f.write_str(", unlimited in size"),
            megabytes => write!(f, ", {megabytes} MiB"),
        }
    }
}

/// When the broker deletes an unused topic.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InactiveTopic {
    pub(super) delete_while_inactive: bool,
    #[serde(default)]
    inactive_topic_delete_mode: String,
}

impl InactiveTopic {
    /// Whether the broker deletes even a topic with subscriptions, once they have read everything.
    pub(super) fn ignores_subscriptions(&self) -> bool {
        self.inactive_topic_delete_mode == "delete_when_subscriptions_caught_up"
    }
}

impl Default for InactiveTopic {
    /// The brokers' defaults.
    fn default() -> Self {
        let mode = "delete_when_no_subscriptions".to_owned();
        Self { delete_while_inactive: true, inactive_topic_delete_mode: mode }
    }
}

/// Source of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicySource {
    /// The effective values of topic, namespace and broker together.
    Applied,
    /// The namespace alone, because the broker has no topic policies. For values that the namespace
    /// does not set, no call shows the broker's default; Pulsar's default is assumed.
    Namespace,
}

/// The effective policies of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EffectivePolicies {
    pub(super) source: PolicySource,
    pub(super) retention: RetentionPolicies,
    pub(super) compaction_threshold_bytes: u64,
    pub(super) deduplication: bool,
    pub(super) ttl_s: u64,
    pub(super) unacked_per_consumer: u64,
    pub(super) unacked_per_subscription: u64,
    pub(super) inactive: InactiveTopic,
    pub(super) quotas: Quotas,
    /// Bookies that store the entries of a ledger; `None` if unknown.
    pub(super) ensemble: Option<u32>,
}

const RETENTION: &str = "retention";
const COMPACTION_THRESHOLD: &str = "compactionThreshold";
const DEDUPLICATION: &str = "deduplicationEnabled";
const MESSAGE_TTL: &str = "messageTTL";
const UNACKED_PER_CONSUMER: &str = "maxUnackedMessagesOnConsumer";
const UNACKED_PER_SUBSCRIPTION: &str = "maxUnackedMessagesOnSubscription";
const INACTIVE_TOPIC: &str = "inactiveTopicPolicies";
const BACKLOG_QUOTA: &str = "backlogQuota";
const BACKLOG_QUOTAS: &str = "backlogQuotaMap";
const PERSISTENCE: &str = "persistence";

/// The value of a limit that does not apply.
pub(super) const UNLIMITED: i64 = -1;

/// Pulsar's default limits.
const UNACKED_PER_CONSUMER_DEFAULT: u64 = 50_000;
const UNACKED_PER_SUBSCRIPTION_DEFAULT: u64 = 200_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Persistence {
    bookkeeper_ensemble: u32,
}

/// The needed part of the policies of a topic or of its namespace; the broker leaves out unset
/// ones.
#[derive(Deserialize)]
struct FoundPolicies {
    retention_policies: Option<RetentionPolicies>,
    compaction_threshold: Option<u64>,
    #[serde(rename = "deduplicationEnabled")]
    deduplication_enabled: Option<bool>,
    message_ttl_in_seconds: Option<u64>,
    max_unacked_messages_per_consumer: Option<u64>,
    max_unacked_messages_per_subscription: Option<u64>,
    inactive_topic_policies: Option<InactiveTopic>,
    backlog_quota_map: Option<Quotas>,
}

impl EffectivePolicies {
    /// Reads the effective policies of an existing topic. `topic` is the full name without a
    /// partition.
    pub(super) async fn read(admin: &Admin, topic: &str) -> Result<Self, AdminError> {
        match Self::read_applied(admin, topic).await {
            Err(e) if e.kind == AdminErrorKind::PoliciesDisabled => {
                let found = admin.namespace_policies(topic).await?;
                Ok(Self::new(PolicySource::Namespace, found, None))
            }
            other => other,
        }
    }

    async fn read_applied(admin: &Admin, topic: &str) -> Result<Self, AdminError> {
        let found = FoundPolicies {
            retention_policies: admin.policy(topic, RETENTION).await?,
            compaction_threshold: admin.policy(topic, COMPACTION_THRESHOLD).await?,
            deduplication_enabled: admin.policy(topic, DEDUPLICATION).await?,
            message_ttl_in_seconds: admin.policy(topic, MESSAGE_TTL).await?,
            max_unacked_messages_per_consumer: admin.policy(topic, UNACKED_PER_CONSUMER).await?,
            max_unacked_messages_per_subscription: admin
                .policy(topic, UNACKED_PER_SUBSCRIPTION)
                .await?,
            inactive_topic_policies: admin.policy(topic, INACTIVE_TOPIC).await?,
            backlog_quota_map: admin.policy(topic, BACKLOG_QUOTAS).await?,
        };
        // The value only serves a warning, and a token may not be allowed to read it.
        let persistence: Option<Persistence> =
            admin.policy(topic, PERSISTENCE).await.unwrap_or_default();
        let ensemble = persistence.map(|persistence| persistence.bookkeeper_ensemble);
        Ok(Self::new(PolicySource::Applied, found, ensemble))
    }

    fn new(source: PolicySource, found: FoundPolicies, ensemble: Option<u32>) -> Self {
        Self {
            source,
            retention: found.retention_policies.unwrap_or_default(),
            compaction_threshold_bytes: found.compaction_threshold.unwrap_or_default(),
            deduplication: found.deduplication_enabled.unwrap_or_default(),
            ttl_s: found.message_ttl_in_seconds.unwrap_or_default(),
            unacked_per_consumer: found
                .max_unacked_messages_per_consumer
                .unwrap_or(UNACKED_PER_CONSUMER_DEFAULT),
            unacked_per_subscription: found
                .max_unacked_messages_per_subscription
                .unwrap_or(UNACKED_PER_SUBSCRIPTION_DEFAULT),
            inactive: found.inactive_topic_policies.unwrap_or_default(),
            quotas: found.backlog_quota_map.unwrap_or_default(),
            ensemble,
        }
    }
}

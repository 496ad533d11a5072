//! The settings of a queue.

use crate::new_task::RetryBody;
use crate::values::Length;
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::settings::{DeadLetterSettings, Limit, QueueOrder, QueueSettings, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The settings of a queue: limits over all its workers, and defaults for its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = QueueSettings)]
pub struct SettingsBody {
    /// While this is `true`, no task begins. Running tasks continue.
    pub paused: bool,
    /// The most tasks that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// The most tasks that begin in a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBody>,
    /// The limit for the tasks of each limit key that is not in `keys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_key: Option<LimitBody>,
    /// The limits for the tasks of these limit keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, LimitBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_progress_timeout: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Tasks expire this long after their submission: no attempt begins later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<DeadLettersBody>,
    /// The order in which tasks run; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderBody>,
    /// The purpose of the queue: at most 1,024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Up to 8 URLs that a gateway calls at the end of each task: absolute, with http or https. The gateway must allow their origins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
}

/// The order in which the tasks of a queue run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = QueueOrder)]
pub enum OrderBody {
    /// Tasks with the same order key run one at a time, in the order of their submission.
    Key,
}

/// How many tasks run at once, and how many begin in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Limit)]
pub struct LimitBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBody>,
}

/// A token bucket: each task that begins takes a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rate)]
pub struct RateBody {
    pub tokens: u32,
    /// How long an empty bucket takes to fill.
    pub per: Length,
}

/// Which tasks leave a dead letter, and how long it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeadLetterSettings)]
pub struct DeadLettersBody {
    /// Whether a task that failed for good leaves a dead letter (`true` by default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether an expired task leaves one, too (`false` by default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired: Option<bool>,
    /// The most dead letters that are kept; the oldest go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
    /// How long dead letters are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Length>,
}

impl From<RateBody> for Rate {
    fn from(RateBody { tokens, per }: RateBody) -> Self {
        Self::new(tokens, per.0)
    }
}

impl From<LimitBody> for Limit {
    fn from(LimitBody { max_in_flight, rate }: LimitBody) -> Self {
        Self { max_in_flight, rate: rate.map(Rate::from) }
    }
}

impl From<&Limit> for LimitBody {
    fn from(Limit { max_in_flight, rate }: &Limit) -> Self {
        let rate = rate.map(|Rate { tokens, per }| RateBody { tokens, per: Length(per) });
        Self { max_in_flight: *max_in_flight, rate }
    }
}

impl SettingsBody {
    /// The change of the settings.
    ///
    /// # Errors
    /// When the pauses between attempts do not go together.
    pub fn checked(self) -> Result<impl FnOnce(&mut QueueSettings), String> {
        let retry = self.retry.clone().map(RetryPolicy::try_from).transpose()?;
        Ok(move |settings: &mut QueueSettings| {
            settings.paused = self.paused;
            settings.limit =
                Limit { max_in_flight: self.max_in_flight, rate: self.rate.map(Rate::from) };
            settings.per_key = self.per_key.map(Limit::from).unwrap_or_default();
            settings.keys = self.keys.into_iter().map(|(key, it)| (key, it.into())).collect();
            settings.no_progress_timeout = self.no_progress_timeout.map(|it| it.0);
            settings.retry = retry;
            settings.max_attempts = self.max_attempts;
            settings.expires_after = self.expires_after.map(|it| it.0);
            settings.order = self.order.map(|OrderBody::Key| QueueOrder::Key);
            settings.description = self.description;
            settings.webhooks = self.webhooks;
            let letters = self.dead_letters.unwrap_or_default();
            settings.dead_letters = DeadLetterSettings {
                enabled: letters.enabled,
                expired: letters.expired,
                max_size: letters.max_size,
                retention: letters.retention.map(|it| it.0),
            };
        })
    }
}

impl From<&QueueSettings> for SettingsBody {
    fn from(settings: &QueueSettings) -> Self {
        let LimitBody { max_in_flight, rate } = LimitBody::from(&settings.limit);
        let per_key = &settings.per_key;
        let letters = settings.dead_letters;
        let letters = (!letters.is_none()).then(|| DeadLettersBody {
            enabled: letters.enabled,
            expired: letters.expired,
            max_size: letters.max_size,
            retention: letters.retention.map(Length),
        });
        let keys = settings.keys.iter().map(|(key, it)| (key.clone(), it.into()));
        Self {
            paused: settings.paused,
            max_in_flight,
            rate,
            per_key: (!per_key.is_none()).then(|| per_key.into()),
            keys: keys.collect(),
            no_progress_timeout: settings.no_progress_timeout.map(Length),
            retry: settings.retry.as_ref().map(RetryBody::from),
            max_attempts: settings.max_attempts,
            expires_after: settings.expires_after.map(Length),
            dead_letters: letters,
            order: settings.order.map(|_| OrderBody::Key),
            description: settings.description.clone(),
            webhooks: settings.webhooks.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_written() {
        let json = serde_json::json!({
            "paused": true,
            "max_in_flight": 20,
            "rate": {"tokens": 100, "per": "PT1M"},
            "per_key": {"max_in_flight": 1},
            "keys": {"acme": {"rate": {"tokens": 1, "per": "PT1S"}}},
            "no_progress_timeout": "PT10M",
            "retry": {"intervals": ["PT1S", "PT1M"]},
            "max_attempts": 3,
            "expires_after": "PT1H",
            "dead_letters": {"enabled": true, "expired": true, "max_size": 10, "retention": "PT24H"},
            "order": "key",
            "description": "mails of the shop",
            "webhooks": ["https://hooks.example/ends"],
        });
        let body: SettingsBody = serde_json::from_value(json.clone()).unwrap();
        let mut settings = QueueSettings::default();
        body.checked().unwrap()(&mut settings);
        assert!(settings.validate().is_ok());
        let written = serde_json::to_value(SettingsBody::from(&settings)).unwrap();
        assert_eq!(written, json);
        let nothing = serde_json::to_value(SettingsBody::from(&QueueSettings::default())).unwrap();
        assert_eq!(nothing, serde_json::json!({"paused": false}));
    }
}

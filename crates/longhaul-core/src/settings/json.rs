//! Forms of values in a settings document: durations are ISO 8601 texts, like in properties of
//! tasks.

use crate::protocol::retry::RetryPolicy;
use crate::task::terms::{format_duration, read_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// A duration as a text.
pub(super) fn written(duration: Duration) -> Result<String, String> {
    format_duration(duration).map_err(|error| error.to_string())
}

fn read(text: &str) -> Result<Duration, String> {
    read_duration(text).map_err(|error| error.to_string())
}

/// A duration that is always there.
pub(super) mod plain_duration {
    use super::{Deserialize, Deserializer, Duration, Serializer, read, written};
    use serde::de::Error as _;
    use serde::ser::Error as _;

    pub(in crate::settings) fn serialize<S: Serializer>(
        value: &Duration,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&written(*value).map_err(S::Error::custom)?)
    }

    pub(in crate::settings) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A duration that may be missing.
pub(super) mod duration {
    use super::{Deserialize, Deserializer, Duration, Serializer, read, written};
    use serde::de::Error as _;
    use serde::ser::Error as _;

    #[expect(clippy::ref_option, reason = "serde asks for it")]
    pub(in crate::settings) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&written(*value).map_err(S::Error::custom)?),
            None => to.serialize_none(),
        }
    }

    pub(in crate::settings) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| read(&text).map_err(D::Error::custom)).transpose()
    }
}

/// The pauses between attempts: the first and the longest one, or a list.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RetryForm {
    Intervals { intervals: Vec<String> },
    Exponential { base: String, max: String },
}

/// A retry policy that may be missing.
pub(super) mod retry {
    use super::{
        Deserialize, Deserializer, RetryForm, RetryPolicy, Serialize, Serializer, read, written,
    };
    use serde::de::Error as _;
    use serde::ser::Error as _;

    #[expect(clippy::ref_option, reason = "serde asks for it")]
    pub(in crate::settings) fn serialize<S: Serializer>(
        policy: &Option<RetryPolicy>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let form = |policy: &RetryPolicy| {
            if policy.intervals.is_empty() {
                return Ok(RetryForm::Exponential {
                    base: written(policy.base)?,
                    max: written(policy.max)?,
                });
            }
            let intervals: Result<_, String> =
                policy.intervals.iter().map(|pause| written(*pause)).collect();
            Ok(RetryForm::Intervals { intervals: intervals? })
        };
        let form: Option<Result<_, String>> = policy.as_ref().map(form);
        form.transpose().map_err(S::Error::custom)?.serialize(to)
    }

    pub(in crate::settings) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<RetryPolicy>, D::Error> {
        let policy = |form| match form {
            RetryForm::Intervals { intervals } => {
                let intervals: Result<Vec<_>, String> =
                    intervals.iter().map(|pause| read(pause)).collect();
                Ok(RetryPolicy::intervals(intervals?))
            }
            RetryForm::Exponential { base, max } => {
                Ok(RetryPolicy::exponential(read(&base)?, read(&max)?))
            }
        };
        let form: Option<RetryForm> = Option::deserialize(from)?;
        let policy: Option<Result<_, String>> = form.map(policy);
        policy.transpose().map_err(D::Error::custom)
    }
}

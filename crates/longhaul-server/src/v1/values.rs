//! Values in bodies and queries: durations, instants, lists of words, JSON of any kind.

use crate::clock;
use crate::core::ServiceError;
use crate::problem::ProblemDetails;
use bytes::Bytes;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// A duration: a text such as `30s`, `1h 30m`, `7d` or `PT1H30M`, or a number of seconds. A day has 24 hours. It is written in the form `PT1H30M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, example = "PT30S")]
pub(crate) struct Length(pub(crate) Duration);

/// An instant: in ms since the epoch, or a text such as `2026-11-22T09:30:00Z`. It is written as the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = u64, example = 1_792_000_000_000_u64)]
pub(crate) struct Instant(pub(crate) SystemTime);

/// Words separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WordList(pub(crate) Vec<String>);

/// Reads a field with JSON of any kind. An explicit `null` is a value, too.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(from).map(Some)
}

/// The bytes of a JSON value, as they were sent.
pub(crate) fn json_bytes(json: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(json).into_boxed_bytes())
}

/// Refuses a request that names neither some nor all, or both: a forgotten filter would mean all.
pub(super) fn all_or_some(all: bool, is_narrow: bool, fields: &str) -> Result<(), ProblemDetails> {
    let detail = match (all, is_narrow) {
        (true, false) | (false, true) => return Ok(()),
        (false, false) => {
            format!(
                "nothing says which are meant, so that nothing was done: give {fields}; or {{\"all\":true}} for all of the queue"
            )
        }
        (true, true) => format!("`all` goes with none of {fields}: leave out one or the other"),
    };
    Err(ProblemDetails::bad_request("selection_unclear", detail))
}

/// The text of the error that ended a bulk request early. If nothing was done before, the error is
/// the answer.
pub(super) fn early_end(
    stopped: Option<ServiceError>,
    any_done: bool,
) -> Result<Option<String>, ProblemDetails> {
    match stopped.map(ProblemDetails::from) {
        Some(problem) if !any_done => Err(problem),
        stopped => Ok(stopped.map(|problem| problem.detail.into_owned())),
    }
}

impl WordList {
    /// Reads words separated by commas.
    pub(super) fn of(text: &str) -> Self {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Self(words.map(str::to_owned).collect())
    }
}

impl Length {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            format!(
                "`{text}` is {why}; write a duration such as `30s`, `1h 30m`, `7d` or `PT1H30M`"
            )
        };
        if let Ok(seconds) = text.parse::<f64>() {
            return Self::of_seconds(seconds).map_err(refused);
        }
        let span: Span = text.trim().parse().map_err(|_| refused("not a duration"))?;
        if span.get_years() != 0 || span.get_months() != 0 {
            return Err(refused("of no certain length, as months and years differ"));
        }
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours());
        let length = length.map_err(|_| refused("too long"))?;
        Duration::try_from(length).map(Self).map_err(|_| refused("negative"))
    }

    fn of_seconds(seconds: f64) -> Result<Self, &'static str> {
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Self).map_err(|_| "negative, or too long")
    }
}

impl Instant {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ms) = text.parse::<u64>() {
            return Self::of_ms(ms).ok_or_else(|| format!("{ms} ms since the epoch is too late"));
        }
        let at: Timestamp = text.parse().map_err(|_| {
            format!("`{text}` is not an instant; write one such as `2026-11-22T09:30:00Z`, with `Z` or an offset")
        })?;
        Ok(Self(at.into()))
    }

    fn of_ms(ms: u64) -> Option<Self> {
        UNIX_EPOCH.checked_add(Duration::from_millis(ms)).map(Self)
    }
}

struct ScalarVisitor<T> {
    expecting: &'static str,
    text: fn(&str) -> Result<T, String>,
    number: fn(f64) -> Result<T, String>,
    whole: fn(u64) -> Result<T, String>,
}

impl<T> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.number)(number).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.whole)(number).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Err(E::custom(format!("{number} is negative")))
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor {
            expecting: "a duration such as \"30s\" or \"PT30S\"",
            text: Self::parse,
            number: |seconds| {
                Self::of_seconds(seconds).map_err(|why| format!("the duration is {why}"))
            },
            whole: |seconds| Ok(Self(Duration::from_secs(seconds))),
        })
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ScalarVisitor {
            expecting: "an instant: ms since the epoch, or a text such as \"2026-11-22T09:30:00Z\"",
            text: Self::parse,
            number: |ms| Err(format!("{ms} is not a whole number of ms since the epoch")),
            whole: |ms| Self::of_ms(ms).ok_or_else(|| format!("{ms} is too late")),
        })
    }
}

impl<'de> Deserialize<'de> for WordList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::of(&String::deserialize(from)?))
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let duration = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        to.collect_str(&duration)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(clock::instant_ms(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(json: &str) -> Result<Duration, String> {
        let read: Result<Length, _> = serde_json::from_str(json);
        read.map(|it| it.0).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_are_texts_or_seconds() {
        for (json, ms) in [
            (r#""30s""#, 30_000),
            (r#""1h 30m""#, 5_400_000),
            (r#""PT1H30M""#, 5_400_000),
            (r#""250ms""#, 250),
            (r#""7d""#, 604_800_000),
            (r#""2 days""#, 172_800_000),
            (r#""P7D""#, 604_800_000),
            (r#""P1DT1H""#, 90_000_000),
            (r#""1w""#, 604_800_000),
            ("30", 30_000),
            ("0.25", 250),
            (r#""30""#, 30_000),
        ] {
            assert_eq!(length(json), Ok(Duration::from_millis(ms)), "{json}");
        }
        for bad in [
            r#""-1s""#,
            "-1",
            "-0.5",
            "1e300",
            r#""soon""#,
            "true",
            "[]",
            r#""1 day-ish""#,
            r#""NaN""#,
            r#""inf""#,
        ] {
            assert!(length(bad).is_err(), "{bad}");
        }
        for (bad, why) in [
            ("soon", "not a duration"),
            ("-2d", "negative"),
            ("1 month", "months and years differ"),
            ("P1Y", "months and years differ"),
            ("9999999999999999999s", "not a duration"),
        ] {
            let told = length(&format!(r#""{bad}""#)).unwrap_err();
            assert!(told.starts_with(&format!("`{bad}` is ")) && told.contains(why), "{told}");
            assert!(told.contains("write a duration such as `30s`, `1h 30m`, `7d`"), "{told}");
            assert!(!told.contains("jiff"), "it names what reads it: {told}");
        }
        let written = serde_json::to_string(&Length(Duration::from_secs(5_400))).unwrap();
        assert_eq!(written, r#""PT1H30M""#);
    }

    /// What a bulk request had done was lost with its error.
    #[test]
    fn what_was_done_before_an_error_is_told_with_it() {
        let failed = || Some(ServiceError::Unfit("it broke".to_owned()));
        assert_eq!(early_end(None, true).unwrap(), None);
        assert_eq!(early_end(failed(), true).unwrap().unwrap(), "it broke");
        assert_eq!(early_end(failed(), false).unwrap_err().detail, "it broke");
    }

    #[test]
    fn instants_are_texts_or_ms() {
        let instant = |json: &str| serde_json::from_str::<Instant>(json);
        for json in
            ["7000", r#""7000""#, r#""1970-01-01T00:00:07Z""#, r#""1970-01-01T01:00:07+01:00""#]
        {
            let read = instant(json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), "7000", "{json}");
        }
        for bad in ["-1", "1.5", r#""tomorrow""#, "null"] {
            assert!(instant(bad).is_err(), "{bad}");
        }
        // The text of the error is shortened: see `Problem`.
        assert!(instant(&u64::MAX.to_string()).is_ok_and(|it| it.0 > SystemTime::UNIX_EPOCH));
    }
}

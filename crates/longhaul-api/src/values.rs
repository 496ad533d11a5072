//! Values in bodies: durations, instants, JSON of any kind.

#![warn(missing_docs)]

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// A duration: a text such as `30s`, `1h 30m`, `7d` or `PT1H30M`, or a number of seconds. A day has 24 hours. Answers have the form `PT1H30M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, example = "PT30S")]
pub struct Length(pub Duration);

/// An instant: ms since the epoch, or a text such as `2026-11-22T09:30:00Z`. Answers have ms since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = u64, example = 1_792_000_000_000_u64)]
pub struct Instant(pub SystemTime);

/// Reads a field with JSON of any kind. An explicit `null` is a value, too.
///
/// # Errors
/// When it is not JSON.
pub fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(from).map(Some)
}

impl Length {
    /// In ms.
    #[must_use]
    pub fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads it from text.
    ///
    /// # Errors
    /// If the text has another form; the error describes it and the right form.
    pub fn parse(text: &str) -> Result<Self, String> {
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
            return Err(refused("ambiguous, because months and years differ in length"));
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
    /// Reads it from text.
    ///
    /// # Errors
    /// If the text has another form; the error describes it and the right form.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ms) = text.parse::<u64>() {
            return Self::of_ms(ms).ok_or_else(|| format!("{ms} ms since the epoch is too late"));
        }
        let at: Timestamp = text.parse().map_err(|_| {
            format!("`{text}` is not an instant; write one such as `2026-11-22T09:30:00Z`, with `Z` or an offset")
        })?;
        Ok(Self(at.into()))
    }

    /// In ms since the epoch; 0 for an earlier one.
    #[must_use]
    pub fn ms(self) -> u64 {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let duration = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        to.collect_str(&duration)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.ms())
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

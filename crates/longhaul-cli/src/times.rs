//! Parses and formats durations and instants.

use crate::clock;
use jiff::{Span, SpanRelativeTo, Timestamp, civil};
use longhaul_api::values::Instant;
use std::time::{Duration, SystemTime};

/// Parses a duration: ISO 8601 (`PT1H30M`, `P1D`) or in words (`90s`, `1h 30m`, `2 days`, `250ms`).
/// A day has 24 hours.
///
/// # Errors
/// A text with an example.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let help = "expected a duration such as 90s, 1h30m, 2d or PT1H30M";
    let span: Span = text.trim().parse().map_err(|_| help.to_owned())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("months and years differ in length; {help}"));
    }
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours());
    let length = length.map_err(|_| help.to_owned())?;
    if length.is_negative() {
        return Err(format!("a duration cannot be negative; {help}"));
    }
    Duration::try_from(length).map_err(|_| help.to_owned())
}

/// Parses an instant: ISO 8601 with an offset (`2026-11-20T07:00Z`), `now`, or relative to now
/// (`15m ago`, `in 2h`, `-15m`, `+2h`).
///
/// # Errors
/// A text with an example.
pub(crate) fn instant(text: &str) -> Result<Instant, String> {
    instant_from(text, clock::wall()).map(Instant)
}

/// As [`instant`], in ms since the epoch.
///
/// # Errors
/// As [`instant`].
pub(crate) fn instant_ms(text: &str) -> Result<u64, String> {
    let at = Timestamp::try_from(instant(text)?.0).map_err(|error| error.to_string())?;
    u64::try_from(at.as_millisecond()).map_err(|_| "the instant is before 1970".to_owned())
}

fn instant_from(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let text = text.trim();
    let help = "expected an instant such as 2026-11-20T07:00Z, now, `15m ago` or `in 2h`";
    let outside = || format!("the instant is out of range; {help}");
    let before = text.strip_prefix('-').or_else(|| text.strip_suffix("ago"));
    if let Some(distance) = before.filter(|it| !it.starts_with(['P', 'p'])) {
        return now.checked_sub(duration(distance)?).ok_or_else(outside);
    }
    if let Some(distance) = text.strip_prefix('+').or_else(|| text.strip_prefix("in ")) {
        return now.checked_add(duration(distance)?).ok_or_else(outside);
    }
    if text == "now" {
        return Ok(now);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.into());
    }
    if text.parse::<civil::DateTime>().is_ok() {
        return Err(format!("the instant has no offset: write {text}Z for UTC, or {text}+01:00"));
    }
    Err(help.to_owned())
}

/// An instant in ms since the epoch as ISO 8601 in UTC.
pub(crate) fn iso(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| ms.to_string(), |at| format!("{at:.3}"))
}

/// A duration for people: `1h 30m`, `2.5s`, `250ms`.
pub(crate) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => {
            let micros = duration.as_micros();
            if micros < 10_000 { in_ms(micros) } else { format!("{}ms", duration.as_millis()) }
        }
        1..=9 if duration.subsec_millis() > 0 => format!("{:.1}s", duration.as_secs_f64()),
        1..=59 => format!("{seconds}s"),
        60..=3_599 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..=86_399 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        86_400.. => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn in_ms(micros: u128) -> String {
    format!("{}.{}ms", micros / 1_000, micros % 1_000 / 100)
}

fn pair(large: u64, unit: &str, small: u64, part: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit} {small}{part}") }
}

/// The distance of an instant from now, in the past or future.
pub(crate) fn ago(ms: u64, now_ms: u64) -> String {
    if ms > now_ms {
        format!("in {}", human(Duration::from_millis(ms - now_ms)))
    } else {
        format!("{} ago", human(Duration::from_millis(now_ms - ms)))
    }
}

/// Parses a rate, as `100/1m` or `100/m`; `None` if it has another form, an error if the period is
/// invalid.
pub(crate) fn rate(text: &str) -> Option<Result<(u32, Duration), String>> {
    let (count, per) = text.split_once('/')?;
    let count = count.trim().parse().ok()?;
    let per = per.trim();
    let one = if per.starts_with(|it: char| it.is_ascii_digit() || it == 'P') { "" } else { "1" };
    Some(duration(&format!("{one}{per}")).map(|per| (count, per)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn durations_are_iso_8601_or_words() {
        for (text, seconds) in [
            ("90s", 90.0),
            ("1h30m", 5_400.0),
            ("1h 30m", 5_400.0),
            ("2 days", 172_800.0),
            ("2d", 172_800.0),
            ("250ms", 0.25),
            ("PT1H30M", 5_400.0),
            ("P1D", 86_400.0),
            ("pt0.5s", 0.5),
            ("1w", 604_800.0),
        ] {
            assert_eq!(duration(text).map(|it| it.as_secs_f64()), Ok(seconds), "{text}");
        }
        for text in ["", "90", "1y", "P1M", "-5s", "soon", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn instants_are_iso_8601_with_an_offset_or_relative() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let at = |text: &str| {
            let at = instant_from(text, now)?;
            Ok::<_, String>(at.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        for (text, seconds) in [
            ("now", 1_000_000),
            ("15m ago", 999_100),
            ("-15m", 999_100),
            ("in 2h", 1_007_200),
            ("+2h", 1_007_200),
            ("1970-01-02T00:00Z", 86_400),
            ("1970-01-02T01:00:00+01:00", 86_400),
        ] {
            assert_eq!(at(text), Ok(seconds), "{text}");
        }
        assert!(at("2026-11-20T07:00").unwrap_err().contains("write 2026-11-20T07:00Z for UTC"));
        for text in ["", "tomorrow", "7", "2026-13-01T00:00Z"] {
            assert!(at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_with_two_units_at_most() {
        for (ms, shown) in [
            (0, "0.0ms"),
            (7, "7.0ms"),
            (250, "250ms"),
            (2_500, "2.5s"),
            (3_000, "3s"),
            (59_900, "59s"),
            (60_000, "1m"),
            (5_425_000, "1h 30m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(human(Duration::from_millis(ms)), shown);
        }
        assert_eq!((ago(500, 5_500), ago(65_500, 5_500)), ("5s ago".into(), "in 1m".into()));
        assert_eq!(iso(1_792_000_000_123), "2026-10-14T17:46:40.123Z");
    }
}

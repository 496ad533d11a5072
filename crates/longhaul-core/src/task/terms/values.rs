//! Formats of property values of a task: durations, instants, lists of them, numbers, tags. Pure.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use std::time::Duration;

/// The longest duration: a hundred years. Other clients read the resulting times as numbers of 63
/// bits.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Maximum length of the text of a duration or an instant.
const TEXT_BYTES_MAX: usize = 100;

/// Number of characters of a text that an error shows.
const SHOWN_MAX: usize = 40;

/// Maximum number of attempts that a task may request.
pub const ATTEMPTS_MAX: u32 = 1_000;

/// Maximum number of pauses in a list.
pub const INTERVALS_MAX: usize = 100;

/// Maximum number of tags of a task, and the length of each in bytes: every metadata entry carries
/// them.
pub(super) const TAGS_MAX: usize = 16;
pub(super) const TAG_BYTES_MAX: usize = 64;

/// A text, or a value, is invalid for a property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {problem}")]
pub struct ValueError {
    text: String,
    problem: String,
}

impl ValueError {
    fn new(text: &str, problem: impl Into<String>) -> Self {
        Self { text: text.chars().take(SHOWN_MAX).collect(), problem: problem.into() }
    }
}

type Value<T> = Result<T, ValueError>;

/// Reads a duration in the form of the reference's clients: ISO 8601 with days, hours, minutes and
/// seconds, zero or above.
///
/// # Errors
/// It is no such duration, or above a hundred years.
pub fn duration_or_zero(text: &str) -> Value<Duration> {
    let error = |problem: &str| ValueError::new(text, problem);
    if text.len() > TEXT_BYTES_MAX {
        return Err(error(&format!("it has more than {TEXT_BYTES_MAX} bytes")));
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    if !unsigned.starts_with(['P', 'p']) || unsigned.contains(['W', 'w']) {
        return Err(error("expected an ISO 8601 duration such as PT1H30M"));
    }
    let span: Span = text.parse().map_err(|cause: jiff::Error| error(&cause.to_string()))?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| {
        error("years and months differ in length: use days, hours, minutes, seconds")
    })?;
    match Duration::try_from(signed) {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        Ok(_) => Err(error("it must be at most a hundred years")),
        Err(_) => Err(error("it must not be negative")),
    }
}

/// Reads a duration above zero.
///
/// # Errors
/// It is no such duration, zero, or above a hundred years.
pub fn duration(text: &str) -> Value<Duration> {
    match duration_or_zero(text)? {
        Duration::ZERO => Err(ValueError::new(text, "it must be above zero")),
        duration => Ok(duration),
    }
}

/// Reads a delay in ms.
pub(super) fn delay_ms(text: &str) -> Value<u64> {
    duration_or_zero(text).map(millis)
}

/// Reads an instant, in ms since the epoch: RFC 3339, or the number.
///
/// # Errors
/// It is neither, or later than the year 9999.
pub fn instant_ms(text: &str) -> Value<u64> {
    let error = |problem: &str| ValueError::new(text, problem);
    let latest = Timestamp::MAX.as_millisecond();
    if text.len() > TEXT_BYTES_MAX {
        return Err(error(&format!("it has more than {TEXT_BYTES_MAX} bytes")));
    }
    let ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok().filter(|ms| *ms <= latest).ok_or_else(|| error("it is too large"))?
    } else {
        let instant: Result<Timestamp, jiff::Error> = text.parse();
        let expected =
            "expected an instant such as 2026-11-22T09:30:00Z, or milliseconds since 1970";
        instant.map_err(|_| error(expected))?.as_millisecond()
    };
    // Instants before 1970 are past.
    Ok(u64::try_from(ms).unwrap_or(0))
}

/// Reads a number of attempts.
pub(super) fn attempts(text: &str) -> Value<u32> {
    let number = text.parse().ok().filter(|number| (1..=ATTEMPTS_MAX).contains(number));
    number.ok_or_else(|| {
        ValueError::new(text, format!("expected a number between 1 and {ATTEMPTS_MAX}"))
    })
}

/// Reads the first and the longest pause of a backoff.
pub(super) fn backoff(text: &str) -> Value<(Duration, Duration)> {
    let expected = "expected two ISO 8601 durations, the first and the longest pause: PT1S/PT5M";
    let (base, max) = text.split_once('/').ok_or_else(|| ValueError::new(text, expected))?;
    let (base, max) = (duration(base)?, duration(max)?);
    if base > max {
        return Err(ValueError::new(text, "the first pause is above the longest one"));
    }
    Ok((base, max))
}

/// Reads a list of pauses.
pub(super) fn intervals(text: &str) -> Value<Vec<Duration>> {
    let count = text.split(',').count();
    if count > INTERVALS_MAX {
        let problem = format!("it has {count} intervals, and {INTERVALS_MAX} is the limit");
        return Err(ValueError::new(text, problem));
    }
    text.split(',').map(duration_or_zero).collect()
}

/// Reads tags.
pub(super) fn tags(text: &str) -> Value<Vec<String>> {
    let tags: Vec<String> = text.split(',').map(|tag| tag.trim().to_owned()).collect();
    check_tags(&tags).map_err(|problem| ValueError::new(text, problem))?;
    Ok(tags)
}

/// Checks tags.
///
/// # Errors
/// There are too many tags, or one of them is invalid.
pub fn check_tags(tags: &[String]) -> Result<(), String> {
    if tags.len() > TAGS_MAX {
        return Err(format!("there are {} tags, and {TAGS_MAX} is the limit", tags.len()));
    }
    let bad = |tag: &&String| {
        !(1..=TAG_BYTES_MAX).contains(&tag.len()) || tag.contains(',') || tag.trim() != *tag
    };
    match tags.iter().find(bad) {
        Some(_) => Err(format!(
            "a tag has 1 to {TAG_BYTES_MAX} bytes, without commas and without blanks around it"
        )),
        None => Ok(()),
    }
}

/// Writes a duration: ISO 8601 with hours, minutes and seconds, as the reference's clients read it.
///
/// # Errors
/// For more than a hundred years.
pub fn format_duration(duration: Duration) -> Value<String> {
    match SignedDuration::try_from(duration) {
        Ok(signed) if duration <= DURATION_MAX => Ok(signed.to_string()),
        _ => Err(ValueError::new(&format!("{duration:?}"), "it must be at most a hundred years")),
    }
}

/// Like [`format_duration`], for a limit.
///
/// # Errors
/// For zero, too.
pub fn format_limit(limit: Duration) -> Value<String> {
    if limit.is_zero() {
        return Err(ValueError::new("0s", "it must be above zero"));
    }
    format_duration(limit)
}

/// Whole milliseconds, rounded up.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_of_the_reference_are_read() {
        let seconds = |text| duration(text).map(|budget| budget.as_secs_f64()).ok();
        assert_eq!(seconds("PT3S"), Some(3.0));
        assert_eq!(seconds("PT0.5S"), Some(0.5));
        assert_eq!(seconds("P1DT2H3M4.5S"), Some(93_784.5));
        assert_eq!(seconds("PT36H"), Some(129_600.0));
        assert_eq!(seconds("+PT5S"), Some(5.0));
    }

    #[test]
    fn everything_else_is_refused_and_named() {
        for text in [
            "", "P", "PT", "P1H", "1h", "PT0S", "-PT5S", "P2W", "P1M", "PT-5S", "PT5S ", "é",
            "P40000D",
        ] {
            let error = duration(text).expect_err(text);
            assert!(error.to_string().starts_with(&format!("`{text}`: ")), "{error}");
        }
        assert_eq!((duration_or_zero("PT0S"), delay_ms("PT0.0001S")), (Ok(Duration::ZERO), Ok(1)));
    }

    /// A property may have megabytes, and its error goes into a message.
    #[test]
    fn the_error_about_a_long_text_is_short() {
        let long = "1".repeat(1_000_000);
        let list = "PT1S,".repeat(1_000);
        let errors = [
            duration(&format!("PT{long}S")).unwrap_err(),
            instant_ms(&long).unwrap_err(),
            attempts(&long).unwrap_err(),
            backoff(&long).unwrap_err(),
            intervals(&list).unwrap_err(),
            tags(&long).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().len() < 200, "{error}");
        }
    }

    #[test]
    fn durations_are_written_as_the_reference_reads_them() {
        let text = |seconds| format_limit(Duration::from_secs_f64(seconds)).ok();
        assert_eq!(text(5400.0).as_deref(), Some("PT1H30M"));
        assert_eq!(text(0.5).as_deref(), Some("PT0.5S"));
        assert_eq!(text(129_600.0).as_deref(), Some("PT36H"));
        assert!(format_limit(Duration::ZERO).is_err() && format_duration(Duration::ZERO).is_ok());
        assert!(format_limit(Duration::MAX).is_err());
    }

    #[test]
    fn an_instant_is_a_time_with_its_zone_or_a_number() {
        for (text, ms) in [
            ("1970-01-01T00:00:01Z", 1_000),
            ("1970-01-01T01:00:00.5+01:00", 500),
            ("1969-12-31T23:00:00Z", 0),
            ("1792000000000", 1_792_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(instant_ms(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "2026-11-22",
            "2026-11-22T09:30:00",
            "-1",
            "9e9",
            "1 ",
            "99999999999999999999",
        ] {
            assert!(instant_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_pauses_and_tags_have_bounds() {
        assert_eq!((attempts("1"), attempts("1000")), (Ok(1), Ok(1000)));
        // Regression: the error was that of the library, 300 bytes with advice for its callers.
        let error = duration("P1M").unwrap_err().to_string();
        assert!(error.contains("`P1M`: years and months differ in length"), "{error}");
        for text in ["0", "1001", "-1", "", "three", "1.0"] {
            assert!(attempts(text).is_err(), "{text}");
        }
        let second = Duration::from_secs(1);
        assert_eq!(backoff("PT1S/PT5M"), Ok((second, 300 * second)));
        for text in ["PT1S", "PT5M/PT1S", "PT0S/PT1S", "/", "PT1S/PT5M/PT6M"] {
            assert!(backoff(text).is_err(), "{text}");
        }
        let pauses = vec![second, Duration::ZERO, 60 * second];
        assert_eq!(intervals("PT1S,PT0S,PT1M"), Ok(pauses));
        let list = |count| vec!["PT1S"; count].join(",");
        assert!(intervals(&list(100)).is_ok() && intervals(&list(101)).is_err());
        for text in ["", "PT1S,", "PT1S;PT2S"] {
            assert!(intervals(text).is_err(), "{text}");
        }
        assert_eq!(tags("a, b ,c"), Ok(["a", "b", "c"].map(str::to_owned).to_vec()));
        let tag = |bytes| "t".repeat(bytes);
        assert!(tags(&tag(64)).is_ok() && tags(&tag(65)).is_err());
        assert!(tags(&vec!["t"; 16].join(",")).is_ok() && tags(&vec!["t"; 17].join(",")).is_err());
        assert!(tags("").is_err() && tags("a,,b").is_err());
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_back(seconds in 0..DURATION_MAX.as_secs(), nanos in 1..1_000_000_000_u32) {
            let limit = Duration::new(seconds, nanos);
            prop_assert_eq!(duration(&format_limit(limit).unwrap()), Ok(limit));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,60}", almost in "[-+PTWDHMSZ0-9:.,/]{0,40}") {
            for text in [text, almost] {
                let read = [
                    duration(&text).err(), delay_ms(&text).err(), instant_ms(&text).err(), attempts(&text).err(),
                    backoff(&text).err(), intervals(&text).err(), tags(&text).err(),
                ];
                prop_assert!(read.iter().flatten().all(|error| error.to_string().len() < 300));
            }
        }
    }
}

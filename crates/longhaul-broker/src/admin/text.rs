//! Text formats of Java, which Pulsar's tools expect. Pure.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that Java's `URLEncoder` escapes. A space becomes `+` afterwards.
const JAVA_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b' ');

/// A time in UTC, `2026-11-30T12:00:00.123Z`; empty for 0, which means never. Times after the year
/// 9999 are shown as its end.
pub(super) fn iso_8601(ms: u64) -> String {
    if ms == 0 {
        return String::new();
    }
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// Encodes a text as Java's `URLEncoder` does.
pub(super) fn escape_java(text: &str) -> String {
    utf8_percent_encode(text, JAVA_ESCAPES).to_string().replace(' ', "+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_java_writes_them() {
        assert_eq!(iso_8601(0), "");
        assert_eq!(iso_8601(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(iso_8601(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso_8601(1_709_164_799_999), "2024-02-28T23:59:59.999Z");
        assert_eq!(iso_8601(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert!(iso_8601(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn cursors_are_named_as_java_encodes_them() {
        assert_eq!(escape_java("longhaul"), "longhaul");
        assert_eq!(escape_java("a b:c+d*é"), "a+b%3Ac%2Bd*%C3%A9");
    }
}

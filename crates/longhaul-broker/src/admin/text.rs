//! Text formats of Java, which Pulsar's tools expect. Pure.

/// A time in UTC, `2026-11-30T12:00:00.123Z`; empty for 0, which means never.
pub(super) fn iso_8601(ms: u64) -> String {
    if ms == 0 {
        return String::new();
    }
    let (seconds, milliseconds) = (ms / 1000, ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day from the number of days since 1970. Years begin in March here, so that the
/// leap day is the last day of a year.
const fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Encodes a text as Java's `URLEncoder` does.
pub(super) fn escape_java(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'*' => escaped.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            b' ' => escaped.push('+'),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
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

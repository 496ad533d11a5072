//! Parses sizes in bytes.

/// Parses a number of bytes: `1000`, or with a unit of 1024: `64K`, `512M`, `1G`, `2T`, also
/// written `512MiB` or `512MB`.
///
/// # Errors
/// A text, when the input is malformed or the number is too large.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|error| format!("expected a number: {error}"))?;
    let unit = unit.trim().to_ascii_uppercase();
    let shift = match unit.trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("expected a number of bytes, or one with K, M, G or T".to_owned()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// As [`bytes`], for a size that must fit into memory.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn memory_bytes(text: &str) -> Result<usize, String> {
    usize::try_from(bytes(text)?).map_err(|_| "the size does not fit into memory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let cases = [
            ("0", 0),
            ("1000", 1000),
            ("1048576", 1 << 20),
            ("64K", 64 << 10),
            ("512KiB", 1 << 19),
            ("3 MiB", 3 << 20),
            ("2m", 2 << 20),
            ("512M", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1g", 1 << 30),
            ("1GB", 1 << 30),
            ("2T", 2 << 40),
            ("7B", 7),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "G", "KiB", "1X", "-1", "1.5G", "99999999999T", "99999999999999999999"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}

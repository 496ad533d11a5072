//! Values as people type them: addresses by name, sizes and times with a unit.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Reads `HOST:PORT`, where the host is an address or a name. Of the addresses of a name the first of IPv4 counts, or else the first.
///
/// # Errors
/// In words, when it is not of this form, or the name is not known.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = text.to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| format!("expected HOST:PORT: {error}"))?.collect();
    let first = found.iter().find(|candidate| candidate.is_ipv4()).or_else(|| found.first());
    first.copied().ok_or_else(|| "the name has no address".to_owned())
}

/// Reads a number of bytes: `1000`, or with a unit of 1024: `64K`, `512M`, `1G`, `2T`, also written `512MiB` or `512MB`.
///
/// # Errors
/// In words, when it is not of this form, or too large.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let shift = match unit.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("expected a number of bytes, or one with K, M, G or T".to_owned()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| "more than can be counted".to_owned())
}

/// As [`bytes`], for what has to fit into memory.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn memory_bytes(text: &str) -> Result<usize, String> {
    usize::try_from(bytes(text)?).map_err(|_| "more than fits into memory".to_owned())
}

/// Reads a time: `90s`, `30m`, `12h`, `30d`.
///
/// # Errors
/// In words, when it is not of this form, or too long.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err("expected a number with s, m, h or d".to_owned()),
    };
    let seconds = number.checked_mul(seconds).ok_or("longer than can be counted")?;
    Ok(Duration::from_secs(seconds))
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|error| format!("expected a number: {error}"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let cases = [
            ("0", 0),
            ("1000", 1000),
            ("64K", 64 << 10),
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
        for text in ["", "G", "1X", "-1", "1.5G", "99999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("30d"), Ok(Duration::from_secs(30 * 24 * 3600)));
        for text in ["30", "d", "1w", "99999999999999999999s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    /// `--listen localhost:7300` was refused: only the numbers of an address were taken.
    #[test]
    fn hosts_have_names() {
        assert_eq!(address("127.0.0.1:7300"), Ok(SocketAddr::from(([127, 0, 0, 1], 7300))));
        assert_eq!(address("[::1]:7300").map(|address| address.port()), Ok(7300));
        let named = address("localhost:7300").unwrap();
        assert!(named.ip().is_loopback() && named.port() == 7300, "{named}");
        for text in ["7300", "localhost", "localhost:x", ""] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}

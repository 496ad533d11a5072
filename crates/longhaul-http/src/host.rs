//! Host names in a normalized form for comparison.

use std::net::IpAddr;

/// Parses a host name or an IP address without a port. The result is in lower case, without
/// brackets and without a trailing dot. `None` if the text is neither.
#[must_use]
pub fn parse(text: &str) -> Option<String> {
    let number = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(number) = number.unwrap_or(text).parse::<IpAddr>() {
        return Some(number.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_part = |part: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !part.is_empty() && part.bytes().all(is_fine)
    };
    name.split('.').all(is_part).then(|| name.to_ascii_lowercase())
}

/// The host as it appears before a port in a URL: an IPv6 address gets brackets.
#[must_use]
pub fn in_url(host: &str) -> String {
    let has_colons = host.contains(':') && !host.starts_with('[');
    if has_colons { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, expected) in [
            ("Broker.Example", Some("broker.example")),
            ("broker.example.", Some("broker.example")),
            ("my_host-1", Some("my_host-1")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("fd00::7", Some("fd00::7")),
            ("[FD00:0::7]", Some("fd00::7")),
            ("broker.example:8443", None),
            ("[fd00::7]:8443", None),
            ("https://broker.example", None),
            ("broker.example/", None),
            ("[broker.example]", None),
            ("*.example", None),
            ("a..b", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
        assert_eq!(["a", "::1", "[::1]"].map(in_url), ["a", "[::1]", "[::1]"]);
    }
}

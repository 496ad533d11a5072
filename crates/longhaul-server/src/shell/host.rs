//! The names of hosts, in the form in which they are compared.

use std::net::IpAddr;

/// A name or a number without a port: in lower case, without brackets and without the dot that ends
/// a full name.
pub(crate) fn parse(text: &str) -> Option<String> {
    let number = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Ok(number) = number.unwrap_or(text).parse::<IpAddr>() {
        return Some(number.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_part = |part: &str| {
        let is_fine = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
        !part.is_empty() && part.bytes().all(is_fine)
    };
    name.split('.').all(is_part).then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, expected) in [
            ("Tasks.Example", Some("tasks.example")),
            ("tasks.example.", Some("tasks.example")),
            ("my_host-1", Some("my_host-1")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("fd00::7", Some("fd00::7")),
            ("[FD00:0::7]", Some("fd00::7")),
            ("tasks.example:8443", None),
            ("[fd00::7]:8443", None),
            ("https://tasks.example", None),
            ("tasks.example/", None),
            ("[tasks.example]", None),
            ("*.example", None),
            ("a..b", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
    }
}

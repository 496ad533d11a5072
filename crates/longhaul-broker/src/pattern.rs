//! Topic name patterns, which clients write as Java regular expressions.

use crate::name::TopicName;
use regex::{Regex, RegexBuilder};

/// Longest pattern, in bytes.
const BYTES_MAX: usize = 1024;
/// Memory limit for a compiled pattern, in bytes.
const COMPILED_BYTES_MAX: usize = 64 * 1024;
/// Memory limit for the matching cache, in bytes.
const CACHE_BYTES_MAX: usize = 32 * 1024;

/// A pattern that must match a whole name, `tenant/namespace/topic`. Partitions match by the name
/// of their topic.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    /// Parses a pattern. Syntax that only Java supports, such as lookahead, is refused.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("a pattern of topics has at most {BYTES_MAX} bytes"));
        }
        let plain = unquoted(&without_domain(text)?);
        let whole = RegexBuilder::new(&format!(r"\A(?:{plain})\z"))
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(CACHE_BYTES_MAX)
            .build();
        whole.map(|regex| Self { text: text.to_owned(), regex }).map_err(|error| {
            let shown: String =
                error.to_string().chars().filter(|letter| !letter.is_control()).collect();
            format!("the pattern of topics cannot be used here: {shown}")
        })
    }

    /// The client's text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a topic matches; a partition matches if its topic does.
    pub(crate) fn matches(&self, name: &TopicName) -> bool {
        let whole = name.whole();
        let short = whole.as_str().split_once("://").map_or("", |(_, short)| short);
        self.regex.is_match(short)
    }
}

/// Removes the domain: all topics have the same one, and a pattern may leave it out.
fn without_domain(text: &str) -> Result<String, String> {
    let Some((before, rest)) = text.split_once("://") else { return Ok(text.to_owned()) };
    match before.strip_suffix("persistent") {
        Some(before) => Ok(format!("{}{rest}", before.strip_suffix("non-").unwrap_or(before))),
        None => Err("a pattern of topics begins with persistent://, or names no domain".to_owned()),
    }
}

/// Text between `\Q` and `\E` is literal.
fn unquoted(text: &str) -> String {
    let mut parts = text.split(r"\Q");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (quoted, rest) = part.split_once(r"\E").unwrap_or((part, ""));
        out += &regex::escape(quoted);
        out += rest;
    }
    out
}

/// Hash of an ordered list of names. A client that knows the hash need not be sent the list.
pub(crate) fn hash_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut crc = 0;
    for (at, name) in names.enumerate() {
        if at > 0 {
            crc = crc32c::crc32c_append(crc, b",");
        }
        crc = crc32c::crc32c_append(crc, name.as_bytes());
    }
    // Pulsar writes the bytes of the number in little-endian order.
    format!("{:08x}", crc.swap_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&TopicName::parse(name).unwrap())
    }

    #[test]
    fn whole_names_match_with_a_domain_or_without() {
        for pattern in [
            "persistent://public/default/a.*",
            "public/default/a.*",
            "non-persistent://public/default/a.*",
            r"\Qpersistent://public/default/\Ea.*",
            r"^persistent://public/default/a\d?$",
            "persistent://public/default/(a|b)1?",
            r"persistent://public/default/[\w-]+",
            r"[^/]+/[^/]+/\w+\d*",
        ] {
            assert!(matches(pattern, "a1"), "{pattern}");
            assert!(!matches(pattern, "c.a1"), "{pattern}");
        }
        assert!(!matches("public/default/a", "ab"), "the whole name");
        assert!(
            matches(r"public/default/\Qa.b", "a.b") && !matches(r"public/default/\Qa.b", "axb")
        );
    }

    #[test]
    fn a_partition_matches_by_its_topic() {
        assert!(matches("public/default/a", "a-partition-3"));
        assert!(!matches("public/default/a-partition-.*", "a-partition-3"));
    }

    #[test]
    fn what_cannot_be_matched_is_refused() {
        let long = "a".repeat(BYTES_MAX + 1);
        for pattern in ["a(?=b)", "(", "[", "http://a", r"a{1000}{1000}{1000}", r"\w{100}", &long] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn hashes_are_those_of_pulsar() {
        // CRC-32C of `123456789` is e3069283.
        assert_eq!(hash_of(["123456789"].into_iter()), "839206e3");
        assert_eq!(hash_of(["a", "b"].into_iter()), hash_of(["a,b"].into_iter()));
        assert_eq!(hash_of(std::iter::empty()), "00000000");
    }
}

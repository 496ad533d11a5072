//! The target of a request: the segments of its path, and its query, both decoded. Pure.

use super::values::AdminCallError;

/// Maximum number of segments and of query pairs; no endpoint has as many.
const PARTS_MAX: usize = 16;

/// Path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestTarget {
    /// Without empty segments at the ends.
    pub(super) segments: Vec<String>,
    query: Vec<(String, String)>,
}

impl RequestTarget {
    /// Parses path and query.
    pub(super) fn parse(path: &str, query: Option<&str>) -> Result<Self, AdminCallError> {
        let trimmed = path.strip_prefix('/').unwrap_or(path);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        let segments = trimmed.split('/').take(PARTS_MAX).map(|segment| decode(segment, false));
        let pairs = query.unwrap_or_default().split('&').take(PARTS_MAX);
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        });
        Ok(Self {
            segments: segments.collect::<Result<_, _>>()?,
            query: pairs.collect::<Result<_, AdminCallError>>()?,
        })
    }

    /// A value of the query.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the query has `name=true`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

fn decode(text: &str, plus_is_space: bool) -> Result<String, AdminCallError> {
    let bad = || {
        AdminCallError::BadRequest("the path or the query is not UTF-8 in URL encoding".to_owned())
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = rest.next().and_then(nibble).ok_or_else(bad)?;
                let low = rest.next().and_then(nibble).ok_or_else(bad)?;
                high << 4 | low
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn segments_are_decoded_after_they_are_split() {
        let target =
            RequestTarget::parse("/admin/v2/a%2Fb/c+d/%C3%A9/", Some("x=1+2%2B&force=True&y"))
                .unwrap();
        assert_eq!(target.segments, ["admin", "v2", "a/b", "c+d", "é"]);
        assert_eq!((target.value("x"), target.value("y")), (Some("1 2+"), Some("")));
        assert!(target.flag("force") && !target.flag("y") && !target.flag("z"));
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        for path in ["/%", "/%2", "/%zz", "/%ff"] {
            assert!(RequestTarget::parse(path, None).is_err(), "{path}");
            assert!(RequestTarget::parse("/", Some(path)).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(path: String, query: Option<String>) {
            if let Ok(target) = RequestTarget::parse(&path, query.as_deref()) {
                prop_assert!(target.segments.len() <= PARTS_MAX);
            }
        }
    }
}

//! The known tokens, by their SHA-256.

use super::Identity;
use super::token_file::{TokenEntry, TokenFile, TokenFileError};
use crate::clock;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The known tokens.
#[derive(Debug)]
pub(super) struct Tokens(Vec<KnownToken>);

#[derive(Debug)]
pub(super) struct KnownToken {
    /// As [`hash`] returns it.
    hash: String,
    expires_ms: Option<u64>,
    identity: Arc<Identity>,
}

/// The result of looking up a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenLookup {
    Known(Arc<Identity>),
    Expired,
    Unknown,
}

impl Tokens {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Self, TokenFileError> {
        let file = TokenFile::open(path)?;
        let unusable = |problem| TokenFileError { path: path.to_owned(), problem };
        Self::of(file.entries()).map_err(unusable)
    }

    fn of(entries: &[TokenEntry]) -> Result<Self, String> {
        entries.iter().map(TokenEntry::checked).collect::<Result<_, _>>().map(Self)
    }

    /// Compares a token with all known ones, in constant time.
    pub(super) fn find(&self, token: &[u8]) -> TokenLookup {
        let shown = hash(token);
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.hash.as_bytes().ct_eq(shown.as_bytes())) {
                found = Some(known);
            }
        }
        match found {
            None => TokenLookup::Unknown,
            Some(KnownToken { expires_ms: Some(at), .. }) if *at <= clock::wall_ms() => {
                TokenLookup::Expired
            }
            Some(KnownToken { identity, .. }) => TokenLookup::Known(Arc::clone(identity)),
        }
    }
}

impl TokenEntry {
    pub(super) fn checked(&self) -> Result<KnownToken, String> {
        let Self { name, sha256, scopes, queues, expires } = self;
        let has_length = sha256.len() == 2 * SHA256_OUTPUT_LEN;
        if !has_length || !sha256.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(format!(
                "`sha256` of the token `{name}` is not 64 hexadecimal digits: use the output \
                of `printf %s TOKEN | sha256sum`"
            ));
        }
        let hash = sha256.to_ascii_lowercase();
        let instant = |text: &String| {
            let at: Result<jiff::Timestamp, _> = text.parse();
            let at = at.map_err(|error| format!("`expires` of the token `{name}`: {error}"))?;
            // An instant before 1970 has expired.
            Ok::<_, String>(u64::try_from(at.as_millisecond()).unwrap_or(0))
        };
        let expires_ms = expires.as_ref().map(instant).transpose()?;
        let (name, queues) = (Some(name.clone()), queues.clone());
        let identity = Arc::new(Identity { name, scopes: scopes.clone(), queues });
        Ok(KnownToken { hash, expires_ms, identity })
    }
}

/// The SHA-256 of a token in lower-case hexadecimal digits, which is all that is kept of it.
pub(super) fn hash(token: &[u8]) -> String {
    let digest = digest(&SHA256, token);
    let bytes: &[u8] = digest.as_ref();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::TokenScope;
    use super::*;

    fn hex(token: &str) -> String {
        hash(token.as_bytes())
    }

    fn parse(text: &str) -> Result<Tokens, String> {
        Tokens::of(&super::super::token_file::parse(text.as_bytes())?)
    }

    fn entry(more: &str) -> String {
        let sha256 = hex("secret");
        format!(r#"{{"tokens":[{{"name":"n","sha256":"{sha256}"{more}}}]}}"#)
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        assert_eq!(hex("test"), "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
        let file = entry(r#","scopes":["submit","read"],"queues":["a"]"#);
        let tokens = parse(&file).unwrap();
        let TokenLookup::Known(identity) = tokens.find(b"secret") else { panic!("it is unknown") };
        assert_eq!(identity.name.as_deref(), Some("n"));
        let may = TokenScope::ALL.map(|scope| identity.may(scope));
        assert_eq!(may, [true, false, true, false]);
        assert!(identity.may_use("a") && !identity.may_use("b"));
        for other in ["", "secret ", "Secret", "secre", &hex("secret")] {
            assert_eq!(tokens.find(other.as_bytes()), TokenLookup::Unknown, "{other}");
        }
        assert!(!format!("{tokens:?}").contains("secret"));
    }

    #[test]
    fn admin_includes_the_other_scopes_and_a_token_expires() {
        let tokens = |more: &str| parse(&entry(more)).unwrap();
        let ahead = tokens(r#","scopes":["admin"],"expires":"2999-01-01T00:00:00Z""#);
        let TokenLookup::Known(identity) = ahead.find(b"secret") else { panic!("it is unknown") };
        assert!(TokenScope::ALL.into_iter().all(|scope| identity.may(scope)));
        for past in ["2020-01-01T00:00:00Z", "1960-01-01T00:00:00+01:00"] {
            let past = tokens(&format!(r#","scopes":["admin"],"expires":"{past}""#));
            assert_eq!(past.find(b"secret"), TokenLookup::Expired);
        }
    }

    #[test]
    fn a_file_that_is_not_one_is_refused_with_its_reason() {
        let short = entry(r#","scopes":[]"#).replace(&hex("secret"), "abc");
        let many = format!(r#"{{"tokens":[{}]}}"#, ["{}"; 2].join(","));
        for (file, says) in [
            ("", "EOF"),
            (&*short, "64 hexadecimal digits"),
            (&entry(r#","scopes":["root"]"#), "unknown variant `root`"),
            (&entry(r#","scopes":[],"token":"secret""#), "unknown field `token`"),
            (&entry(""), "missing field `scopes`"),
            (&many, "missing field"),
            (&entry(r#","scopes":[],"expires":"soon""#), "`expires` of the token `n`"),
        ] {
            let refused = parse(file).unwrap_err();
            assert!(refused.contains(says), "{file}: {refused}");
        }
        let none = Tokens::read(Path::new("/does/not/exist")).unwrap_err();
        assert!(none.to_string().contains("/does/not/exist"), "{none}");
    }
}

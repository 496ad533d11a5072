//! The file of the tokens: JSON, with the SHA-256 of each token, never the token itself.
//!
//! ```json
//! {"tokens": [
//!   {"name": "ci", "sha256": "9f86d0…", "scopes": ["submit", "read"], "queues": ["mails"], "expires": "2027-01-01T00:00:00Z"}
//! ]}
//! ```

use super::{Identity, Scope};
use crate::clock;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The most tokens: each request compares with all of them.
const TOKENS_MAX: usize = 1_000;

/// The longest file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

type Hash = [u8; SHA256_OUTPUT_LEN];

/// The file of the tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the token file {path} cannot be used: {problem}", path = path.display())]
pub struct TokenFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

/// The tokens that are known.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Token>);

#[derive(Debug)]
struct Token {
    hash: Hash,
    expires_ms: Option<u64>,
    identity: Arc<Identity>,
}

/// What is known of a token that was shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Known(Arc<Identity>),
    Expired,
    Unknown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    scopes: BTreeSet<Scope>,
    queues: Option<BTreeSet<String>>,
    expires: Option<String>,
}

impl Tokens {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Self, TokenFileError> {
        let unusable = |problem: String| TokenFileError { path: path.to_owned(), problem };
        let size = std::fs::metadata(path).map_err(|error| unusable(error.to_string()))?.len();
        if size > FILE_BYTES_MAX {
            let problem = format!("it has {size} bytes, and {FILE_BYTES_MAX} is the limit");
            return Err(unusable(problem));
        }
        let text = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        Self::parse(&text).map_err(unusable)
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let File { tokens } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if tokens.len() > TOKENS_MAX {
            return Err(format!("it has {} tokens, and {TOKENS_MAX} is the limit", tokens.len()));
        }
        tokens.into_iter().map(Entry::checked).collect::<Result<_, _>>().map(Self)
    }

    /// Compares a token with all that are known: how long that takes tells nothing about them.
    pub(super) fn find(&self, token: &[u8]) -> Verdict {
        let shown = hash(token);
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.hash.ct_eq(&shown)) {
                found = Some(known);
            }
        }
        match found {
            None => Verdict::Unknown,
            Some(Token { expires_ms: Some(at), .. }) if *at <= clock::wall_ms() => Verdict::Expired,
            Some(Token { identity, .. }) => Verdict::Known(Arc::clone(identity)),
        }
    }
}

impl Entry {
    fn checked(self) -> Result<Token, String> {
        let Self { name, sha256, scopes, queues, expires } = self;
        let hash = unhex(&sha256).ok_or_else(|| {
            format!("`sha256` of the token `{name}` has 64 hexadecimal digits: it is what `printf %s TOKEN | sha256sum` prints")
        })?;
        let instant = |text: String| {
            let at: Result<jiff::Timestamp, _> = text.parse();
            let at = at.map_err(|error| format!("`expires` of the token `{name}`: {error}"))?;
            // What lies before 1970 has expired.
            Ok::<_, String>(u64::try_from(at.as_millisecond()).unwrap_or(0))
        };
        let expires_ms = expires.map(instant).transpose()?;
        let identity = Arc::new(Identity { name: Some(name), scopes, queues });
        Ok(Token { hash, expires_ms, identity })
    }
}

/// What is kept of a token.
fn hash(token: &[u8]) -> Hash {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    let digits = text.as_bytes();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(token: &str) -> String {
        hash(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn entry(more: &str) -> String {
        let sha256 = hex("secret");
        format!(r#"{{"tokens":[{{"name":"n","sha256":"{sha256}"{more}}}]}}"#)
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        assert_eq!(hex("test"), "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
        let file = entry(r#","scopes":["submit","read"],"queues":["a"]"#);
        let tokens = Tokens::parse(file.as_bytes()).unwrap();
        let Verdict::Known(identity) = tokens.find(b"secret") else { panic!("it is unknown") };
        assert_eq!(identity.name.as_deref(), Some("n"));
        let may = Scope::ALL.map(|scope| identity.may(scope));
        assert_eq!(may, [true, false, true, false]);
        assert!(identity.may_use("a") && !identity.may_use("b"));
        for other in ["", "secret ", "Secret", "secre", &hex("secret")] {
            assert_eq!(tokens.find(other.as_bytes()), Verdict::Unknown, "{other}");
        }
        assert!(!format!("{tokens:?}").contains("secret"));
    }

    #[test]
    fn admin_includes_the_other_scopes_and_a_token_expires() {
        let tokens = |more: &str| Tokens::parse(entry(more).as_bytes()).unwrap();
        let ahead = tokens(r#","scopes":["admin"],"expires":"2999-01-01T00:00:00Z""#);
        let Verdict::Known(identity) = ahead.find(b"secret") else { panic!("it is unknown") };
        assert!(Scope::ALL.into_iter().all(|scope| identity.may(scope)));
        for past in ["2020-01-01T00:00:00Z", "1960-01-01T00:00:00+01:00"] {
            let past = tokens(&format!(r#","scopes":["admin"],"expires":"{past}""#));
            assert_eq!(past.find(b"secret"), Verdict::Expired);
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
            let refused = Tokens::parse(file.as_bytes()).unwrap_err();
            assert!(refused.contains(says), "{file}: {refused}");
        }
        let none = Tokens::read(Path::new("/does/not/exist")).unwrap_err();
        assert!(none.to_string().contains("/does/not/exist"), "{none}");
    }
}

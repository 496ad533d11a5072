//! The file of the gateway's tokens: JSON, with the SHA-256 of each token, never the token itself.
//!
//! ```json
//! {"tokens": [
//!   {"name": "ci", "sha256": "9f86d0…", "scopes": ["submit", "read"], "queues": ["mails"],
//!    "expires": "2027-01-01T00:00:00Z"}
//! ]}
//! ```

use super::TokenScope;
use super::tokens::hash;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

/// The most tokens: each request is compared with all of them.
const TOKENS_MAX: usize = 1_000;

/// The maximum size of the file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The prefix of tokens, by which secret scanners recognize them.
const PREFIX: &str = "lh_";

/// The number of random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the token file {path} cannot be used: {problem}", path = path.display())]
pub struct TokenFileError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: String,
}

/// One token in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TokenEntry {
    /// The token's operator in the log of actions. Two tokens may have the same name: a new one is
    /// valid beside the old one until all callers use it.
    pub name: String,
    /// The SHA-256 of the token in 64 hexadecimal digits.
    pub sha256: String,
    /// The token's scopes.
    pub scopes: BTreeSet<TokenScope>,
    /// The queues that it is bound to; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeSet<String>>,
    /// When it expires, as an instant of RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl TokenEntry {
    /// An entry of this name, without a hash yet: [`TokenFile::create`] sets it.
    #[must_use]
    pub fn new(name: impl Into<String>, scopes: BTreeSet<TokenScope>) -> Self {
        let (name, sha256) = (name.into(), String::new());
        Self { name, sha256, scopes, queues: None, expires: None }
    }

    /// The first digits of its hash, which tell it from others of its name.
    #[must_use]
    pub fn id(&self) -> &str {
        self.sha256.get(..8).unwrap_or(&self.sha256)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenDocument {
    tokens: Vec<TokenEntry>,
}

/// The token file, for reading and changing it. Running gateways read it again after a change.
///
/// ```
/// use longhaul_server::{TokenEntry, TokenFile, TokenScope};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tokens.json");
/// let mut file = TokenFile::open_or_new(&path)?;
/// let token = file.create(TokenEntry::new("ci", [TokenScope::Submit, TokenScope::Read].into()))?;
/// file.write()?;
/// assert!(token.starts_with("lh_"));
/// assert!(!std::fs::read_to_string(&path)?.contains(&token));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    entries: Vec<TokenEntry>,
    /// The content read; `None` if there was no file.
    read: Option<Vec<u8>>,
}

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, is not a token file, or is larger than a gateway accepts.
    pub fn open(path: &Path) -> Result<Self, TokenFileError> {
        let unusable = |problem: String| TokenFileError { path: path.to_owned(), problem };
        let bytes = bytes_of(path).map_err(|error| unusable(error.to_string()))?;
        let entries = parse(&bytes).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), entries, read: Some(bytes) })
    }

    /// Reads a file, or starts a new one if there is none.
    ///
    /// # Errors
    /// As [`TokenFile::open`].
    pub fn open_or_new(path: &Path) -> Result<Self, TokenFileError> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Self { path: path.to_owned(), entries: Vec::new(), read: None })
            }
            Ok(_) | Err(_) => Self::open(path),
        }
    }

    /// The tokens, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[TokenEntry] {
        &self.entries
    }

    /// Adds a token and returns it: only its hash is kept.
    ///
    /// # Errors
    /// When a gateway would not accept the entry, or there are too many.
    pub fn create(&mut self, mut entry: TokenEntry) -> Result<String, TokenFileError> {
        let mut random = [0; TOKEN_BYTES];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| self.unusable("the system gave no random bytes".to_owned()))?;
        let token = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        entry.sha256 = hash(token.as_bytes());
        entry.checked().map_err(|problem| self.unusable(problem))?;
        let count = self.entries.len() + 1;
        limited(count).map_err(|problem| self.unusable(problem))?;
        self.entries.push(entry);
        Ok(token)
    }

    /// Removes the tokens with this name or [`id`](TokenEntry::id), and returns them.
    pub fn revoke(&mut self, name_or_id: &str) -> Vec<TokenEntry> {
        let is_meant = |it: &mut TokenEntry| it.name == name_or_id || it.id() == name_or_id;
        self.entries.extract_if(.., is_meant).collect()
    }

    /// Replaces the file atomically, with the owner and permissions of the old one. A new file is
    /// only for its owner.
    ///
    /// # Errors
    /// When the file cannot be written, or was changed since it was read.
    pub fn write(&mut self) -> Result<(), TokenFileError> {
        let document = TokenDocument { tokens: self.entries.clone() };
        let mut text = serde_json::to_vec_pretty(&document)
            .map_err(|error| self.unusable(error.to_string()))?;
        text.push(b'\n');
        let now = match bytes_of(&self.path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(self.unusable(error.to_string())),
        };
        if now != self.read {
            return Err(self.unusable(
                "another program changed the file meanwhile; run the command again".to_owned(),
            ));
        }
        self.replace(&text).map_err(|error| self.unusable(error.to_string()))?;
        self.read = Some(text);
        Ok(())
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        // If the path is a link, its target is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))?;
        file.write_all(text)?;
        if self.read.is_some() {
            let former = fs::metadata(&path)?;
            let own = file.as_file().metadata()?;
            if (former.uid(), former.gid()) != (own.uid(), own.gid()) {
                chown(file.path(), Some(former.uid()), Some(former.gid()))?;
            }
            file.as_file().set_permissions(former.permissions())?;
        }
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    }

    fn unusable(&self, problem: String) -> TokenFileError {
        TokenFileError { path: self.path.clone(), problem }
    }
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn limited(count: usize) -> Result<(), String> {
    match count > TOKENS_MAX {
        true => Err(format!("it has {count} tokens; the limit is {TOKENS_MAX}")),
        false => Ok(()),
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Vec<TokenEntry>, String> {
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    // Some editors begin a file with a byte order mark.
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let TokenDocument { tokens } =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    limited(tokens.len())?;
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entry(name: &str) -> TokenEntry {
        TokenEntry::new(name, [TokenScope::Read].into())
    }

    /// The file in the documentation.
    #[test]
    fn the_file_of_the_documentation_is_read() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, block) = page.split_once("<!-- test: tokens -->\n  ```json\n").unwrap();
        let (file, _) = block.split_once("```").unwrap();
        let [token] = <[TokenEntry; 1]>::try_from(parse(file.as_bytes()).unwrap()).unwrap();
        // As an editor may write it.
        let marked = format!("\u{feff}{file}");
        assert_eq!(parse(marked.as_bytes()).unwrap().len(), 1);
        assert_eq!(token.name, "ci");
        assert_eq!(token.queues, Some(["mails".to_owned()].into()));
    }

    #[test]
    fn tokens_are_made_told_once_and_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        assert!(TokenFile::open(&path).is_err());
        let mut file = TokenFile::open_or_new(&path).unwrap();
        let queues = Some(["mails".to_owned()].into());
        let first = TokenEntry { queues: queues.clone(), ..entry("ci") };
        let tokens = [file.create(first).unwrap(), file.create(entry("ci")).unwrap()];
        assert_ne!(tokens[0], tokens[1]);
        file.create(entry("ann")).unwrap();
        file.write().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(tokens.iter().all(|token| !text.contains(token.as_str())), "{text}");

        let mut file = TokenFile::open(&path).unwrap();
        let names: Vec<_> = file.entries().iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names, &file.entries()[0].queues), (vec!["ci", "ci", "ann"], &queues));
        let id = file.entries()[0].id().to_owned();
        assert_eq!(file.revoke(&id).len(), 1);
        assert_eq!(file.revoke("nobody"), []);
        assert_eq!(file.revoke("ci").len(), 1);
        file.write().unwrap();
        assert_eq!(TokenFile::open(&path).unwrap().entries().len(), 1);
    }

    /// Of two concurrent changes, the second must not undo the first.
    #[test]
    fn a_file_that_was_changed_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let mut open = [(); 2].map(|()| TokenFile::open_or_new(&path).unwrap());
        for file in &mut open {
            file.create(entry("n")).unwrap();
        }
        let [mut first, mut second] = open;
        first.write().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = second.write().unwrap_err().to_string();
        assert!(refused.contains("changed the file meanwhile"), "{refused}");
        first.create(entry("m")).unwrap();
        first.write().unwrap();
        assert_eq!(TokenFile::open(&path).unwrap().entries().len(), 2);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_a_gateway_would_refuse_is_not_made() {
        let mut file = TokenFile::open_or_new(Path::new("/does/not/exist/tokens.json")).unwrap();
        let soon = TokenEntry { expires: Some("soon".to_owned()), ..entry("n") };
        assert!(file.create(soon).unwrap_err().to_string().contains("`expires`"));
        for _ in 0..TOKENS_MAX {
            file.create(entry("n")).unwrap();
        }
        assert!(file.create(entry("n")).unwrap_err().to_string().contains("the limit is 1000"));
        assert!(file.write().is_err());
    }
}

//! Documents: the parts of a queue that people change, such as its schedules and its settings. Each
//! has a kind, a name, a version and a content, which the fold does not interpret.
//!
//! Each version is an entry under a key of its own:
//! `doc/<kind>/<name>/<version>/<writer>/<serial>`.
//!
//! | entry | accepted iff | else |
//! |---|---|---|
//! | document | its version is above the current one | ignored: the first of a version counts |
//! | tombstone | never: the entry that it names can no longer be removed | |
//!
//! To change a document, publish the version after the one read, and read back whether it was
//! accepted. A document is deleted by a version without content. That version stays, so that
//! entries published before the deletion and stored behind it are not accepted.
//!
//! A drain request ([`DocumentKind::Drain`]) is for one process only. After that process has gone
//! no other obeys it, whatever its content, so all its entries may be removed, including the
//! current one.
//!
//! A document that its users cannot read has no effect for them: the first entry with the highest
//! version of the readable ones applies, and is kept.
//!
//! **Why entries may be removed**: the current entry is the first one with the highest version of
//! all that were read. Leaving out any other entry does not change that, neither now nor behind any
//! further entry. So any reader that has read the current entry may publish tombstones for all
//! others.

use super::entry::{Stamp, number};
use super::keys::{RegisterIgnoredReason, RegisterVerdict};
use crate::protocol::key::parse_owner;
use crate::protocol::register::Digest;
use crate::task::WorkerIdentity;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;

/// The longest name of a document, in bytes. Keys derived from a name, such as those of a
/// schedule's tasks, must have room for more.
const NAME_BYTES_MAX: usize = 200;

/// The subject of a document. Entries of a kind that this version does not know are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DocumentKind {
    /// A schedule, by its name.
    Schedule,
    /// Settings of the queue.
    Settings,
    /// Requests a drain of the worker with this instance name.
    Drain,
}

/// The name of a document: 1 to 200 bytes, unique within its kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentName {
    kind: DocumentKind,
    text: Box<str>,
}

/// The name is empty, or longer than 200 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a document has 1 to {NAME_BYTES_MAX} bytes, this one has {0}")]
pub struct DocumentNameError(pub usize);

/// The key of one version of a document, by one publish.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentKey {
    /// The document.
    pub name: DocumentName,
    /// Counts the changes, from 1.
    pub version: u64,
    /// Makes the entry's key unique.
    pub stamp: Stamp,
}

/// A version of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Document {
    /// The document and version.
    pub key: DocumentKey,
    /// The content: JSON. Empty if the document is deleted.
    pub content: Bytes,
}

impl DocumentKind {
    const ALL: [Self; 3] = [Self::Schedule, Self::Settings, Self::Drain];

    const fn word(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Settings => "settings",
            Self::Drain => "drain",
        }
    }
}

impl DocumentName {
    /// Creates a name.
    ///
    /// # Errors
    /// If it is empty or longer than 200 bytes.
    pub fn new(kind: DocumentKind, text: impl Into<Box<str>>) -> Result<Self, DocumentNameError> {
        let text = text.into();
        if !(1..=NAME_BYTES_MAX).contains(&text.len()) {
            return Err(DocumentNameError(text.len()));
        }
        Ok(Self { kind, text })
    }

    /// The settings of the register's queue.
    #[must_use]
    pub fn queue_settings() -> Self {
        Self { kind: DocumentKind::Settings, text: "queue".into() }
    }

    /// The drain request for a worker that leases its tasks, by name and instance: a lessee may say
    /// the instance of another worker.
    #[must_use]
    pub fn drain_of_lessee(worker: &WorkerIdentity) -> Self {
        let WorkerIdentity { name, instance, .. } = worker;
        let digest = Digest::of(format!("{instance}\u{1f}{name}").as_bytes()).0;
        Self { kind: DocumentKind::Drain, text: format!("leases/{digest:032x}").into() }
    }

    /// The kind of the document.
    #[must_use]
    pub const fn kind(&self) -> DocumentKind {
        self.kind
    }

    /// The name without the kind.
    #[must_use]
    pub const fn text(&self) -> &str {
        &self.text
    }

    fn key(&self, (version, stamp): (u64, Stamp)) -> DocumentKey {
        DocumentKey { name: self.clone(), version, stamp }
    }
}

impl fmt::Display for DocumentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.text)
    }
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, stamp } = self;
        write!(f, "{name}/{version}/{stamp}")
    }
}

impl DocumentKey {
    /// Parses the part of the key after `doc/`. A name may contain slashes, so it is read from the
    /// end.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        let kind = DocumentKind::ALL.into_iter().find(|known| known.word() == kind)?;
        let mut parts = rest.rsplitn(4, '/');
        let (serial, writer) = (number(parts.next()?)?, parse_owner(parts.next()?)?);
        let version = number(parts.next()?)?;
        let name = DocumentName::new(kind, parts.next()?).ok()?;
        Some(Self { name, version, stamp: Stamp { writer, serial } })
    }
}

/// The fold of all documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Documents {
    documents: BTreeMap<DocumentName, DocumentFold>,
}

/// The state of one document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DocumentFold {
    version: u64,
    stamp: Stamp,
    content: Bytes,
    /// Whether its users can read it.
    readable: bool,
    /// If not: the first entry with the highest version of the readable ones.
    before: Option<(u64, Stamp, Bytes)>,
    /// Entries that have no effect any more, or never had, and may be removed. Mostly none.
    rest: Vec<(u64, Stamp)>,
}

impl Documents {
    /// The content of a document; `None` if there is none, or it is deleted.
    #[must_use]
    pub fn get(&self, name: &DocumentName) -> Option<&Bytes> {
        self.documents
            .get(name)
            .map(|standing| &standing.content)
            .filter(|content| !content.is_empty())
    }

    /// The content that applies: the last readable version. `None` if there is none, or it is a
    /// deletion.
    #[must_use]
    pub fn readable(&self, name: &DocumentName) -> Option<&Bytes> {
        let standing = self.documents.get(name)?;
        let before = standing.before.as_ref().map(|(_, _, content)| content);
        let content = if standing.readable { Some(&standing.content) } else { before };
        content.filter(|content| !content.is_empty())
    }

    /// The current version, including a deletion's; 0 if there was never one.
    #[must_use]
    pub fn version(&self, name: &DocumentName) -> u64 {
        self.documents.get(name).map_or(0, |standing| standing.version)
    }

    /// All documents of a kind that are not deleted: name, version, content.
    pub fn of(&self, kind: DocumentKind) -> impl Iterator<Item = (&DocumentName, u64, &Bytes)> {
        let all = self.documents.iter();
        let of_kind =
            all.filter(move |(name, standing)| name.kind == kind && !standing.content.is_empty());
        of_kind.map(|(name, standing)| (name, standing.version, &standing.content))
    }

    /// The entries of a document for which any reader may publish tombstones.
    #[must_use]
    pub fn removable(&self, name: &DocumentName) -> Vec<DocumentKey> {
        let Some(standing) = self.documents.get(name) else { return Vec::new() };
        let needed = standing.before.as_ref().map(|(version, stamp, _)| (*version, *stamp));
        let rest = standing.rest.iter().copied().filter(|of| Some(*of) != needed);
        rest.map(|of| name.key(of)).collect()
    }

    /// All entries of a document: the current one and the removable ones before it.
    #[must_use]
    pub fn entries(&self, name: &DocumentName) -> Vec<DocumentKey> {
        let Some(standing) = self.documents.get(name) else { return Vec::new() };
        let rest = standing.rest.iter().copied();
        rest.chain([(standing.version, standing.stamp)]).map(|of| name.key(of)).collect()
    }

    /// Handles the next version in log order. If it cannot be read the one before still applies.
    pub(super) fn apply(
        &mut self,
        Document { key, content }: &Document,
        readable: bool,
    ) -> RegisterVerdict {
        let DocumentKey { name, version, stamp } = key;
        let Some(standing) = self.documents.get_mut(name) else {
            if *version == 0 {
                return RegisterVerdict::Ignored(RegisterIgnoredReason::Outdated);
            }
            let (version, stamp, content) = (*version, *stamp, content.clone());
            let (before, rest) = (None, Vec::new());
            let standing = DocumentFold { version, stamp, content, readable, before, rest };
            self.documents.insert(name.clone(), standing);
            return RegisterVerdict::Accepted;
        };
        if *version <= standing.version {
            standing.rest.push((*version, *stamp));
            let before = standing.before.as_ref().map(|(version, ..)| version);
            if readable && !standing.readable && before.is_none_or(|before| version > before) {
                standing.before = Some((*version, *stamp, content.clone()));
            }
            return RegisterVerdict::Ignored(RegisterIgnoredReason::Outdated);
        }
        standing.rest.push((standing.version, standing.stamp));
        let content = std::mem::replace(&mut standing.content, content.clone());
        if readable {
            standing.before = None;
        } else if standing.readable {
            // A deletion as well: otherwise a reader might use the version before it.
            standing.before = Some((standing.version, standing.stamp, content));
        }
        (standing.version, standing.stamp, standing.readable) = (*version, *stamp, readable);
        RegisterVerdict::Accepted
    }

    /// Handles the removal of an entry.
    pub(super) fn forget(&mut self, key: &DocumentKey) -> RegisterVerdict {
        if let Some(standing) = self.documents.get_mut(&key.name) {
            standing.rest.retain(|rest| *rest != (key.version, key.stamp));
            let is_standing = (standing.version, standing.stamp) == (key.version, key.stamp);
            if is_standing && key.name.kind == DocumentKind::Drain {
                self.documents.remove(&key.name);
            }
        }
        RegisterVerdict::Ignored(RegisterIgnoredReason::Tombstone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Register, RegisterEntry, RegisterKey};
    use super::*;
    use crate::protocol::key::OwnerId;
    use crate::task::Position;
    use proptest::prelude::*;

    fn name(text: &str) -> DocumentName {
        DocumentName::new(DocumentKind::Schedule, text).unwrap()
    }

    fn document(text: &str, version: u64, serial: u64) -> Document {
        let stamp = Stamp { writer: OwnerId(7), serial };
        let key = DocumentKey { name: name(text), version, stamp };
        Document { key, content: Bytes::from(format!("{text} {version} {serial}")) }
    }

    fn deleted(text: &str, version: u64, serial: u64) -> Document {
        Document { content: Bytes::new(), ..document(text, version, serial) }
    }

    #[test]
    fn the_first_entry_of_the_highest_version_stands() {
        let mut documents = Documents::default();
        assert_eq!((documents.version(&name("a")), documents.get(&name("a"))), (0, None));
        let outdated = RegisterVerdict::Ignored(RegisterIgnoredReason::Outdated);
        let log = [
            (document("a", 0, 0), outdated, 0),
            (document("a", 1, 1), RegisterVerdict::Accepted, 1),
            (document("a", 1, 2), outdated, 1),
            (document("b", 1, 3), RegisterVerdict::Accepted, 1),
            (document("a", 2, 4), RegisterVerdict::Accepted, 2),
            (document("a", 1, 5), outdated, 2),
        ];
        for (entry, verdict, version) in log {
            assert_eq!(documents.apply(&entry, true), verdict, "{entry:?}");
            assert_eq!(documents.version(&entry.key.name), version, "{entry:?}");
        }
        assert_eq!(documents.get(&name("a")).unwrap(), "a 2 4");
        let removable: Vec<u64> =
            documents.removable(&name("a")).into_iter().map(|key| key.stamp.serial).collect();
        assert_eq!(removable, [2, 1, 5]);
        assert_eq!(documents.of(DocumentKind::Schedule).count(), 2);
        assert_eq!(documents.of(DocumentKind::Settings).count(), 0);
    }

    #[test]
    fn what_nobody_can_read_replaces_nothing() {
        let mut documents = Documents::default();
        let a = name("a");
        documents.apply(&document("a", 1, 1), false);
        assert_eq!((documents.version(&a), documents.readable(&a)), (1, None));
        for (version, readable, says) in
            [(2, true, "a 2 2"), (3, false, "a 2 2"), (4, false, "a 2 2"), (5, true, "a 5 5")]
        {
            documents.apply(&document("a", version, version), readable);
            assert_eq!(documents.readable(&a).unwrap(), says);
            let kept = documents.removable(&a).iter().all(|key| key.version != 2);
            assert_eq!(kept, version < 5, "version {version}");
        }
        documents.apply(&deleted("a", 6, 6), true);
        documents.apply(&document("a", 7, 7), false);
        assert_eq!((documents.version(&a), documents.readable(&a)), (7, None));
    }

    /// Earlier, a version published before the deletion and stored behind it would have restored
    /// the document.
    #[test]
    fn what_is_deleted_stays_deleted_until_it_is_made_anew() {
        let mut documents = Documents::default();
        for entry in [document("a", 1, 1), deleted("a", 2, 2), document("a", 2, 3)] {
            documents.apply(&entry, true);
        }
        assert_eq!((documents.version(&name("a")), documents.get(&name("a"))), (2, None));
        assert_eq!(documents.of(DocumentKind::Schedule).count(), 0);
        documents.apply(&document("a", 3, 4), true);
        assert_eq!(documents.get(&name("a")).unwrap(), "a 3 4");
    }

    /// The drain request for a worker that has gone would stay for ever, one for each worker ever
    /// drained.
    #[test]
    fn a_drain_request_is_removed_as_a_whole() {
        let mut documents = Documents::default();
        let request = DocumentName::new(DocumentKind::Drain, "9f8e7d6c5b4a3921").unwrap();
        let schedule = name("a");
        for (of, version, serial) in [(&request, 1, 1), (&request, 1, 2), (&schedule, 1, 3)] {
            let mut entry = document("a", version, serial);
            entry.key.name = of.clone();
            documents.apply(&entry, true);
        }
        let serials = |keys: &[DocumentKey]| -> Vec<u64> {
            keys.iter().map(|key| key.stamp.serial).collect()
        };
        let (requests, schedules) = (documents.entries(&request), documents.entries(&schedule));
        assert_eq!((serials(&requests), serials(&schedules)), (vec![2, 1], vec![3]));
        for key in requests.iter().chain(&schedules) {
            documents.forget(key);
        }
        assert_eq!((documents.version(&request), documents.get(&request)), (0, None));
        assert_eq!(documents.version(&schedule), 1, "what stands of others stays");
    }

    #[test]
    fn a_name_has_one_to_200_bytes_and_may_hold_slashes() {
        for (bytes, fits) in [(0, false), (1, true), (200, true), (201, false)] {
            let name = DocumentName::new(DocumentKind::Settings, "x".repeat(bytes));
            assert_eq!(name.is_ok(), fits, "{bytes}");
        }
        let key = document("a/1/b//", 3, 9).key;
        assert_eq!(DocumentKey::parse(&key.to_string()), Some(key));
    }

    #[test]
    fn a_kind_of_a_later_version_is_no_entry() {
        let key = RegisterKey::Document(document("a", 1, 1).key).to_string();
        let unknown = key.replacen("schedule", "recipe", 1);
        assert!(key.parse::<RegisterKey>().is_ok());
        assert!(unknown.parse::<RegisterKey>().is_err(), "{unknown}");
    }

    /// The final state of a reader of a log in which some entries were removed.
    fn end_of<'a>(
        log: impl Iterator<Item = (u64, &'a RegisterEntry)>,
    ) -> (u64, [Option<Bytes>; 2]) {
        let mut register = Register::default();
        for (at, entry) in log {
            register.apply(entry, Position { ledger: 0, entry: at, batch_index: None });
        }
        let documents = register.documents();
        let name = DocumentName::queue_settings();
        let says = [documents.get(&name), documents.readable(&name)];
        (documents.version(&name), says.map(|content| content.cloned()))
    }

    proptest! {
        /// C-02 for documents. A reader that has read the log up to some place removes the entries
        /// that are removable there; compaction comes at any later time. A reader that has read up
        /// to any place before that, and one that begins later, end with the same state.
        #[test]
        fn what_is_removed_changes_nothing_for_any_reader(
            versions in proptest::collection::vec((1..6_u64, 0..4_u8), 1..16),
            removed_at in any::<proptest::sample::Index>(),
            removed in any::<u16>(),
        ) {
            let entries = versions.iter().zip(1..).map(|((version, kind), serial)| {
                let content = match kind {
                    0 => String::new(),
                    1 => format!("nobody can read this, {serial}"),
                    _ => format!("{{\"maxAttempts\":{serial}}}"),
                };
                let mut document = document("a", *version, serial);
                document.key.name = DocumentName::queue_settings();
                RegisterEntry::Document(Document { content: content.into(), ..document })
            });
            let log: Vec<RegisterEntry> = entries.collect();
            let seen = removed_at.index(log.len()) + 1;
            let mut register = Register::default();
            for (entry, at) in log[..seen].iter().zip(1..) {
                register.apply(entry, Position { ledger: 0, entry: at, batch_index: None });
            }
            let removable = register.documents().removable(&DocumentName::queue_settings());
            let chosen = removable.into_iter().enumerate().filter(|(bit, _)| removed >> bit & 1 == 1);
            let gone: Vec<RegisterKey> = chosen.map(|(_, key)| RegisterKey::Document(key)).collect();
            let tombstones: Vec<RegisterEntry> = gone.iter().cloned().map(RegisterEntry::Tombstone).collect();
            // They come behind the entries that their publisher has read; entries of others may
            // come between.
            let whole: Vec<&RegisterEntry> = log.iter().chain(&tombstones).collect();
            let expected = end_of((1..).zip(log.iter()));
            for from in 0..=whole.len() {
                let read = |(at, entry): &(u64, &RegisterEntry)| {
                    *at <= from as u64 || !gone.contains(&entry.key())
                };
                let ended = end_of((1..).zip(whole.iter().copied()).filter(read));
                prop_assert_eq!(&ended, &expected, "a reader that had read {} entries", from);
            }
        }
    }
}

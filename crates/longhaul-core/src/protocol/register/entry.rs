//! Entries of the register, and their form as messages. The properties describe the entry; the body
//! is a form byte, followed by the content of a document.
//!
//! | property | meaning |
//! |---|---|
//! | `k` | kind: `bind`, `release`, `period`, `start`, `doc`, `ticket` |
//! | `h` | of a bind: digest of the task's payload, 32 hexadecimal digits; may be missing |
//! | `o` | of a bind: `1` if the task is an overwriter; else missing |
//! | `t` | of a ticket: the name of the task's topic |
//!
//! Keys: `bind@<period>/<idem or dedupe>/<name>/<epoch>/<task>/<writer>/<serial>`, in period 0
//! without `@0`, the same with `release`; `period/<number>/<writer>/<serial>`;
//! `start/<writer>/<serial>`; `doc/<kind>/<name>/<version>/<writer>/<serial>` with the document
//! behind the form byte;
//! `ticket/<slots or pace>/<queue, or key/<name>>/<task>/<owner>/<writer>/<serial>`.
//! A task on the topic of a level is written with the level in front ([`QueueTask`]); in a ticket
//! its topic is named instead. A name may hold any text, slashes too, so such a key is read from its
//! end.

use super::documents::{Document, DocumentKey};
use super::gates::Ticket;
use super::queue_task::QueueTask;
use crate::protocol::body;
use crate::protocol::entry::EntryError;
use crate::protocol::key::{Epoch, OwnerId, parse_owner};
use crate::task::{Properties, PropertyWriter};
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name of a key, in bytes.
pub(super) const KEY_NAME_BYTES_MAX: usize = 256;

/// An entry of the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterEntry {
    /// The first entry of a register, which identifies it. Never removed.
    Start(Stamp),
    /// Begins the next period of the register. Never removed.
    Period(Period, Stamp),
    /// Requests that a task holds a key, or keeps holding it.
    Bind(Hold),
    /// Declares that the holder of a key no longer holds it.
    Release(HoldKey),
    /// The next version of a document.
    Document(Document),
    /// The ticket for a task that a worker is about to claim, where a limit applies; with the name
    /// of the task's topic.
    Ticket(Ticket, Box<str>),
    /// Removes a key that is no longer needed.
    Tombstone(RegisterKey),
}

/// Makes a key unique: the publisher, and a counter of the publisher that never repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// The publisher: 128 random bits, drawn again by each process.
    pub writer: OwnerId,
    /// Counter of that writer.
    pub serial: u64,
}

/// Counts the periods of a register, from zero; an [`RegisterEntry::Period`] begins each. They are
/// the clock of the register, the same for all readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period(pub u32);

impl Period {
    /// The next period.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of a key. The same text may be a key of each kind; the two are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// For one task, until the key is forgotten, long after the task's end.
    Idempotency,
    /// For one unfinished task.
    Dedupe,
}

/// The name of a key, as its submitter chose it: 1 to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyName {
    kind: KeyKind,
    text: Arc<str>,
}

/// The name is empty, or longer than 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key has 1 to {KEY_NAME_BYTES_MAX} bytes, this one has {0}")]
pub struct KeyNameError(pub usize);

/// The key of a bind or a release.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldKey {
    /// The key.
    pub name: KeyName,
    /// The period of the register that the writer had read.
    pub period: Period,
    /// Numbers the holders of the key.
    pub epoch: Epoch,
    /// The task that requests the key, or held it.
    pub task: QueueTask,
    /// Makes the entry's key unique.
    pub stamp: Stamp,
}

/// Requests that a task holds a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Key, task and epoch.
    pub key: HoldKey,
    /// The digest of the task's payload, to tell another task with the same key from a repetition.
    pub digest: Option<Digest>,
    /// Whether the task replaces an earlier one of its lane that holds the key.
    pub overwrites: bool,
}

/// A digest of a payload: FNV-1a of 128 bits. It detects accidents, not attacks: a submitter may
/// write anything here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        Self(bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }
}

/// The key of an entry: used by exactly one publish, ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegisterKey {
    /// See [`RegisterEntry::Start`].
    Start(Stamp),
    /// See [`RegisterEntry::Period`].
    Period(Period, Stamp),
    /// See [`RegisterEntry::Bind`].
    Hold(HoldKey),
    /// See [`RegisterEntry::Release`].
    Release(HoldKey),
    /// See [`RegisterEntry::Document`].
    Document(DocumentKey),
    /// See [`RegisterEntry::Ticket`].
    Ticket(Ticket),
}

impl KeyKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Idempotency => "idem",
            Self::Dedupe => "dedupe",
        }
    }
}

impl KeyName {
    /// Prefix of the keys of all firings of schedules.
    pub(crate) const OF_FIRINGS: &str = "schedule/";
    /// Prefix of the keys of all replays of dead letters.
    pub const OF_REPLAYS: &str = "dlq/";

    /// Creates a name.
    ///
    /// # Errors
    /// If it is empty or longer than 256 bytes.
    pub fn new(kind: KeyKind, text: impl Into<Arc<str>>) -> Result<Self, KeyNameError> {
        let text = text.into();
        if !(1..=KEY_NAME_BYTES_MAX).contains(&text.len()) {
            return Err(KeyNameError(text.len()));
        }
        Ok(Self { kind, text })
    }

    /// The submitter's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name for the replay of a dead letter: `text` is made of a task's id, which is short.
    pub fn of_replay(text: String) -> Self {
        Self { kind: KeyKind::Idempotency, text: text.into() }
    }

    /// The kind of the key.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Whether the key is never forgotten. Otherwise a slot of a schedule would be fired again,
    /// because its task is over and the schedule remains; and a dead letter that is kept may be
    /// replayed at any time. Every reader decides this by the name alone.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        let reserved = [Self::OF_FIRINGS, Self::OF_REPLAYS];
        self.kind == KeyKind::Idempotency
            && reserved.iter().any(|prefix| self.text.starts_with(prefix))
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.text)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.writer, self.serial)
    }
}

impl HoldKey {
    /// The first period is not written, because entries from before there were periods do not have
    /// one.
    fn write(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        let Self { name, period, epoch, task, stamp } = self;
        f.write_str(kind)?;
        if *period != Period::default() {
            write!(f, "@{period}")?;
        }
        write!(f, "/{name}/{epoch}/{task}/{stamp}")
    }
}

impl fmt::Display for RegisterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(stamp) => write!(f, "start/{stamp}"),
            Self::Period(period, stamp) => write!(f, "period/{period}/{stamp}"),
            Self::Hold(key) => key.write(f, "bind"),
            Self::Release(key) => key.write(f, "release"),
            Self::Document(key) => write!(f, "doc/{key}"),
            Self::Ticket(ticket) => write!(f, "ticket/{ticket}"),
        }
    }
}

impl FromStr for RegisterKey {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        parse(text).ok_or(EntryError::Key)
    }
}

fn parse(text: &str) -> Option<RegisterKey> {
    let (kind, rest) = text.split_once('/')?;
    match kind {
        "start" => parse_stamp(rest).map(RegisterKey::Start),
        "period" => {
            let (period, stamp) = rest.split_once('/')?;
            Some(RegisterKey::Period(Period(number(period)?), parse_stamp(stamp)?))
        }
        "doc" => DocumentKey::parse(rest).map(RegisterKey::Document),
        "ticket" => Ticket::parse(rest).map(RegisterKey::Ticket),
        _ => {
            let (kind, period) = parse_period(kind)?;
            let hold = parse_hold(period, rest)?;
            match kind {
                "bind" => Some(RegisterKey::Hold(hold)),
                "release" => Some(RegisterKey::Release(hold)),
                _ => None,
            }
        }
    }
}

/// Reads the text form of a stamp.
fn parse_stamp(text: &str) -> Option<Stamp> {
    let (writer, serial) = text.split_once('/')?;
    Some(Stamp { writer: parse_owner(writer)?, serial: number(serial)? })
}

/// Parses the kind and the period as [`HoldKey::write`] writes them.
fn parse_period(text: &str) -> Option<(&str, Period)> {
    match text.split_once('@') {
        Some((kind, period)) => Some((kind, Period(number(period).filter(|number| *number > 0)?))),
        None => Some((text, Period::default())),
    }
}

fn parse_hold(period: Period, text: &str) -> Option<HoldKey> {
    let (kind, rest) = text.split_once('/')?;
    let kind =
        [KeyKind::Idempotency, KeyKind::Dedupe].into_iter().find(|known| known.word() == kind)?;
    let mut parts = rest.rsplitn(5, '/');
    let (serial, writer) = (number(parts.next()?)?, parse_owner(parts.next()?)?);
    let (task, epoch) = (parts.next()?.parse().ok()?, number(parts.next()?)?);
    let name = KeyName::new(kind, parts.next()?).ok()?;
    let stamp = Stamp { writer, serial };
    Some(HoldKey { name, period, epoch: Epoch(epoch), task, stamp })
}

/// A key has exactly one text form; compaction would treat two forms as two keys.
pub(super) fn number<N: FromStr + fmt::Display>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl RegisterKey {
    /// The key and task of a bind or release.
    #[must_use]
    pub const fn hold(&self) -> Option<&HoldKey> {
        match self {
            Self::Hold(key) | Self::Release(key) => Some(key),
            Self::Start(_) | Self::Period(..) | Self::Document(_) | Self::Ticket(_) => None,
        }
    }
}

impl RegisterEntry {
    /// Sets whether a bind is an overwriter's. Leaves any other entry unchanged.
    #[must_use]
    pub fn overwriting(mut self, overwrites: bool) -> Self {
        if let Self::Bind(hold) = &mut self {
            hold.overwrites = overwrites;
        }
        self
    }

    /// The key under which the entry is published.
    #[must_use]
    pub fn key(&self) -> RegisterKey {
        match self {
            Self::Start(stamp) => RegisterKey::Start(*stamp),
            Self::Period(period, stamp) => RegisterKey::Period(*period, *stamp),
            Self::Bind(hold) => RegisterKey::Hold(hold.key.clone()),
            Self::Release(key) => RegisterKey::Release(key.clone()),
            Self::Document(document) => RegisterKey::Document(document.key.clone()),
            Self::Ticket(ticket, _) => RegisterKey::Ticket(ticket.clone()),
            Self::Tombstone(key) => key.clone(),
        }
    }

    /// The properties of the entry's message. A tombstone has none.
    #[must_use]
    pub fn properties(&self) -> Properties {
        let mut out = PropertyWriter::new();
        match self {
            Self::Start(_) => out.put_word("k", "start"),
            Self::Period(..) => out.put_word("k", "period"),
            Self::Bind(hold) => {
                out.put_word("k", "bind");
                if let Some(Digest(digest)) = hold.digest {
                    out.put("h", format_args!("{digest:032x}"));
                }
                if hold.overwrites {
                    out.put_word("o", "1");
                }
            }
            Self::Release(_) => out.put_word("k", "release"),
            Self::Document(_) => out.put_word("k", "doc"),
            Self::Ticket(_, topic) => {
                out.put_word("k", "ticket");
                out.put("t", format_args!("{topic}"));
            }
            Self::Tombstone(_) => return Properties::new(),
        }
        out.finish()
    }

    /// The body of the entry's message. Only a tombstone's is empty.
    #[must_use]
    pub fn body(&self) -> Bytes {
        match self {
            Self::Tombstone(_) => Bytes::new(),
            Self::Start(_)
            | Self::Period(..)
            | Self::Bind(_)
            | Self::Release(_)
            | Self::Ticket(..) => body::encode(b""),
            Self::Document(document) => body::encode(&document.content),
        }
    }

    /// Reads an entry from a message's key, properties and body; `null` marks a tombstone.
    ///
    /// # Errors
    /// If this version does not know the entry.
    pub fn read(
        key: Option<&str>,
        properties: &Properties,
        body: &Bytes,
        null: bool,
    ) -> Result<Self, EntryError> {
        let key: RegisterKey = key.unwrap_or_default().parse()?;
        if null {
            return Ok(Self::Tombstone(key));
        }
        // Compaction would remove an empty message: no worker may act on an entry that others may
        // never see.
        let content = body::decode(body).ok_or(EntryError::Body)?;
        match (properties.get("k").unwrap_or_default(), key) {
            ("start", RegisterKey::Start(stamp)) => Ok(Self::Start(stamp)),
            ("period", RegisterKey::Period(period, stamp)) => Ok(Self::Period(period, stamp)),
            ("bind", RegisterKey::Hold(key)) => {
                let digest = properties.get("h").map(|text| {
                    parse_owner(text).map(|id| Digest(id.0)).ok_or(EntryError::Property("h"))
                });
                let overwrites = match properties.get("o") {
                    None => false,
                    Some("1") => true,
                    Some(_) => return Err(EntryError::Property("o")),
                };
                Ok(Self::Bind(Hold { key, digest: digest.transpose()?, overwrites }))
            }
            ("release", RegisterKey::Release(key)) => Ok(Self::Release(key)),
            ("doc", RegisterKey::Document(key)) => Ok(Self::Document(Document { key, content })),
            ("ticket", RegisterKey::Ticket(ticket)) => {
                let topic = properties.get("t").ok_or(EntryError::Property("t"))?;
                Ok(Self::Ticket(ticket, topic.into()))
            }
            _ => Err(EntryError::Property("k")),
        }
    }
}

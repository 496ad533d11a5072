//! Entries of the register, and their form as messages: the properties say what an entry is, the
//! body is a form byte, and the content of a document.
//!
//! | property | meaning |
//! |---|---|
//! | `k` | kind: `bind`, `release`, `period`, `start`, `doc`, `ticket`, `moved` |
//! | `h` | of a bind: digest of the task's payload, 32 hexadecimal digits; may be missing |
//! | `o` | of a bind: `1` if the task is an overwriter; else missing |
//! | `t` | of a ticket: the name of the task's topic; of a `moved`: the task here |
//! | `x` | of a `moved`: `1` if the task was over when it was moved; else missing |
//! | `l` | of a `moved`: `1` if the task's dead letter is here, too; else missing |
//! | `e` | of a `moved`: the last epoch of the task that had come to an end when it was copied; missing for zero |
//! | `c` | of a `moved`: `1` if the task is closed where it was; else missing |
//!
//! Keys: `bind@<period>/<idem or dedupe>/<name>/<epoch>/<task>/<writer>/<serial>`, in period 0
//! without `@0`, the same with `release`; `period/<number>/<writer>/<serial>`;
//! `start/<writer>/<serial>`; `doc/<kind>/<name>/<version>/<writer>/<serial>` with the document
//! behind the form byte;
//! `ticket/<slots or pace>/<queue, or key/<name>>/<task>/<owner>/<writer>/<serial>`.
//! `moved/<writer>/<serial>/<task>`. A task on the topic of a level is written with the level in
//! front ([`QueueTask`]); in a ticket its topic is named instead. A name may hold any text, slashes
//! too, so such a key is read from its end.

use super::documents::{Document, DocumentKey};
use super::gates::Ticket;
use super::moved::{Moved, MovedKey};
use super::queue_task::QueueTask;
use crate::protocol::body;
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
    /// The first entry of a register, by which it is known again. Never removed.
    Start(Stamp),
    /// Begins the next period of the register. Never removed.
    Period(Period, Stamp),
    /// Asks that a task holds a key, or goes on holding it.
    Bind(Hold),
    /// Says that the holder of a key holds it no longer.
    Release(HoldKey),
    /// The next version of a document.
    Document(Document),
    /// A worker is about to claim a task, where a limit stands; and the name of the task's topic.
    Ticket(Ticket, Box<str>),
    /// A task that was moved here from another queue, and by which id it is known here. It decides
    /// nothing for workers; the last one of a task counts.
    Moved(Moved),
    /// The key is of no more use.
    Tombstone(RegisterKey),
}

/// Makes a key that no other publish has: who publishes, and a counter of theirs that never
/// repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Who publishes: 128 random bits, drawn anew by each process.
    pub writer: OwnerId,
    /// Counter of that writer.
    pub serial: u64,
}

/// Counts the periods of a register, from zero: each is begun by an [`RegisterEntry::Period`]. They are its
/// clock, for all who read it the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period(pub u32);

impl Period {
    /// The one after this.
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

/// What a key is for. The same text may be a key of each kind: they have nothing to do with each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyKind {
    /// One task, until the key is forgotten, long after its end.
    Idempotency,
    /// One task that is not over.
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

/// What a bind or a release is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldKey {
    /// The key.
    pub name: KeyName,
    /// The period of the register that its writer had read.
    pub period: Period,
    /// Numbers the holders of the key.
    pub epoch: Epoch,
    /// The task that is to hold it, or held it.
    pub task: QueueTask,
    /// Makes the entry's key unique.
    pub stamp: Stamp,
}

/// Asks that a task holds a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Which key, which task, under which epoch.
    pub key: HoldKey,
    /// Of the task's payload, so that another task with the same key can be told from a repetition.
    pub digest: Option<Digest>,
    /// The task takes the place of an earlier one of its lane that holds the key.
    pub overwrites: bool,
}

/// A digest of a payload: FNV-1a of 128 bits. It tells an accident, not an attack: who submits may
/// say what they like anyway.
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
    /// See [`RegisterEntry::Moved`].
    Moved(MovedKey),
}

/// The message is not an entry of the register that this version knows; the fold ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterEntryError {
    /// It was published in another cluster, where the ids of tasks mean other tasks.
    #[error("it comes from another cluster")]
    Replicated,
    /// It has no key, or one of another form.
    #[error("key is missing or of an unknown form")]
    Key,
    /// Its body is empty, or has a form that this version does not know.
    #[error("the body is empty or of an unknown form")]
    Body,
    /// A property is missing, malformed, or contradicts the key.
    #[error("property `{0}` is missing, malformed or contradicts the key")]
    Property(&'static str),
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
    /// What the keys of all firings of schedules begin with.
    pub(crate) const OF_FIRINGS: &str = "schedule/";
    /// What the keys of all replays of dead letters begin with.
    pub const OF_REPLAYS: &str = "dlq/";

    /// A name that somebody chose.
    ///
    /// # Errors
    /// When it is empty or longer than 256 bytes.
    pub fn new(kind: KeyKind, text: impl Into<Arc<str>>) -> Result<Self, KeyNameError> {
        let text = text.into();
        if !(1..=KEY_NAME_BYTES_MAX).contains(&text.len()) {
            return Err(KeyNameError(text.len()));
        }
        Ok(Self { kind, text })
    }

    /// What its submitter wrote.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// That of the replay of a dead letter: `text` is made of a task's id, which is short.
    pub fn of_replay(text: String) -> Self {
        Self { kind: KeyKind::Idempotency, text: text.into() }
    }

    /// What the key is for.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Whether the key is never forgotten: a slot of a schedule would be fired again, for its task
    /// is over and the schedule stands; and a dead letter that stays may be replayed at any time.
    /// Every reader goes by the name alone.
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
    /// The first period is not written: before there were periods nobody wrote one.
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
            Self::Moved(MovedKey { source, task }) => write!(f, "moved/{source}/{task}"),
        }
    }
}

impl FromStr for RegisterKey {
    type Err = RegisterEntryError;

    fn from_str(text: &str) -> Result<Self, RegisterEntryError> {
        parse(text).ok_or(RegisterEntryError::Key)
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
        "moved" => {
            let (source, task) = rest.rsplit_once('/')?;
            Some(RegisterKey::Moved(MovedKey {
                source: parse_stamp(source)?,
                task: task.parse().ok()?,
            }))
        }
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
pub fn parse_stamp(text: &str) -> Option<Stamp> {
    let (writer, serial) = text.split_once('/')?;
    Some(Stamp { writer: parse_owner(writer)?, serial: number(serial)? })
}

/// What [`HoldKey::write`] makes of a kind and a period.
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

/// A key has one text: what can be written in two ways would be two keys to a compaction.
pub(super) fn number<N: FromStr + fmt::Display>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

impl RegisterKey {
    /// Which task holds which key, if the entry is about that.
    #[must_use]
    pub const fn hold(&self) -> Option<&HoldKey> {
        match self {
            Self::Hold(key) | Self::Release(key) => Some(key),
            Self::Start(_)
            | Self::Period(..)
            | Self::Document(_)
            | Self::Ticket(_)
            | Self::Moved(_) => None,
        }
    }
}

impl RegisterEntry {
    /// A bind, of an overwriter or not. Any other entry as it is.
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
            Self::Moved(moved) => RegisterKey::Moved(moved.key),
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
            Self::Moved(moved) => {
                out.put_word("k", "moved");
                moved.put(&mut out);
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
            | Self::Ticket(..)
            | Self::Moved(_) => body::encode(b""),
            Self::Document(document) => body::encode(&document.content),
        }
    }

    /// Reads an entry from a message's key, properties and body; `null` says that the message is a
    /// tombstone.
    ///
    /// # Errors
    /// When the message is not an entry that this version knows.
    pub fn read(
        key: Option<&str>,
        properties: &Properties,
        body: &Bytes,
        null: bool,
    ) -> Result<Self, RegisterEntryError> {
        let key: RegisterKey = key.unwrap_or_default().parse()?;
        if null {
            return Ok(Self::Tombstone(key));
        }
        // A compaction would remove what is empty: what some readers may never see, none must act
        // upon.
        let content = body::decode(body).ok_or(RegisterEntryError::Body)?;
        match (properties.get("k").unwrap_or_default(), key) {
            ("start", RegisterKey::Start(stamp)) => Ok(Self::Start(stamp)),
            ("period", RegisterKey::Period(period, stamp)) => Ok(Self::Period(period, stamp)),
            ("bind", RegisterKey::Hold(key)) => {
                let digest = properties.get("h").map(|text| {
                    parse_owner(text)
                        .map(|id| Digest(id.0))
                        .ok_or(RegisterEntryError::Property("h"))
                });
                let overwrites = match properties.get("o") {
                    None => false,
                    Some("1") => true,
                    Some(_) => return Err(RegisterEntryError::Property("o")),
                };
                Ok(Self::Bind(Hold { key, digest: digest.transpose()?, overwrites }))
            }
            ("release", RegisterKey::Release(key)) => Ok(Self::Release(key)),
            ("doc", RegisterKey::Document(key)) => Ok(Self::Document(Document { key, content })),
            ("ticket", RegisterKey::Ticket(ticket)) => {
                let topic = properties.get("t").ok_or(RegisterEntryError::Property("t"))?;
                Ok(Self::Ticket(ticket, topic.into()))
            }
            ("moved", RegisterKey::Moved(key)) => Ok(Self::Moved(Moved::read(key, properties)?)),
            _ => Err(RegisterEntryError::Property("k")),
        }
    }
}

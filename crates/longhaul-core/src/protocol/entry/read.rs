//! Reads entries from the properties of their messages.

use super::{Base, Claim, ClaimKind, Done, EntryError, Heartbeat, Offer, Outcome, Renewal};
use crate::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use crate::protocol::digest::Comparison;
use crate::protocol::hash::NameHash;
use crate::protocol::key::{OnceKey, OwnerId, RENEWAL_SERIAL, SealKey, parse_owner};
use crate::protocol::limits::Limits;
use crate::protocol::next_attempt::{AttemptCause, NextAttempt};
use crate::protocol::seal::{self, EndedCounts, Seal};
use crate::protocol::waits::WaitsFor;
use crate::task::{Position, Properties, TaskId};
use std::str::FromStr;
use std::time::Duration;

/// Reads the properties of an entry with this key.
pub(super) struct EntryReader<'a> {
    pub(super) key: &'a str,
    pub(super) properties: &'a Properties,
}

impl<'a> EntryReader<'a> {
    pub(super) fn text(&self, name: &'static str) -> Result<&'a str, EntryError> {
        self.properties.get(name).ok_or(EntryError::Property(name))
    }

    fn number<T: FromStr>(&self, name: &'static str) -> Result<T, EntryError> {
        self.text(name)?.parse().map_err(|_| EntryError::Property(name))
    }

    /// A number that may be missing, but not malformed.
    fn optional<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, EntryError> {
        self.properties.contains_key(name).then(|| self.number(name)).transpose()
    }

    /// Checks that key and properties agree. The properties are readable for people; the fold uses
    /// the key.
    pub(super) fn agrees(&self, key: &OnceKey) -> Result<(), EntryError> {
        // Usually they are equal letter by letter.
        let texts = [self.text("t")?, self.text("e")?, self.text("o")?];
        let mut parts = self.key.split('/');
        if texts.into_iter().all(|text| parts.next() == Some(text)) {
            return Ok(());
        }
        let same = |name, same: bool| if same { Ok(()) } else { Err(EntryError::Property(name)) };
        same("t", self.number::<TaskId>("t")? == key.task)?;
        same("e", self.number::<u32>("e")? == key.epoch.0)?;
        same("o", parse_owner(self.text("o")?) == Some(key.owner))
    }

    pub(super) fn claim(&self, key: OnceKey, content: &[u8]) -> Result<Claim, EntryError> {
        self.agrees(&key)?;
        let kind = match self.text("s")? {
            "RUN" => ClaimKind::Run,
            "FINAL" => ClaimKind::Final,
            "CANCELLED" => ClaimKind::Cancelled,
            "EXPIRED" => ClaimKind::Expired,
            "PARKED" => Offer::read(self.properties).map_or(ClaimKind::Park, ClaimKind::Offer),
            _ => return Err(EntryError::Property("s")),
        };
        let batch_size: Option<u32> = self.optional("b")?;
        // A worker that treats a task of a batch as a whole entry would acknowledge the others
        // unfinished. The index may exceed the number: some of the batch may have been acknowledged
        // one by one.
        if key.task.batch_index.is_some() != batch_size.is_some() || batch_size == Some(0) {
            return Err(EntryError::Property("b"));
        }
        let created = self.optional("f")?;
        let base = created.filter(|_| kind == ClaimKind::Run).map(|created_ms| Base { created_ms });
        // Limits do not affect whether the claim is accepted: an unreadable one counts as missing.
        let limits = Limits {
            max_attempts: self.number("ma").ok().filter(|attempts| *attempts > 0),
            total_ms: self.number("tb").ok(),
            expires_at_ms: self.number("x").ok(),
        };
        let parks = matches!(kind, ClaimKind::Park | ClaimKind::Offer(_));
        let readable = !parks || WaitsFor::of_content(content).is_some();
        if !readable {
            return Err(EntryError::Body);
        }
        let lease_ms = self.optional("ttl")?.filter(|_| kind == ClaimKind::Run);
        let attempt = self.number("a")?;
        // Like the limits, it does not affect whether the claim is accepted.
        let gives = self.number("m").ok().filter(|_| kind == ClaimKind::Run);
        let order = self.properties.get("line").and_then(NameHash::parse);
        let order = order.filter(|_| kind.begins());
        Ok(Claim { key, attempt, kind, batch_size, base, limits, gives, lease_ms, order })
    }

    pub(super) fn renewal(&self, key: OnceKey) -> Result<Renewal, EntryError> {
        self.agrees(&key)?;
        if key.serial != RENEWAL_SERIAL {
            return Err(EntryError::Key);
        }
        let by = self.owner("by")?.ok_or(EntryError::Property("by"))?;
        Ok(Renewal { key, lease_ms: self.number("ttl")?, by })
    }

    pub(super) fn done(&self, key: OnceKey, content: &[u8]) -> Result<Done, EntryError> {
        self.agrees(&key)?;
        let next = || -> Result<NextAttempt, EntryError> {
            Ok(NextAttempt::new(self.number("na")?, self.number("nd")?))
        };
        let outcome = match self.text("s")? {
            "COMPLETED" => Outcome::Completed,
            "FAILED" => Outcome::Failed(next()?),
            "FINAL" => Outcome::Final,
            "CANCELLED" => Outcome::Cancelled,
            "RELEASED" => {
                // Other words belong to other versions, and have no meaning to this one.
                let after = AttemptCause::of_mark(self.properties.get("w"));
                Outcome::Released(NextAttempt { after, ..next().unwrap_or_default() })
            }
            _ => return Err(EntryError::Property("s")),
        };
        let done = Done { key, attempt: self.number("a")?, outcome, writer: self.owner("writer")? };
        // Without a list the dependencies of the task would be unknown.
        let readable = !done.parks() || WaitsFor::of_content(content).is_some();
        if readable { Ok(done) } else { Err(EntryError::Body) }
    }

    /// A worker that speaks in the name of a lease.
    fn owner(&self, name: &'static str) -> Result<Option<OwnerId>, EntryError> {
        let read = |text: &str| parse_owner(text).ok_or(EntryError::Property(name));
        self.properties.get(name).map(read).transpose()
    }

    pub(super) fn seal(&self, key: SealKey, body: &[u8]) -> Result<Seal, EntryError> {
        if parse_owner(self.text("o")?) != Some(key.owner) {
            return Err(EntryError::Property("o"));
        }
        let counts: Vec<u64> = self
            .text("n")?
            .split(',')
            .map(|number| number.parse().map_err(|_| EntryError::Property("n")))
            .collect::<Result<_, _>>()?;
        let [completed, failed, cancelled, expired] =
            counts.try_into().map_err(|_| EntryError::Property("n"))?;
        let counts = EndedCounts { completed, failed, cancelled, expired };
        let entries = seal::decode(body).ok_or(EntryError::Body)?;
        Ok(Seal { key, counts, entries })
    }

    pub(super) fn heartbeat(&self, owner: OwnerId) -> Result<Heartbeat, EntryError> {
        Ok(Heartbeat {
            owner,
            subscription: self.text("sub")?.to_owned(),
            number: self.number("q")?,
            receipted: self.number("c")?,
            underway: self.number("w")?,
            leased: self.number("lc").ok().zip(self.number("lw").ok()),
            uptime_ms: self.number("u")?,
            // Data for people must not invalidate a heartbeat.
            max_attempts: self.number("m").ok(),
            shown_to: self.properties.get("p").and_then(Position::parse),
            reading: self.properties.contains_key("l"),
            comparison: self.properties.get("d").and_then(Comparison::parse),
        })
    }

    pub(super) fn config(&self, version: u32) -> Result<LedgerConfig, EntryError> {
        let format = self.number("v")?;
        if format != LEDGER_FORMAT {
            // The other properties may have another form.
            return Ok(LedgerConfig { version, format, ..LedgerConfig::default() });
        }
        let millis = |name| self.number(name).map(Duration::from_millis);
        Ok(LedgerConfig {
            version,
            subscription: self.text("sub")?.to_owned(),
            heartbeat: millis("h")?,
            ledger_retention: millis("r")?,
            self_fence: millis("g")?,
            format,
        })
    }
}

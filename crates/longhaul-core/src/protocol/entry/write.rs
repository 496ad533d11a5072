//! Writes entries as properties of their messages.

use super::{Claim, ClaimKind, Entry, Heartbeat, NextAttempt, Outcome};
use crate::protocol::key::OnceKey;
use crate::protocol::limits::Limits;
use crate::protocol::seal::EndedCounts;
use crate::task::{Properties, PropertyWriter};

impl Entry {
    /// The properties of the entry's message. A tombstone has none.
    #[must_use]
    pub fn properties(&self) -> Properties {
        if matches!(self, Self::Tombstone(_)) {
            return Properties::new();
        }
        let mut out = PropertyWriter::new();
        match self {
            Self::Claim(claim) => write_claim(&mut out, claim),
            Self::Done(done) => {
                write_once(&mut out, "done", &done.key);
                out.put("a", done.attempt);
                out.put_word("s", done.outcome.status());
                if let Outcome::Failed(next) | Outcome::Released(next) = done.outcome {
                    write_next(&mut out, &next);
                }
                out.put_some("writer", done.writer);
            }
            Self::Checkpoint(key) => write_once(&mut out, "ckpt", key),
            Self::Renewal(renewal) => {
                write_once(&mut out, "keep", &renewal.key);
                out.put("ttl", renewal.lease_ms);
                out.put("by", renewal.by);
            }
            Self::Cancel(task) => {
                out.put_word("k", "cancel");
                out.put("t", task);
            }
            Self::Heartbeat(heartbeat) => write_heartbeat(&mut out, heartbeat),
            Self::Seal(seal) => {
                let EndedCounts { completed, failed, cancelled, expired } = seal.counts;
                out.put_word("k", "seal");
                out.put("o", seal.key.owner);
                out.put("n", format_args!("{completed},{failed},{cancelled},{expired}"));
            }
            Self::Config(config) => {
                out.put_word("k", "cfg");
                out.put("sub", &config.subscription);
                out.put("h", config.heartbeat.as_millis());
                out.put("r", config.ledger_retention.as_millis());
                out.put("g", config.self_fence.as_millis());
                out.put("v", config.format);
            }
            Self::Tombstone(_) => {}
        }
        out.finish()
    }
}

impl ClaimKind {
    const fn status(self) -> &'static str {
        match self {
            Self::Run => "RUN",
            Self::Final => "FINAL",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
            Self::Park | Self::Offer(_) => "PARKED",
        }
    }
}

impl Outcome {
    const fn status(&self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Failed(_) => "FAILED",
            Self::Final => "FINAL",
            Self::Cancelled => "CANCELLED",
            Self::Released(_) => "RELEASED",
        }
    }
}

fn write_once(out: &mut PropertyWriter, kind: &'static str, key: &OnceKey) {
    out.put_word("k", kind);
    out.put("t", key.task);
    out.put("e", key.epoch);
    out.put("o", key.owner);
}

fn write_claim(out: &mut PropertyWriter, claim: &Claim) {
    write_once(out, "claim", &claim.key);
    out.put("a", claim.attempt);
    out.put_word("s", claim.kind.status());
    out.put_some("b", claim.batch_size);
    out.put_some("f", claim.base.map(|base| base.created_ms));
    if let ClaimKind::Offer(offer) = claim.kind {
        offer.write(out);
    }
    let Limits { max_attempts, total_ms, expires_at_ms } = claim.limits;
    out.put_some("ma", max_attempts);
    out.put_some("tb", total_ms);
    out.put_some("x", expires_at_ms);
    out.put_some("m", claim.gives);
    out.put_some("ttl", claim.lease_ms);
    out.put_some("line", claim.order);
}

fn write_heartbeat(out: &mut PropertyWriter, heartbeat: &Heartbeat) {
    out.put_word("k", "hb");
    out.put("o", heartbeat.owner);
    out.put("sub", &heartbeat.subscription);
    out.put("q", heartbeat.number);
    out.put("c", heartbeat.receipted);
    out.put("w", heartbeat.underway);
    if let Some((receipted, underway)) = heartbeat.leased {
        out.put("lc", receipted);
        out.put("lw", underway);
    }
    out.put("u", heartbeat.uptime_ms);
    out.put_some("m", heartbeat.max_attempts);
    out.put_some("p", heartbeat.shown_to);
    if heartbeat.reading {
        out.put_word("l", "1");
    }
    out.put_some("d", heartbeat.comparison.as_ref());
}

fn write_next(out: &mut PropertyWriter, next: &NextAttempt) {
    out.put("na", next.at_ms);
    out.put("nd", next.delay_ms);
    if let Some(mark) = next.after.mark() {
        out.put_word("w", mark);
    }
}

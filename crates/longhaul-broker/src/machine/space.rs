//! How long the disk lasts, and what a single topic may take of it.

use super::BrokerMachine;
use super::effect::{MachineEffect, RequestRefusal};
use crate::admin::policies::{BacklogAction, BacklogQuota};
use longhaul_wire::messages::ServerError;

/// Publishes stop this far before the limit of the disk: room for the segment that is begun next,
/// for the one that is made ahead, and for acks.
pub(super) const RESERVE_BYTES: u64 = 2 * 64 * 1024 * 1024;
/// The pace at which the disk fills is that of about so many seconds: the older, the less it
/// counts.
const MEMORY_S: f64 = 300.0;
/// No pace is told before it was watched for so long.
const WATCHED_S: f64 = 60.0;
/// A disk that is full within this time, or has less than one part in so many left, is worth a
/// warning.
const WARN_S: u64 = 3600;
const WARN_SHARE: u64 = 10;
/// So long after the last refusal publishes count as refused while there is no room for what was
/// refused: it may have been too large at any time.
const FULL_MS: u64 = 3_600_000;
/// How often a warning is given.
const WARN_PAUSE_MS: u64 = 600_000;
/// A topic without a quota of its own may have a backlog of one part in so many of the disk.
/// Workers publish before they acknowledge: if one forgotten topic could take all of it, nobody
/// could go on.
const QUOTA_SHARE: u64 = 2;
/// Where there is less than this, a few segments may be half of it.
const QUOTA_DISK_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// What is known of the room on the disk.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Bytes that the log may still take; none without a limit.
    left: Option<u64>,
    /// With those that it takes.
    all: Option<u64>,
    /// When that was, in ms since the start.
    at: u64,
    /// Bytes that went, and the seconds in which they did, each counting less the older it is.
    gone: f64,
    watched: f64,
    next_warning: u64,
    /// What was refused last for want of room.
    refused: Option<RefusedPublish>,
    /// The operator was told that they are.
    is_told: bool,
    next_reminder: u64,
}

/// A publish or a producer that was refused for want of room.
#[derive(Debug)]
struct RefusedPublish {
    at: u64,
    /// Of the entry, or of the one that the topic had refused before.
    bytes: usize,
    why: String,
}

/// What the operator is told of publishes that are refused.
#[derive(Debug, PartialEq, Eq)]
enum SpaceNotice {
    Refused(String),
    Again,
}

impl Space {
    /// So many bytes are left now.
    #[expect(clippy::cast_precision_loss, reason = "a pace need not be exact")]
    fn note(&mut self, up: u64, left: Option<u64>) {
        let seconds = up.saturating_sub(self.at) as f64 / 1000.0;
        match (self.left, left) {
            (Some(before), Some(now)) => {
                let fades = (-seconds / MEMORY_S).exp();
                self.gone = self.gone * fades + before as f64 - now as f64;
                self.watched = self.watched * fades + seconds;
            }
            (None, _) | (_, None) => (self.gone, self.watched) = (0.0, 0.0),
        }
        (self.left, self.at) = (left, up);
    }

    /// A publish or a producer was refused for want of room for so many bytes.
    pub(super) fn refused(&mut self, up: u64, bytes: usize, why: &str) {
        self.refused = Some(RefusedPublish { at: up, bytes, why: why.to_owned() });
    }

    /// For how large an entry there must be room, that none counts as refused.
    fn wanted_bytes(&self, up: u64) -> usize {
        let recent = |refused: &&RefusedPublish| up < refused.at.saturating_add(FULL_MS);
        self.refused.as_ref().filter(recent).map_or(0, |refused| refused.bytes)
    }

    /// What the operator is to be told now: once when publishes begin to be refused, now and then
    /// as long as they are, and when they are taken again.
    fn take_news(&mut self, up: u64, is_full: bool) -> Option<SpaceNotice> {
        if !is_full {
            self.refused = None;
            return std::mem::take(&mut self.is_told).then_some(SpaceNotice::Again);
        }
        let why = &self.refused.as_ref()?.why;
        if self.is_told && up < self.next_reminder {
            return None;
        }
        (self.is_told, self.next_reminder) = (true, up.saturating_add(WARN_PAUSE_MS));
        Some(SpaceNotice::Refused(why.clone()))
    }

    pub(super) const fn left(&self) -> Option<u64> {
        self.left
    }

    /// In how many seconds the disk is full if it goes on as in the last minutes; none if it does
    /// not fill.
    #[expect(clippy::cast_precision_loss, reason = "a pace need not be exact")]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, and what is too large becomes the largest number"
    )]
    fn full_in_s(&self) -> Option<u64> {
        let fills = self.watched >= WATCHED_S && self.gone >= 1.0;
        let left = self.left.filter(|_| fills)?;
        Some((left as f64 * self.watched / self.gone) as u64)
    }
}

impl BrokerMachine {
    /// Looks how much room is left, and warns before there is none.
    pub(super) fn look_at_space(&mut self) {
        self.tell_of_refusals();
        let used = self.used_bytes();
        let allowed =
            self.settings.disk_bytes_max.map(|limit| limit.saturating_sub(used + RESERVE_BYTES));
        let free = self.composer.free_bytes();
        self.space.note(self.up, free.into_iter().chain(allowed).min());
        self.space.all = self.space.left.and_then(|left| left.checked_add(used));
        let (Some(left), full_in) = (self.space.left, self.space.full_in_s()) else { return };
        let is_short =
            left < (used + left) / WARN_SHARE || full_in.is_some_and(|seconds| seconds < WARN_S);
        if !is_short || self.up < self.space.next_warning {
            return;
        }
        self.space.next_warning = self.up + WARN_PAUSE_MS;
        let pace =
            full_in.filter(|&seconds| seconds < WARN_S).map_or_else(String::new, |seconds| {
                format!(
                    ", and is full in about {} min at the pace of the last minutes",
                    seconds.div_ceil(60)
                )
            });
        let largest = self.state.topics().max_by_key(|(_, topic)| topic.bytes);
        let largest = largest.map_or_else(String::new, |(_, topic)| {
            format!("; {} has most, {} MiB", topic.name, topic.bytes / (1024 * 1024))
        });
        self.effects.push(MachineEffect::Warn(format!(
            "the log has room for {} MiB more{pace}{largest}: consume, delete, or make room",
            left / (1024 * 1024)
        )));
    }

    /// Whether the disk has room for an entry of so many bytes, and its limit.
    ///
    /// The error is the one that has clients wait, and come back by themselves. With
    /// `ProducerBlockedQuotaExceededException` some clients would give up their producers for good,
    /// and a disk has room again later.
    pub(super) fn check_disk(&self, bytes: usize) -> Result<(), RequestRefusal> {
        let refuse = |text: String| {
            Err(RequestRefusal::new(ServerError::ProducerBlockedQuotaExceededError, text))
        };
        if self.log.is_stuck || !self.composer.has_room_for(bytes) {
            return refuse(
                "the log cannot go on for want of disk space or of file descriptors: free some, the broker goes on by itself"
                    .to_owned(),
            );
        }
        // Each publish asks: what is used is a sum over all segments.
        let Some(limit) = self.settings.disk_bytes_max else { return Ok(()) };
        let used = self.used_bytes();
        if used + RESERVE_BYTES >= limit {
            return refuse(format!(
                "the log takes {used} bytes of the {limit} that it may, of which {RESERVE_BYTES} are kept free for its next segments and for acknowledgements: consume, or raise the limit"
            ));
        }
        Ok(())
    }

    /// Bytes of the segments, with those that have begun since the log last told of them.
    pub(super) fn used_bytes(&self) -> u64 {
        let known = self.log.segments.last().map_or(0, |&(number, _)| number);
        let begun = self.composer.end().segment.saturating_sub(known);
        let begun = if known == 0 { 0 } else { begun };
        self.log.bytes() + u64::from(begun) * u64::from(self.composer.segment_bytes())
    }

    /// Tells the operator that publishes are refused, and when they are taken again.
    fn tell_of_refusals(&mut self) {
        let is_full = self.is_disk_full();
        let warning = match self.space.take_news(self.up, is_full) {
            Some(SpaceNotice::Refused(why)) => {
                format!("the disk is full, and publishes and new producers are refused: {why}")
            }
            Some(SpaceNotice::Again) => {
                "publishes are no longer refused for want of room on the disk".to_owned()
            }
            None => return,
        };
        self.effects.push(MachineEffect::Warn(warning));
    }

    /// Whether publishes are refused for want of room on the disk.
    pub(super) fn is_disk_full(&self) -> bool {
        self.check_disk(self.space.wanted_bytes(self.up)).is_err()
    }

    /// In how many seconds that is so, if it can be told.
    pub(super) fn disk_full_in_s(&self) -> Option<u64> {
        if self.is_disk_full() { Some(0) } else { self.space.full_in_s() }
    }

    /// The quota of topics for which none is set.
    pub(super) fn default_quota(&self) -> Option<BacklogQuota> {
        let all = self.space.all?;
        let limit_bytes = i64::try_from(all / QUOTA_SHARE).ok()?;
        let policy = BacklogAction::ProducerException;
        // What is kept free belongs to the disk, too: a limit of 1 GiB is one.
        (all + RESERVE_BYTES >= QUOTA_DISK_BYTES_MIN).then_some(BacklogQuota {
            limit_bytes,
            limit_s: -1,
            policy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_full_after_what_is_left_by_the_pace() {
        let mut space = Space::default();
        for second in 0..=59 {
            space.note(second * 1000, Some(100_000 - second * 100));
            assert_eq!(space.full_in_s(), None, "it was not watched for a minute");
        }
        for second in 60..=99 {
            space.note(second * 1000, Some(100_000 - second * 100));
        }
        let left = 100_000 - 9_900;
        assert!(space.full_in_s().unwrap().abs_diff(left / 100) <= 1, "{space:?}");
        // Half an hour of nothing, and what was before does not count any more.
        (100..1900).for_each(|second| space.note(second * 1000, Some(left)));
        assert!(space.full_in_s().unwrap() > 100_000, "{space:?}");
        space.note(1_900_000, Some(left + 50_000));
        assert_eq!(space.full_in_s(), None, "it gets more");
        space.note(1_901_000, None);
        assert_eq!((space.left(), space.full_in_s()), (None, None));
    }
}

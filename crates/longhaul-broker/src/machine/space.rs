//! Free space of the disk, and the share that a single topic may take.

use super::BrokerMachine;
use super::effect::{MachineEffect, RequestRefusal};
use crate::log::{CompactedEntry, LogStatus};
use crate::policies::{BacklogAction, BacklogQuota};
use longhaul_wire::messages::ServerError;

/// Publishes stop this many bytes before the disk limit: room for the next segment, for the spare,
/// and for acks.
pub(super) const RESERVE_BYTES: u64 = 2 * 64 * 1024 * 1024;
/// Time constant of the fill rate, in seconds: older data counts less.
const MEMORY_S: f64 = 300.0;
/// Time in seconds before a fill rate is reported.
const WATCHED_S: f64 = 60.0;
/// A warning is logged if the disk will be full within this time, or has less than 1/10 left.
const WARN_S: u64 = 3600;
/// The same for a disk that other programs fill, whose pace is seldom steady.
const WARN_OTHERS_S: u64 = 600;
const WARN_SHARE: u64 = 10;
/// How long after the last refusal publishes count as refused while there is no room for the
/// refused size; an entry may be too large for the disk at any time.
const FULL_MS: u64 = 3_600_000;
/// Interval of the warnings.
const WARN_PAUSE_MS: u64 = 600_000;
/// A topic without a quota of its own may have a backlog of 1/2 of the disk. Workers publish before
/// they acknowledge: if one forgotten topic could fill the disk, all work would stop.
const QUOTA_SHARE: u64 = 2;
/// On a smaller disk, a few segments may be half of it.
const QUOTA_DISK_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// Room on the disk.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Bytes that the log may still take; `None` without a limit.
    left: Option<u64>,
    /// The bytes left and the current size of the log, together.
    all: Option<u64>,
    /// Size of the compacted views at this measurement.
    views: u64,
    /// Size of the largest one: compaction writes it anew beside it.
    largest_view: u64,
    /// Size of the segments at the last status of the log.
    segments: u64,
    /// Time of this measurement, in ms since the start.
    at: u64,
    /// Bytes that were used up, and the seconds observed; older data counts less.
    gone: f64,
    watched: f64,
    next_warning: u64,
    /// The last publish that was refused for lack of room.
    refused: Option<RefusedPublish>,
    /// Whether the operator was told of refusals.
    is_told: bool,
    next_reminder: u64,
}

/// A publish or a producer that was refused for lack of room.
#[derive(Debug)]
struct RefusedPublish {
    at: u64,
    /// Size of the entry, or of the one that the topic refused before.
    bytes: usize,
    why: String,
}

impl Space {
    /// Notes the bytes that are left now.
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

    /// Notes that a publish or a producer was refused because this many bytes did not fit.
    pub(super) fn refused(&mut self, up: u64, bytes: usize, why: &str) {
        self.refused = Some(RefusedPublish { at: up, bytes, why: why.to_owned() });
    }

    /// Size of an entry that must fit so that publishes do not count as refused.
    fn wanted_bytes(&self, up: u64) -> usize {
        let recent = |refused: &&RefusedPublish| up < refused.at.saturating_add(FULL_MS);
        self.refused.as_ref().filter(recent).map_or(0, |refused| refused.bytes)
    }

    /// The message that is due to the operator: when publishes begin to be refused, at intervals
    /// while they are, and when they are accepted again.
    fn take_news(&mut self, up: u64, is_full: bool) -> Option<String> {
        if !is_full {
            self.refused = None;
            let again = || "the disk has room again: publishes are no longer refused".to_owned();
            return std::mem::take(&mut self.is_told).then(again);
        }
        let why = &self.refused.as_ref()?.why;
        if self.is_told && up < self.next_reminder {
            return None;
        }
        (self.is_told, self.next_reminder) = (true, up.saturating_add(WARN_PAUSE_MS));
        Some(format!("the disk is full, and publishes and new producers are refused: {why}"))
    }

    /// Notes the size of the segments. Each publish needs it, and the log may have many thousands
    /// of segments.
    pub(super) fn note_segments(&mut self, log: &LogStatus) {
        self.segments = log.bytes();
    }

    pub(super) const fn left(&self) -> Option<u64> {
        self.left
    }

    /// Seconds until the disk is full at the rate of the last minutes; `None` if it does not fill.
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

    /// Whether more room has gone in the last minutes than the whole log uses.
    #[expect(clippy::cast_precision_loss, reason = "a pace need not be exact")]
    fn is_filled_by_others(&self, used: u64) -> bool {
        self.gone > used as f64
    }
}

impl BrokerMachine {
    /// Measures the room, and warns before it is used up.
    pub(super) fn recheck_space(&mut self) {
        self.tell_of_refusals();
        let views = self.compacted.values().map(|slots| CompactedEntry::file_bytes(slots));
        (self.space.views, self.space.largest_view) =
            views.fold((0, 0), |(all, largest), bytes| (all + bytes, largest.max(bytes)));
        let (used, kept) = (self.used_bytes(), self.kept_bytes());
        let allowed = self.settings.disk_bytes_max.map(|limit| limit.saturating_sub(used + kept));
        let free = self.composer.free_bytes();
        self.space.note(self.up, free.into_iter().chain(allowed).min());
        self.space.all = self.space.left.and_then(|left| left.checked_add(used));
        let (Some(left), full_in) = (self.space.left, self.space.full_in_s()) else { return };
        let by_others = self.space.is_filled_by_others(used);
        let soon_s = if by_others { WARN_OTHERS_S } else { WARN_S };
        let full_in = full_in.filter(|&seconds| seconds < soon_s);
        let is_short = left < (used + left) / WARN_SHARE || full_in.is_some();
        if !is_short || self.up < self.space.next_warning {
            return;
        }
        self.space.next_warning = self.up + WARN_PAUSE_MS;
        let pace = full_in.map_or_else(String::new, |seconds| {
            let minutes = seconds.div_ceil(60);
            if by_others {
                return format!(", and other programs fill the disk in about {minutes} min");
            }
            format!(", and is full in about {minutes} min at the pace of the last minutes")
        });
        let largest = self.state.topics().max_by_key(|(_, topic)| topic.bytes);
        let largest = largest.filter(|(_, topic)| topic.bytes >= 1024 * 1024);
        let largest = largest.map_or_else(String::new, |(_, topic)| {
            format!("; {} has most, {} MiB", topic.name, topic.bytes / (1024 * 1024))
        });
        self.effects.push(MachineEffect::Warn(format!(
            "the log has room for {} MiB more{pace}{largest}: consume, delete, or make room",
            left / (1024 * 1024)
        )));
    }

    /// Checks that the disk, and its limit, have room for an entry of this many bytes.
    ///
    /// The error makes clients wait and retry by themselves. With
    /// `ProducerBlockedQuotaExceededException` some clients would give up their producers for good,
    /// although the disk may have room again later.
    pub(super) fn check_disk(&self, bytes: usize) -> Result<(), RequestRefusal> {
        let refuse = |text: String| {
            Err(RequestRefusal::new(ServerError::ProducerBlockedQuotaExceededError, text))
        };
        if self.log.is_stuck || !self.composer.has_room_for(bytes) {
            return refuse(
                "the log lacks disk space or file descriptors: free some, and the broker continues by itself"
                    .to_owned(),
            );
        }
        let Some(limit) = self.settings.disk_bytes_max else { return Ok(()) };
        let (used, kept) = (self.used_bytes(), self.kept_bytes());
        if used + kept >= limit {
            return refuse(format!(
                "the log takes {used} bytes with its compacted views; the limit is {limit} bytes, of which {kept} are reserved for its next segments, the next compaction and acknowledgements: consume, or raise the limit"
            ));
        }
        Ok(())
    }

    /// Bytes before the disk limit that publishes leave.
    const fn kept_bytes(&self) -> u64 {
        RESERVE_BYTES + self.space.largest_view
    }

    /// Size of the compacted views, and of the segments, including those that have begun since the
    /// last status of the log.
    pub(super) fn used_bytes(&self) -> u64 {
        let known = self.log.segments.last().map_or(0, |&(number, _)| number);
        let begun = self.composer.end().segment.saturating_sub(known);
        let begun = if known == 0 { 0 } else { begun };
        self.space.views
            + self.space.segments
            + u64::from(begun) * u64::from(self.composer.segment_bytes())
    }

    /// Tells the operator that publishes are refused, and when they are accepted again.
    fn tell_of_refusals(&mut self) {
        let is_full = self.is_disk_full();
        let warning = self.space.take_news(self.up, is_full);
        self.effects.extend(warning.map(MachineEffect::Warn));
    }

    /// Whether publishes are refused for lack of room on the disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.check_disk(self.space.wanted_bytes(self.up)).is_err()
    }

    /// Seconds until the disk is full, if known.
    pub(super) fn disk_full_in_s(&self) -> Option<u64> {
        if self.is_disk_full() { Some(0) } else { self.space.full_in_s() }
    }

    /// The quota of topics without one of their own.
    pub(super) fn default_quota(&self) -> Option<BacklogQuota> {
        let all = self.space.all?;
        let limit_bytes = i64::try_from(all / QUOTA_SHARE).ok()?;
        let policy = BacklogAction::ProducerException;
        // The reserve belongs to the disk too: a limit of 1 GiB qualifies.
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
        // After half an hour without a change, earlier data has no effect.
        (100..1900).for_each(|second| space.note(second * 1000, Some(left)));
        assert!(space.full_in_s().unwrap() > 100_000, "{space:?}");
        space.note(1_900_000, Some(left + 50_000));
        assert_eq!(space.full_in_s(), None, "it gets more");
        space.note(1_901_000, None);
        assert_eq!((space.left(), space.full_in_s()), (None, None));
    }
}

//! How long the disk lasts, and what a single topic may take of it.

use super::Machine;
use super::effect::Effect;
use crate::admin::policies::{BacklogAction, BacklogQuota};

/// Publishes stop this far before the limit of the disk: room for the next segment, and for acks.
pub(super) const RESERVE_BYTES: u64 = 64 * 1024 * 1024;
/// The pace at which the disk fills is that of about so many seconds: the older, the less it counts.
const MEMORY_S: f64 = 300.0;
/// No pace is told before it was watched for so long.
const WATCHED_S: f64 = 60.0;
/// A disk that is full within this time, or has less than one part in so many left, is worth a warning.
const WARN_S: u64 = 3600;
const WARN_SHARE: u64 = 10;
/// How often it is given.
const WARN_PAUSE_MS: u64 = 600_000;
/// A topic without a quota of its own may have a backlog of one part in so many of the disk. Workers publish before they acknowledge: if one forgotten
/// topic could take all of it, nobody could go on.
const QUOTA_SHARE: u64 = 2;
/// Where there is less than this, a few segments may be half of it.
const QUOTA_DISK_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// What is known of the room on the disk.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Bytes that the log may still take; none without a limit.
    left: Option<u64>,
    /// When that was, in ms since the start.
    at: u64,
    /// Bytes that went, and the seconds in which they did, each counting less the older it is.
    gone: f64,
    watched: f64,
    next_warning: u64,
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

    pub(super) const fn left(&self) -> Option<u64> {
        self.left
    }

    /// In how many seconds the disk is full if it goes on as in the last minutes; none if it does not fill.
    #[expect(clippy::cast_precision_loss, reason = "a pace need not be exact")]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, and what is too large becomes the largest number"
    )]
    pub(super) fn full_in_s(&self) -> Option<u64> {
        let fills = self.watched >= WATCHED_S && self.gone >= 1.0;
        let left = self.left.filter(|_| fills)?;
        Some((left as f64 * self.watched / self.gone) as u64)
    }
}

impl Machine {
    /// Looks how much room is left, and warns before there is none.
    pub(super) fn look_at_space(&mut self) {
        let used = self.log.bytes();
        let allowed =
            self.settings.disk_bytes_max.map(|limit| limit.saturating_sub(used + RESERVE_BYTES));
        let free = self.composer.free_bytes();
        self.space.note(self.up, free.into_iter().chain(allowed).min());
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
        self.effects.push(Effect::Warn(format!(
            "the log has room for {} MiB more{pace}{largest}: consume, delete, or make room",
            left / (1024 * 1024)
        )));
    }

    /// The quota of topics for which none is set.
    pub(super) fn default_quota(&self) -> Option<BacklogQuota> {
        let all = self.space.left?.checked_add(self.log.bytes())?;
        let limit_bytes = i64::try_from(all / QUOTA_SHARE).ok()?;
        let policy = BacklogAction::ProducerException;
        (all >= QUOTA_DISK_BYTES_MIN).then_some(BacklogQuota { limit_bytes, limit_s: -1, policy })
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

//! The instants of a cron expression in a time zone.
//!
//! Clocks are changed: some times of day do not exist on a day, and some come twice. The expression
//! is read on the clocks of one offset, where neither happens, and what is found there is then told
//! as an instant.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::CronParser;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct CronTimes {
    cron: Cron,
    zone: TimeZone,
    /// Whether it has slots in each hour: they follow the time that passes. All others follow the
    /// clocks: a time that does not exist is made up right after the gap, and one that comes twice
    /// counts once.
    each_hour: bool,
}

impl CronTimes {
    pub(super) fn new(text: &str, zone: TimeZone) -> Result<Self, CronError> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let day_of_month = if fields.len() > 5 { 3 } else { 2 };
        // As in crontab, where `*/2` beside `MON` narrows it.
        let has_star = |at: usize| fields.get(at).is_some_and(|it| it.starts_with(['*', '?']));
        let both = has_star(day_of_month) || has_star(day_of_month + 2);
        let cron = CronParser::builder().dom_and_dow(both).build().parse(text)?;
        let each_hour = (0..24).all(|hour| cron.pattern.hour_match(hour).unwrap_or_default());
        Ok(Self { cron, zone, each_hour })
    }

    /// The first slot behind this second.
    pub(super) fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        if !self.each_hour {
            let shown = self.shown_by(at)?.to_zoned(TimeZone::UTC).ok()?;
            // A search without a result ends at the year 5000.
            let next = self.cron.find_next_occurrence(&shown, false).ok()?;
            return self.instant_of(next.datetime());
        }
        let (mut from, mut inclusive) = (at, false);
        loop {
            let shown = from.to_zoned(self.clocks_at(from));
            let next = self.cron.find_next_occurrence(&shown, inclusive).ok()?.timestamp();
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            match change.filter(|change| *change <= next) {
                Some(change) => (from, inclusive) = (change, true),
                None => return Some(next),
            }
        }
    }

    /// The last slot up to this second.
    pub(super) fn last_up_to(&self, at: Timestamp) -> Option<Timestamp> {
        if !self.each_hour {
            let shown = self.shown_by(at)?.to_zoned(TimeZone::UTC).ok()?;
            let last = self.cron.find_previous_occurrence(&shown, true).ok()?;
            return self.instant_of(last.datetime());
        }
        let mut to = at;
        loop {
            let shown = to.to_zoned(self.clocks_at(to));
            let last = self.cron.find_previous_occurrence(&shown, true).ok()?.timestamp();
            match self.change_up_to(to).filter(|change| last < *change) {
                Some(change) => to = change.checked_sub(SECOND).ok()?,
                None => return Some(last),
            }
        }
    }

    /// Clocks that show what those of the zone show now, and are never changed.
    fn clocks_at(&self, at: Timestamp) -> TimeZone {
        TimeZone::fixed(self.zone.to_offset(at))
    }

    /// The last change of the clocks up to this instant.
    fn change_up_to(&self, at: Timestamp) -> Option<Timestamp> {
        let behind = at.checked_add(SECOND).ok()?;
        self.zone.preceding(behind).next().map(|change| change.timestamp())
    }

    /// The latest time that the clocks have shown by this instant. While they show a time again, it
    /// is the last one before they were set back.
    fn shown_by(&self, at: Timestamp) -> Option<DateTime> {
        let shown = self.zone.to_datetime(at);
        let found = self.zone.to_ambiguous_timestamp(shown).offset();
        if let AmbiguousOffset::Fold { before, after } = found
            && self.zone.to_offset(at) == after
        {
            return before.to_datetime(self.change_up_to(at)?).checked_sub(SECOND).ok();
        }
        Some(shown)
    }

    /// When the clocks show this time first, or are moved past it.
    fn instant_of(&self, shown: DateTime) -> Option<Timestamp> {
        let found = self.zone.to_ambiguous_timestamp(shown);
        match found.offset() {
            AmbiguousOffset::Gap { before, .. } => {
                self.change_up_to(before.to_timestamp(shown).ok()?)
            }
            AmbiguousOffset::Fold { .. } | AmbiguousOffset::Unambiguous { .. } => {
                found.earlier().ok()
            }
        }
    }
}

#[cfg(test)]
mod tests;

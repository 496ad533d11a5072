//! The *slots* of a schedule: the instants at which it fires, in ms since the epoch.

use super::cron::CronTimes;
use super::{Schedule, ScheduleError};
use crate::task::terms::{duration_of, format_duration, instant_of, millis};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::Duration;

/// The shortest interval.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Maximum length of a cron expression.
const CRON_BYTES_MAX: usize = 256;

/// Slots behind this instant are ignored: their keys, which contain the number, would no longer be
/// in order.
pub const LATEST_MS: u64 = 9_999_999_999_999;

/// Slots before this instant, in September 2001, are not fired: their keys would have fewer digits.
pub const EARLIEST_MS: u64 = 1_000_000_000_000;

/// The times of a schedule, parsed from its document.
#[derive(Clone, Debug)]
pub enum FiringTimes {
    /// By a cron expression, in a time zone.
    Cron(Box<CronTimes>),
    /// At this interval, with this offset from the epoch, in ms.
    Every(u64, u64),
    /// Once, in ms since the epoch.
    At(u64),
}

impl FiringTimes {
    /// # Errors
    /// If the document has no times, or invalid ones.
    pub fn of(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let Schedule { cron, time_zone, every, offset, at, .. } = schedule;
        if time_zone.is_some() && cron.is_none() {
            return Err(ScheduleError::When("a time zone belongs to a cron expression"));
        }
        if offset.is_some() && every.is_none() {
            return Err(ScheduleError::When("an offset belongs to an interval"));
        }
        match (cron, every, at) {
            (Some(cron), None, None) => Self::cron(cron, time_zone.as_deref()),
            (None, Some(every), None) => Self::every(every, offset.as_deref()),
            (None, None, Some(at)) => {
                let at = instant_of(at).map_err(|error| ScheduleError::Value(error.to_string()))?;
                let beyond = || ScheduleError::Value(format!("{at} ms is beyond the year 2286"));
                (at <= LATEST_MS).then_some(Self::At(at)).ok_or_else(beyond)
            }
            _ => Err(ScheduleError::When("give exactly one of `cron`, `every` and `at`")),
        }
    }

    fn cron(text: &str, time_zone: Option<&str>) -> Result<Self, ScheduleError> {
        let problem = |problem: String| ScheduleError::Cron {
            expression: text.chars().take(CRON_BYTES_MAX).collect(),
            problem,
        };
        if text.len() > CRON_BYTES_MAX {
            return Err(problem(format!("it has more than {CRON_BYTES_MAX} bytes")));
        }
        let name = time_zone.unwrap_or("UTC");
        let unknown = |_| ScheduleError::TimeZone(name.chars().take(CRON_BYTES_MAX).collect());
        let zone = TimeZone::get(name).map_err(unknown)?;
        let times = CronTimes::new(text, zone).map_err(|error| problem(error.to_string()))?;
        Ok(Self::Cron(Box::new(times)))
    }

    fn every(every: &str, offset: Option<&str>) -> Result<Self, ScheduleError> {
        let read =
            |text: &str| duration_of(text).map_err(|error| ScheduleError::Value(error.to_string()));
        let every = read(every)?;
        if every < INTERVAL_MIN {
            let text = format_duration(every).unwrap_or_default();
            return Err(ScheduleError::Value(format!("an interval of {text} is below a second")));
        }
        let every = millis(every);
        let offset = offset.map(read).transpose()?.map_or(0, millis);
        Ok(Self::Every(every, offset % every))
    }

    /// The first slot behind this instant.
    pub fn next_after(&self, ms: u64) -> Option<u64> {
        let next = match self {
            Self::Cron(times) => ms_of(times.next_after(second(ms)?)?)?,
            Self::Every(every, offset) => {
                let periods = ms.checked_add(*every)?.saturating_sub(*offset) / every;
                periods.checked_mul(*every)?.checked_add(*offset)?
            }
            Self::At(at) if *at > ms => *at,
            Self::At(_) => return None,
        };
        (next <= LATEST_MS).then_some(next)
    }

    /// The last slot up to and including this instant.
    pub fn last_up_to(&self, ms: u64) -> Option<u64> {
        match self {
            Self::Cron(times) => ms_of(times.last_up_to(second(ms)?)?),
            Self::Every(every, offset) => Some(ms.checked_sub(*offset)? / every * every + offset),
            Self::At(at) => (*at <= ms).then_some(*at),
        }
    }
}

/// The second that an instant in ms is in: a slot of a cron expression is a whole second.
fn second(ms: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(ms / 1_000).ok()?).ok()
}

fn ms_of(slot: Timestamp) -> Option<u64> {
    u64::try_from(slot.as_second()).ok()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests;

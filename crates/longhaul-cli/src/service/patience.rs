//! How long a waiting command continues during an outage, and the notes about it.

use crate::clock;
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use crate::times;
use std::time::{Duration, Instant};

/// The time limit, and the output for notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Zero if the first failure ends the command.
    pub(crate) limit: Duration,
    pub(crate) output: Output,
}

/// A current outage.
#[derive(Debug)]
pub(crate) struct Away {
    since: Instant,
    cause: String,
}

impl Patience {
    /// Reports the start of an outage, and that it is retried.
    pub(crate) fn begin(&self, who: &str, cause: &str) -> Away {
        let limit = times::human(self.limit);
        self.output.note(&format!("reconnecting to {who}, for up to {limit}: {cause}"));
        Away { since: clock::monotonic(), cause: cause.to_owned() }
    }

    /// Reports the end of an outage.
    pub(crate) fn end(&self, who: &str, away: &Away) {
        let took = times::human(away.since.elapsed());
        self.output.note(&format!("connected to {who} again, after {took}"));
    }

    /// The time left.
    pub(crate) fn left(&self, away: &Away) -> Duration {
        self.limit.saturating_sub(away.since.elapsed())
    }

    /// The error when an outage has lasted too long.
    pub(crate) fn over(&self, who: &str, away: &Away) -> CommandFailure {
        let limit = times::human(self.limit);
        let what = format!("{who} has not answered for {limit}: {}", away.cause);
        CommandFailure::new(Code::Unreachable, what).help(
            "run the command again later, or raise --reconnect-timeout; the tasks continue \
             meanwhile",
        )
    }
}

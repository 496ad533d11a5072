//! How long somebody who waits goes on while nobody answers, and what is said of that.

use crate::clock;
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use crate::times;
use std::time::{Duration, Instant};

/// How long to go on, and where to say so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Nothing: the first failure ends it.
    pub(crate) limit: Duration,
    pub(crate) output: Output,
}

/// Nobody answers.
#[derive(Debug)]
pub(crate) struct Away {
    since: Instant,
    cause: String,
}

impl Patience {
    /// Says that somebody does not answer, and that it is tried again.
    pub(crate) fn begin(&self, who: &str, cause: &str) -> Away {
        let limit = times::human(self.limit);
        self.output.note(&format!("reconnecting to {who}, for up to {limit}: {cause}"));
        Away { since: clock::monotonic(), cause: cause.to_owned() }
    }

    /// Says that somebody answers again.
    pub(crate) fn end(&self, who: &str, away: &Away) {
        let took = times::human(away.since.elapsed());
        self.output.note(&format!("connected to {who} again, after {took}"));
    }

    /// The time that is left to go on.
    pub(crate) fn left(&self, away: &Away) -> Duration {
        self.limit.saturating_sub(away.since.elapsed())
    }

    /// Nobody has answered for too long.
    pub(crate) fn over(&self, who: &str, away: &Away) -> CommandFailure {
        let limit = times::human(self.limit);
        let what = format!("{who} has not answered for {limit}: {}", away.cause);
        CommandFailure::new(Code::Unreachable, what).help(
            "tasks go on without you: ask again when it is back; --reconnect-timeout sets how long to go on",
        )
    }
}

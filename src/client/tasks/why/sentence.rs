//! The cause as one sentence.

use super::cause::MISSED_MAX;
use super::{Why, WhyCause};
use jiff::Timestamp;
use longhaul_core::queue::SHOWN_MAX;
use std::fmt::{self, Write};
use std::time::Duration;

/// Writes the sentence.
pub(super) fn write(f: &mut fmt::Formatter<'_>, why: &Why) -> fmt::Result {
    write_cause(f, why, &why.cause)
}

fn write_cause(f: &mut fmt::Formatter<'_>, why: &Why, cause: &WhyCause) -> fmt::Result {
    let now = why.at_ms;
    match cause {
        WhyCause::Over => write!(f, "the task is over: {}", why.status.word()),
        WhyCause::Running { .. } | WhyCause::Leased { .. } => running(f, why, cause),
        cause @ (WhyCause::NoWorker { .. }
        | WhyCause::NoRequest { .. }
        | WhyCause::NoSlot { .. }
        | WhyCause::Ready { .. }) => workers(f, cause, now),
        WhyCause::CancelRequested => f.write_str(
            "its cancellation was requested: the next worker that sees the task closes it",
        ),
        WhyCause::Scheduled { at } => write!(f, "it is scheduled: it may begin {}", At(now, *at)),
        WhyCause::Retrying { at, attempts } => {
            let next = At(now, *at);
            write!(
                f,
                "attempt {attempts} has ended without a result; the next one may begin {next}"
            )
        }
        WhyCause::Dependencies { open_count: 0, .. } => {
            f.write_str("it waits for other tasks, and all the known ones are over")
        }
        WhyCause::Dependencies { open, open_count, total } => {
            let least = if *total >= SHOWN_MAX { "at least " } else { "" };
            write!(f, "it waits for {least}{open_count} of {least}{total} tasks")?;
            list(f, open, *open_count)
        }
        WhyCause::BehindKey { key, holder } => write!(
            f,
            "task {holder} holds the key `{key}`; this task replaces it as soon as it is over"
        ),
        WhyCause::KeyLost { key, holder } => write!(
            f,
            "task {holder} holds the key `{key}`: the next worker that sees this task closes it as a duplicate"
        ),
        WhyCause::Order { before } => {
            write!(f, "the queue runs one task per order key at a time, and {before} comes first")
        }
        WhyCause::Paused => {
            f.write_str("the queue is paused; resume it with `longhaul queue resume`")
        }
        WhyCause::Limit { key, running, limit, ahead } => {
            limit_of(f, key.as_deref())?;
            write!(f, ": {running} of {limit} run, and ")?;
            match ahead {
                0 => f.write_str("this task is the next one"),
                ahead => write!(f, "{} before it", Plural(*ahead as u64, "task is", "tasks are")),
            }
        }
        WhyCause::Rate { key, opens } => {
            limit_of(f, key.as_deref())?;
            write!(f, ": the next start is allowed {}", At(now, *opens))
        }
    }
}

fn running(f: &mut fmt::Formatter<'_>, why: &Why, cause: &WhyCause) -> fmt::Result {
    let now = why.at_ms;
    if let WhyCause::Leased { worker, since, expires } = cause {
        let (since, expires) = (Ago(now, *since), At(now, *expires));
        write!(f, "`{worker}` leased it {since} ago; ")?;
        return write!(f, "without a keep-alive the attempt fails {expires}");
    }
    let WhyCause::Running { worker, since, last_heartbeat, missed, others, held_up_by } = cause
    else {
        return Ok(());
    };
    if worker.is_empty() {
        return write!(
            f,
            "a worker that the ledger does not name has been running it for {}",
            Ago(now, *since)
        );
    }
    write!(f, "`{worker}` has been running it for {}; ", Ago(now, *since))?;
    match last_heartbeat.map(|at| Ago(now, at)) {
        Some(ago) if *missed < MISSED_MAX => {
            write!(f, "its last heartbeat is {ago} old, and after two intervals ")?;
            return f.write_str("without one another worker takes the task over");
        }
        None => f.write_str("no heartbeat of that worker is known")?,
        Some(ago) => write!(f, "the worker has been silent for {ago}")?,
    }
    match (others, held_up_by) {
        (0, _) => f.write_str(", and no other worker is alive; start a worker"),
        (_, None) => f.write_str(", so another worker takes the task over"),
        (_, Some(held_up_by)) => {
            f.write_str(", and another worker takes the task over as soon as it may: ")?;
            write_cause(f, why, held_up_by)
        }
    }
}

fn workers(f: &mut fmt::Formatter<'_>, cause: &WhyCause, now: u64) -> fmt::Result {
    let before = |ahead: u64| Plural(ahead, "ready task is", "ready tasks are");
    let workers = |count: usize| Plural(count as u64, "worker", "workers");
    if let WhyCause::NoWorker { last_heartbeat } = cause {
        return match last_heartbeat.map(|at| Ago(now, at)) {
            Some(ago) => {
                write!(f, "no worker is alive: the last heartbeat was {ago} ago; start a worker")
            }
            None => f.write_str("no worker of the queue is alive; start a worker"),
        };
    }
    if let WhyCause::NoRequest { gateways } = cause {
        let gateways = Plural(*gateways as u64, "gateway is", "gateways are");
        write!(
            f,
            "no worker serves the queue: only {gateways} alive, and no worker there asks for "
        )?;
        return f.write_str("this task; start a worker");
    }
    if let WhyCause::NoSlot { slots, workers: count, ahead } = cause {
        let (slots, workers) = (Plural(*slots, "slot", "slots"), workers(*count));
        write!(f, "all {slots} of {workers} are busy")?;
        return if *ahead > 0 { write!(f, "; {} before it", before(*ahead)) } else { Ok(()) };
    }
    let WhyCause::Ready { workers: count, ahead } = cause else { return Ok(()) };
    let alive = Plural(*count as u64, "worker is", "workers are");
    match ahead {
        0 => write!(f, "it is ready, and no task of its priority is before it; {alive} alive"),
        ahead => write!(f, "it is ready, and {} before it; {alive} alive", before(*ahead)),
    }
}

fn limit_of(f: &mut fmt::Formatter<'_>, key: Option<&str>) -> fmt::Result {
    match key {
        Some(key) => write!(f, "the limit of the key `{key}` is reached"),
        None => f.write_str("the limit of the queue is reached"),
    }
}

fn list(f: &mut fmt::Formatter<'_>, names: &[String], count: usize) -> fmt::Result {
    let mut separator = ": ";
    for name in names {
        write!(f, "{separator}{name}")?;
        separator = ", ";
    }
    let more = count.saturating_sub(names.len());
    if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
}

/// A number with its noun.
struct Plural(u64, &'static str, &'static str);

impl fmt::Display for Plural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, one, many) = self;
        write!(f, "{count} {}", if *count == 1 { one } else { many })
    }
}

/// The time since an instant.
struct Ago(u64, u64);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(now, at) = self;
        write_length(f, Duration::from_millis(now.saturating_sub(*at)))
    }
}

/// A future instant.
struct At(u64, u64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(now, at) = self;
        match at.saturating_sub(*now) {
            0 => f.write_str("now")?,
            ms => {
                f.write_str("in ")?;
                write_length(f, Duration::from_millis(ms))?;
            }
        }
        let instant = i64::try_from(at.div_ceil(1_000)).ok();
        match instant.and_then(|seconds| Timestamp::from_second(seconds).ok()) {
            Some(instant) => write!(f, " ({instant})"),
            None => Ok(()),
        }
    }
}

/// Writes the two largest units of a length of time.
fn write_length(f: &mut fmt::Formatter<'_>, length: Duration) -> fmt::Result {
    let seconds = length.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    let units = [(days, 'd'), (hours, 'h'), (minutes, 'm'), (seconds, 's')];
    let Some(first) = units.iter().position(|(count, _)| *count > 0) else {
        return f.write_str("less than 1s");
    };
    for (place, (count, unit)) in units.iter().skip(first).take(2).enumerate() {
        if place == 0 || *count > 0 {
            let blank = if place == 0 { "" } else { " " };
            write!(f, "{blank}{count}")?;
            f.write_char(*unit)?;
        }
    }
    Ok(())
}

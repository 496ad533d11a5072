//! What can be measured, and what a child process is told.

use crate::meter::Meter;
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Scenario {
    Flow,
    Each,
    Both,
    Claim,
    Publish,
    Latency,
    Consume,
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Library {
    Crate,
    Session,
}

/// A transport and how its publishers are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) library: Library,
    pub(super) ledger_batched: bool,
    pub(super) view_batched: bool,
}

impl Side {
    const fn new(library: Library, ledger_batched: bool, view_batched: bool) -> Self {
        Self { library, ledger_batched, view_batched }
    }

    /// Its name in the tables.
    pub(super) fn name(self) -> String {
        let library = match self.library {
            Library::Crate => "crate, 3 clients",
            Library::Session => "session",
        };
        let batched = match (self.ledger_batched, self.view_batched) {
            (true, true) => "batched",
            (true, false) => "C batched, M not",
            (false, true) => "M batched, C not",
            (false, false) => "unbatched",
        };
        format!("{library}, {batched}")
    }
}

/// All that may be set for the whole flow; the session's first one is our worker's.
const FLOW_SIDES: &[Side] = &[
    Side::new(Library::Crate, false, false),
    Side::new(Library::Session, false, false),
    Side::new(Library::Crate, true, false),
    Side::new(Library::Session, true, false),
    Side::new(Library::Crate, true, true),
    Side::new(Library::Session, true, true),
];
/// For what uses one topic.
const SIDES: &[Side] = &[
    Side::new(Library::Crate, false, false),
    Side::new(Library::Session, false, false),
    Side::new(Library::Crate, true, true),
    Side::new(Library::Session, true, true),
];
/// For what does not depend on batches, and for what our worker has open.
const PLAIN_SIDES: &[Side] =
    &[Side::new(Library::Crate, true, false), Side::new(Library::Session, true, false)];
const UNBATCHED_SIDES: &[Side] =
    &[Side::new(Library::Crate, false, false), Side::new(Library::Session, false, false)];

/// A row that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its name; the part before the dash names all of its kind.
    pub(super) name: &'static str,
    /// What it measures.
    pub(super) about: &'static str,
    pub(super) scenario: Scenario,
    pub(super) in_flight: usize,
    /// Enough for some seconds on an idle machine.
    pub(super) count: usize,
    pub(super) sides: &'static [Side],
}

const fn row(
    name: &'static str,
    about: &'static str,
    scenario: Scenario,
    (in_flight, count): (usize, usize),
    sides: &'static [Side],
) -> Row {
    Row { name, about, scenario, in_flight, count, sides }
}

const FLOW: &str =
    "whole flow of a task: claim read back, PROCESSING, done read back, COMPLETED awaited, ack";
const EACH: &str = "PROCESSING awaited, then COMPLETED awaited";
const BOTH: &str = "PROCESSING and COMPLETED sent, then both awaited";
const CLAIM: &str = "claim read back";
const PUBLISH: &str = "publish of 100 bytes";

/// All rows, in the order in which they are measured.
pub(super) const ROWS: &[Row] = &[
    row("flow-100", FLOW, Scenario::Flow, (100, 40_000), FLOW_SIDES),
    row("flow-1000", FLOW, Scenario::Flow, (1_000, 100_000), FLOW_SIDES),
    row("each-100", EACH, Scenario::Each, (100, 40_000), SIDES),
    row("each-1000", EACH, Scenario::Each, (1_000, 100_000), SIDES),
    row("both-100", BOTH, Scenario::Both, (100, 40_000), SIDES),
    row("both-1000", BOTH, Scenario::Both, (1_000, 100_000), SIDES),
    row("claim-100", CLAIM, Scenario::Claim, (100, 40_000), SIDES),
    row("claim-1000", CLAIM, Scenario::Claim, (1_000, 100_000), SIDES),
    row("publish-1", PUBLISH, Scenario::Publish, (1, 2_000), SIDES),
    row("publish-10", PUBLISH, Scenario::Publish, (10, 20_000), SIDES),
    row("publish-100", PUBLISH, Scenario::Publish, (100, 100_000), SIDES),
    row("publish-1000", PUBLISH, Scenario::Publish, (1_000, 500_000), SIDES),
    row("latency", "publish of 100/s", Scenario::Latency, (10, 1_000), UNBATCHED_SIDES),
    row("consume", "consume and ack", Scenario::Consume, (1_000, 200_000), UNBATCHED_SIDES),
    row(
        "idle",
        "two publishers, two followers and a consumer that do nothing",
        Scenario::Idle,
        (100, 0),
        PLAIN_SIDES,
    ),
];

impl Row {
    /// Whether somebody who says this means the row.
    pub(super) fn is_meant_by(&self, name: &str) -> bool {
        let kind = self.name.split('-').next();
        name == self.name || Some(name) == kind
    }
}

/// The topics of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Topics {
    pub(super) task: String,
    pub(super) ledger: String,
    pub(super) view: String,
}

/// What a child process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) service_url: String,
    /// Process of the broker, where it is known.
    pub(super) broker: Option<u32>,
    pub(super) scenario: Scenario,
    pub(super) side: Side,
    /// Tasks or messages under way at a time.
    pub(super) in_flight: usize,
    /// Tasks or messages that are measured.
    pub(super) count: usize,
    pub(super) topics: Topics,
}

impl Plan {
    /// Measures this process and the broker from now on.
    pub(super) fn meter(&self) -> Result<Meter> {
        let broker = self.broker.into_iter().collect();
        Meter::start([("client", vec![std::process::id()]), ("broker", broker)])
    }

    /// Tasks or messages that come before what is measured.
    pub(super) const fn warm_up(&self) -> usize {
        self.count / 10
    }

    /// Messages that the task topic must hold before the run.
    pub(super) const fn tasks(&self) -> usize {
        let consumes = matches!(self.scenario, Scenario::Flow | Scenario::Consume);
        if consumes { self.count + self.warm_up() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_one_by_one_or_by_their_kind() {
        let named = |name| ROWS.iter().filter(|row| row.is_meant_by(name)).count();
        assert_eq!((named("flow"), named("flow-100"), named("publish")), (2, 1, 4));
        assert_eq!((named("idle"), named("100"), named("flow-")), (1, 0, 0));
    }
}

//! Compactions that are asked for.

use super::*;
use crate::admin::values::{CompactionState, CompactionStatus};
use crate::machine::effect::CompactionJob;

/// The compaction that was begun.
pub(super) fn job(effects: Vec<Effect>) -> Option<CompactionJob> {
    jobs(effects).pop()
}

fn jobs(effects: Vec<Effect>) -> Vec<CompactionJob> {
    let job = |effect| match effect {
        Effect::Compact(job) => Some(job),
        _ => None,
    };
    effects.into_iter().filter_map(job).collect()
}

fn status(status: CompactionState, last_error: &str) -> Result<CompactionStatus, AdminError> {
    Ok(CompactionStatus { status, last_error: last_error.to_owned() })
}

#[test]
fn a_compaction_says_how_far_it_has_come() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.fill(1, 1, 2);
    let ask = || topic("t", |machine, name| machine.compaction_status(name));
    let start = || topic("t", Machine::start_compaction);
    assert_eq!(rig.answer(ask()), status(CompactionState::NotRun, ""));
    let (answer, effects) = rig.answer_and_effects(start());
    assert_eq!(answer, DONE);
    let first = job(effects).unwrap();
    assert_eq!(rig.answer(ask()), status(CompactionState::Running, ""));
    rig.refuses(start(), 409, "Compaction already in progress");
    rig.machine.compacted(&first, Err("no room".to_owned()));
    rig.settle();
    assert_eq!(rig.answer(ask()), status(CompactionState::Error, "no room"));
    let (answer, effects) = rig.answer_and_effects(start());
    assert_eq!(answer, DONE);
    rig.machine.compacted(&job(effects).unwrap(), Ok(Arc::from([])));
    rig.settle();
    assert_eq!(rig.answer(ask()), status(CompactionState::Success, ""));
}

/// What is under way on one partition does not keep the others from beginning, and is told.
#[test]
fn a_compaction_of_the_whole_begins_on_each_partition() {
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 3);
    let (answer, effects) =
        rig.answer_and_effects(topic("parts-partition-0", Machine::start_compaction));
    assert_eq!((answer, jobs(effects).len()), (DONE, 1));
    let (answer, effects) = rig.answer_and_effects(topic("parts", Machine::start_compaction));
    let error = answer.unwrap_err();
    assert_eq!((super::status(&error), jobs(effects).len()), (409, 2), "{error}");
}

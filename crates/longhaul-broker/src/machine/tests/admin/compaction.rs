//! Requested compactions.

use super::*;
use crate::admin::values::{CompactionRunStatus, RunState};

/// Number of compactions that were started.
fn jobs(effects: &[MachineEffect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, MachineEffect::Compact(_))).count()
}

fn status(status: RunState, last_error: &str) -> Result<CompactionRunStatus, AdminCallError> {
    Ok(CompactionRunStatus { status, last_error: last_error.to_owned() })
}

#[test]
fn a_compaction_says_how_far_it_has_come() {
    let mut rig = Rig::with_producer();
    rig.fill(1, 1, 2);
    let ask = || topic("t", |machine, name| machine.compaction_status(name));
    let start = || topic("t", BrokerMachine::start_compaction);
    assert_eq!(rig.answer(ask()), status(RunState::NotRun, ""));
    let (answer, effects) = rig.answer_and_effects(start());
    assert_eq!(answer, DONE);
    let first = support::job(&effects).unwrap();
    assert_eq!(rig.answer(ask()), status(RunState::Running, ""));
    rig.refuses(start(), 409, "Compaction already in progress");
    rig.machine.compacted(&first, Err("no room".to_owned()));
    rig.settle();
    assert_eq!(rig.answer(ask()), status(RunState::Error, "no room"));
    let (answer, effects) = rig.answer_and_effects(start());
    assert_eq!(answer, DONE);
    rig.machine.compacted(&support::job(&effects).unwrap(), Ok(Arc::from([])));
    rig.settle();
    assert_eq!(rig.answer(ask()), status(RunState::Success, ""));
}

/// A compaction that is running on one partition does not prevent the others, and is reported.
#[test]
fn a_compaction_of_the_whole_begins_on_each_partition() {
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 3);
    let (answer, effects) =
        rig.answer_and_effects(topic("parts-partition-0", BrokerMachine::start_compaction));
    assert_eq!((answer, jobs(&effects)), (DONE, 1));
    let (answer, effects) = rig.answer_and_effects(topic("parts", BrokerMachine::start_compaction));
    let error = answer.unwrap_err();
    assert_eq!((error.status().as_u16(), jobs(&effects)), (409, 0), "{error}");
    assert_eq!(rig.machine.pending_compactions().len(), 3, "they run one after another");
}

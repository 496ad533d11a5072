//! Random walks: two machines on one ledger receive the events of workers in any order. No
//! invariant ever has to stop a step.

use super::super::finished::FinishedTasks;
use super::*;
use crate::protocol::claim::Decision;

/// The tasks: one alone, two in a batch.
const TASKS: [TaskId; 3] = [
    T,
    TaskId { entry: 8, batch_index: Some(0), ..T },
    TaskId { entry: 8, batch_index: Some(1), ..T },
];
const STRANGER: OwnerId = OwnerId(99);

/// A machine and its pending actions.
struct Worker {
    machine: Machine,
    cursor: usize,
    /// The end of its bootstrap.
    end: usize,
    out: Vec<Entry>,
    bodies: Vec<(TaskId, Epoch)>,
    asked: Vec<Action>,
}

/// An event and its task. The last number chooses among the possible details.
#[derive(Clone, Copy, Debug)]
struct Told {
    what: u8,
    worker: usize,
    task: usize,
    choice: usize,
}

fn told() -> impl Strategy<Value = Told> {
    (0..28_u8, 0..2_usize, 0..3_usize, 0..8_usize).prop_map(|(what, worker, task, choice)| Told {
        what,
        worker,
        task,
        choice,
    })
}

#[derive(Default)]
struct Walk {
    log: Vec<Entry>,
    owners: u128,
    starts: usize,
    ends: usize,
    /// All actions of the machines.
    asked: Vec<Action>,
}

impl Walk {
    fn step(&mut self, workers: &mut [Worker; 2], told: Told) -> Result<(), TestCaseError> {
        let Told { what, worker, task, choice } = told;
        let (id, state) = (TASKS[task], &mut workers[worker]);
        match what {
            0 | 1 => state.machine.delivered(id, id.batch_index.map(|_| 2)),
            2 | 3 => match state.machine.decide(id, true, None) {
                Decision::Claim(claim) => state.machine.claim(id, claim),
                Decision::ReadPayload => state.machine.read_payload(id),
                Decision::Wait => {}
            },
            4..=8 if !state.out.is_empty() => self.log.push(state.out.remove(0)),
            9..=17 => self.read(state, choice == 0),
            18..=20 if !state.bodies.is_empty() => {
                let (id, epoch) = state.bodies.remove(choice % state.bodies.len());
                state.machine.finished(id, epoch, outcome(choice));
            }
            21..=23 if !state.asked.is_empty() => {
                let asked = state.asked.remove(choice % state.asked.len());
                answer(&mut state.machine, &asked, choice != 0);
            }
            24 => {
                for entry in std::mem::take(&mut state.out) {
                    if let Key::Once(key) = entry.key() {
                        state.machine.publish_failed(key);
                    } else {
                        state.machine.seal_failed();
                    }
                }
            }
            25 if choice < 2 => state.machine.session_lost(),
            25 if choice < 4 => state.machine.hand_back(id),
            25 if choice < 5 => self.fence(state),
            25 => state.machine.close(id),
            26 => self.stranger(id, choice),
            27 => {
                let entries: Vec<EntryId> = TASKS.iter().map(|id| id.entry_id()).collect();
                state.machine.seal(&entries);
                let keys = state.machine.sweepable().collect();
                state.machine.sweep(keys);
            }
            _ => {}
        }
        self.settle(state)
    }

    /// Performs the machine's actions.
    fn settle(&mut self, state: &mut Worker) -> Result<(), TestCaseError> {
        while let Some(action) = state.machine.poll_action() {
            self.asked.push(action.clone());
            match action {
                Action::SetAside { violation, epoch } => {
                    return Err(TestCaseError::fail(format!("{violation}, epoch {epoch}")));
                }
                Action::Publish(entry) => state.out.push(entry),
                Action::Start { task, epoch, .. } | Action::Attend { task, epoch, .. } => {
                    self.starts += 1;
                    state.bodies.push((task, epoch));
                }
                Action::Stop { task, epoch, why: Stop::Fenced | Stop::SetAside | Stop::LetGo } => {
                    state.bodies.retain(|body| *body != (task, epoch));
                }
                Action::Ack(_) => {
                    self.ends += 1;
                    state.asked.push(action);
                }
                Action::ReadPayload(_) | Action::ShowOutcome(_) | Action::DeadLetter(_) => {
                    state.asked.push(action);
                }
                Action::Tombstone(keys) => {
                    state.out.extend(keys.into_iter().map(Entry::Tombstone));
                    state.machine.tombstoned(true);
                }
                Action::Stop { why: Stop::Cancelled, .. }
                | Action::DropPayload(_)
                | Action::ShowRetry(_)
                | Action::HandBack(_) => {}
            }
        }
        Ok(())
    }

    fn read(&mut self, state: &mut Worker, late: bool) {
        if let Some(entry) = self.log.get(state.cursor) {
            let position = Position { ledger: 0, entry: state.cursor as u64, batch_index: None };
            state.cursor += 1;
            if let Entry::Seal(seal) = entry {
                state.machine.read_seal(position, seal);
            }
            state.machine.read(ReadEntry { position, entry, publish_time_ms: 1, late });
        }
        if !state.machine.is_ready() && state.cursor >= state.end {
            state.machine.bootstrap_ended();
        }
    }

    /// Writes an entry of a client, or one that no worker would write.
    fn stranger(&mut self, task: TaskId, choice: usize) {
        let epoch = Epoch(u32::try_from(choice / 2).unwrap_or(0));
        let key = OnceKey { task, epoch, owner: STRANGER, serial: self.log.len() as u64 };
        self.log.push(match choice % 4 {
            0 => Entry::Cancel(task),
            1 => Entry::Done(Done { key, attempt: 1, outcome: Outcome::Completed, writer: None }),
            _ => {
                let (attempt, kind) = (epoch.0 + 1, ClaimKind::Run);
                let batch_size = task.batch_index.map(|_| 2);
                Entry::Claim(Claim { batch_size, ..Claim::plain(key, attempt, kind) })
            }
        });
    }

    fn fence(&mut self, state: &mut Worker) {
        self.owners += 1;
        // Entries in flight may have landed.
        self.log.append(&mut state.out);
        state.machine.fence(OwnerId(1_000 + self.owners));
        (state.cursor, state.end) = (0, self.log.len());
        state.asked.clear();
    }
}

fn outcome(choice: usize) -> Outcome {
    let next = NextAttempt::default();
    match choice {
        0 => Outcome::Failed(next),
        1 => Outcome::Released(next),
        2 => Outcome::Final,
        3 => Outcome::Cancelled,
        _ => Outcome::Completed,
    }
}

fn answer(machine: &mut Machine, asked: &Action, found: bool) {
    match asked {
        Action::ReadPayload(id) => {
            if found {
                machine.record_batch_size(*id, id.batch_index.map(|_| 2));
            }
            machine.payload_read(*id, found);
        }
        Action::ShowOutcome(id) => {
            let phase = machine.fold(*id).phase;
            // If a seal has come meanwhile, nothing is left to show.
            if machine.task(*id).is_some() && machine.may_show(*id, phase) {
                machine.metadata_stored(*id);
            }
        }
        Action::DeadLetter(id) => machine.dead_letter_stored(*id),
        Action::Ack(entry) => machine.acked(*entry),
        Action::Publish(_)
        | Action::Start { .. }
        | Action::Attend { .. }
        | Action::Stop { .. }
        | Action::DropPayload(_)
        | Action::ShowRetry(_)
        | Action::HandBack(_)
        | Action::Tombstone(_)
        | Action::SetAside { .. } => {}
    }
}

fn workers() -> [Worker; 2] {
    [ME, OTHER].map(|owner| {
        let mut machine = Machine::new(owner, 3);
        machine.bootstrap_ended();
        let (out, bodies, asked) = (Vec::new(), Vec::new(), Vec::new());
        Worker { machine, cursor: 0, end: 0, out, bodies, asked }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// The guards are for bugs of the machine. No event of the ledger, the broker or the processors
    /// may trigger them.
    #[test]
    fn no_step_is_ever_refused(steps in proptest::collection::vec(told(), 0..400)) {
        let (mut walk, mut workers) = (Walk::default(), workers());
        for told in steps {
            walk.step(&mut workers, told)?;
        }
    }

    /// The storage form of a task, full or compact, must not matter: the same walk leads to the
    /// same steps.
    #[test]
    fn finished_tasks_in_little_space_are_the_same(steps in proptest::collection::vec(told(), 0..400)) {
        let mut walks = [false, true].map(|restless| {
            let mut workers = workers();
            for worker in &mut workers {
                worker.machine.tasks.restless = restless;
            }
            (Walk::default(), workers)
        });
        for told in steps {
            for (walk, workers) in &mut walks {
                walk.step(workers, told)?;
                let touched = &mut workers[told.worker];
                if !touched.machine.tasks.restless {
                    let finished = |task: &Task| FinishedTasks::takes(task);
                    let mut open = touched.machine.open_tasks();
                    prop_assert!(!open.any(|(_, task)| finished(task)), "one takes up much space");
                }
            }
            let [(ours, workers), (theirs, others)] = &walks;
            prop_assert_eq!(&ours.asked, &theirs.asked);
            for (one, other) in workers.iter().zip(others) {
                prop_assert_eq!(&one.machine.tasks, &other.machine.tasks);
            }
        }
    }
}

/// Proof that the walks lead somewhere.
#[test]
fn walks_start_tasks_and_acknowledge_them() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut walk, mut rested) = (Walk::default(), 0);
    for _ in 0..200 {
        let mut workers = workers();
        walk.log.clear();
        for _ in 0..400 {
            let (what, worker) = (rng.u8(0..28), rng.usize(0..2));
            let told = Told { what, worker, task: rng.usize(0..3), choice: rng.usize(0..8) };
            walk.step(&mut workers, told).unwrap();
            let machine = &workers[worker].machine;
            rested += machine.tasks().count() - machine.open_tasks().count();
        }
    }
    assert!(walk.starts > 300 && walk.ends > 100, "{} starts, {} acks", walk.starts, walk.ends);
    assert!(rested > 10_000, "a finished task took up little space after {rested} steps");
}

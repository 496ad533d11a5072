use super::super::log::Ended;
use super::super::told::Try;
use super::*;
use longhaul_core::protocol::entry::NextAttempt;
use proofs::checkers::fold::{Stand, State};

const fn task(entry: u64) -> TaskId {
    TaskId { ledger: 7, entry, partition: -1, batch_index: None }
}

/// Completed at once, after a failure, after a silence; failed for good; and a duplicate of the
/// first.
const DONE: TaskId = task(1);
const RETRIED: TaskId = task(2);
const SILENT: TaskId = task(3);
const FAILED: TaskId = task(4);
const DUPLICATE: TaskId = task(5);

fn refused() -> Answered {
    Answered::Refused("lease_expired".to_owned())
}

fn sent(answered: Answered) -> Try {
    Try { sent_ms: 1, answered_ms: 2, answered }
}

fn leased(task: TaskId, epoch: u32, plan: Plan, tries: &[Answered]) -> Leased {
    Leased {
        worker: "w".to_owned(),
        task,
        epoch,
        attempt: epoch,
        max_attempts: ATTEMPTS,
        asked_ms: 0,
        granted_ms: 0,
        plan,
        kept: Vec::new(),
        tries: tries.iter().cloned().map(sent).collect(),
    }
}

fn epoch(attempt: u32, outcome: Outcome, body: String) -> Epoch {
    let ended = Some(Ended { outcome, body, at_ms: 9 });
    Epoch { attempt, leased: true, claimed_ms: 5, ended }
}

fn submitted(key: &str, ids: &[TaskId]) -> Submitted {
    let tries = ids.iter().map(|_| sent(Answered::Counts)).collect();
    Submitted { key: key.to_owned(), tries, ids: ids.to_vec() }
}

fn log() -> Log {
    let failed = Outcome::Failed(NextAttempt::default());
    let mut log = Log::default();
    let mut put = |task, number, outcome, body| {
        log.epochs.insert((task, number), epoch(number, outcome, body));
    };
    put(DONE, 1, Outcome::Completed, "w".to_owned());
    put(RETRIED, 1, failed, Leased::reason(RETRIED, 1));
    put(RETRIED, 2, Outcome::Completed, "w".to_owned());
    put(SILENT, 1, failed, "silent".to_owned());
    put(SILENT, 2, Outcome::Completed, "w".to_owned());
    put(FAILED, 1, failed, Leased::reason(FAILED, 1));
    put(FAILED, 2, failed, "silent".to_owned());
    put(FAILED, 3, Outcome::Final, Leased::reason(FAILED, 3));
    let ends = [
        (DONE, "a", End::Completed),
        (RETRIED, "b", End::Completed),
        (SILENT, "c", End::Completed),
        (FAILED, "d", End::Final),
        (DUPLICATE, "a", End::Cancelled),
    ];
    for (task, key, end) in ends {
        log.keys.insert(task, key.to_owned());
        log.ends.insert(task, State { stand: Stand::Ended(end), ..State::default() });
    }
    log
}

fn sound() -> Evidence {
    let leases = vec![
        // The first answer was lost with its gateway.
        leased(DONE, 1, Plan::Succeed, &[Answered::Unknown, Answered::Counts]),
        leased(RETRIED, 1, Plan::Fail, &[Answered::Counts]),
        leased(RETRIED, 2, Plan::Succeed, &[Answered::Unheard, Answered::Counts]),
        leased(SILENT, 1, Plan::Hang, &[refused()]),
        leased(SILENT, 2, Plan::Succeed, &[Answered::Counts]),
        leased(FAILED, 1, Plan::Fail, &[Answered::Counts]),
        // The answer to the request for the second lease was lost.
        leased(FAILED, 3, Plan::Fail, &[Answered::Counts]),
    ];
    let shown = |(task, status, attempts): (TaskId, &str, u32)| {
        (task, Shown { status: status.to_owned(), attempts })
    };
    let shown = [
        (DONE, "completed", 1),
        (RETRIED, "completed", 2),
        (SILENT, "completed", 2),
        (FAILED, "failed", 3),
        (DUPLICATE, "cancelled", 0),
    ]
    .map(shown);
    Evidence {
        leases,
        submits: vec![
            submitted("a", &[DONE, DONE]),
            submitted("b", &[RETRIED]),
            submitted("c", &[SILENT]),
            submitted("d", &[FAILED]),
        ],
        log: log(),
        left: BTreeSet::new(),
        shown: vec![shown.clone().into(), shown.into()],
        letters: vec![vec![FAILED]; 2],
    }
}

#[test]
fn a_sound_run_is_sound() {
    assert_eq!(judge(&sound()), Vec::<String>::new());
}

type Plant = fn(&mut Evidence);

fn logged(evidence: &mut Evidence, task: TaskId, number: u32) -> &mut Epoch {
    evidence.log.epochs.get_mut(&(task, number)).unwrap()
}

const FAULTS: &[(&str, Plant)] = &[
    ("2 successes were accepted", |it| {
        it.leases.push(leased(DONE, 2, Plan::Succeed, &[Answered::Counts]));
    }),
    ("a report that was accepted does not count", |it| {
        logged(it, DONE, 1).ended = None;
    }),
    ("a report that was accepted does not count", |it| {
        let ended = logged(it, RETRIED, 1).ended.as_mut().unwrap();
        // Before it was reported.
        (ended.body, ended.at_ms) = ("silent".to_owned(), 0);
    }),
    ("a report that was refused counts", |it| {
        it.leases[4].tries = vec![sent(refused())];
    }),
    ("a report that was refused counts", |it| {
        it.leases[1].tries = vec![sent(refused())];
    }),
    ("a report of a lease that had ended was accepted", |it| {
        it.leases[3].tries = vec![sent(Answered::Counts)];
    }),
    ("a report was never answered", |it| {
        it.leases[0].tries.pop();
    }),
    ("nothing was reported", |it| it.leases[0].tries.clear()),
    ("the lease was given to two workers", |it| {
        let again = it.leases[0].clone();
        it.leases.push(again);
    }),
    ("the log knows no such lease", |it| {
        it.leases.push(leased(DONE, 2, Plan::Succeed, &[refused()]));
    }),
    ("the log has another one", |it| logged(it, DONE, 1).leased = false),
    ("the log has another one", |it| it.leases[0].attempt = 2),
    ("attempt 4 of 3", |it| it.leases[0].attempt = 4),
    ("it was completed by nobody", |it| {
        it.leases.remove(4);
    }),
    ("it was completed by nobody", |it| {
        it.leases[3].plan = Plan::Succeed;
        logged(it, SILENT, 1).ended.as_mut().unwrap().outcome = Outcome::Completed;
    }),
    ("the log has {}", |it| {
        it.log.keys.remove(&RETRIED);
    }),
    ("was answered", |it| it.submits[0].ids[1] = DUPLICATE),
    ("was answered", |it| {
        it.log
            .ends
            .insert(DUPLICATE, State { stand: Stand::Ended(End::Completed), ..State::default() });
    }),
    ("its task was never run", |it| {
        it.log.epochs.retain(|(task, _), _| *task != FAILED);
    }),
    ("nobody has submitted", |it| {
        it.submits.pop();
    }),
    ("a duplicate was run", |it| {
        it.log.epochs.insert((DUPLICATE, 1), Epoch { attempt: 1, ..Epoch::default() });
    }),
    ("it has not ended", |it| {
        it.log.ends.remove(&SILENT);
    }),
    ("it had too many attempts", |it| logged(it, FAILED, 3).attempt = 4),
    ("it failed for good before its last attempt", |it| {
        it.log.epochs.remove(&(FAILED, 3));
    }),
    ("it ended otherwise than its attempts", |it| {
        logged(it, RETRIED, 1).ended.as_mut().unwrap().outcome = Outcome::Completed;
    }),
    ("gateway 1 shows", |it| {
        it.shown[1].remove(&DONE);
    }),
    ("gateway 0 shows", |it| it.shown[0].get_mut(&FAILED).unwrap().status = "running".to_owned()),
    ("gateway 0 shows", |it| it.shown[0].get_mut(&FAILED).unwrap().attempts = 4),
    ("gateway 1 has dead letters", |it| it.letters[1].clear()),
    ("gateway 0 has dead letters", |it| it.letters[0].push(FAILED)),
];

#[test]
fn each_planted_fault_is_found() {
    for (number, (what, plant)) in FAULTS.iter().enumerate() {
        let mut evidence = sound();
        plant(&mut evidence);
        let found = judge(&evidence);
        assert!(found.iter().any(|it| it.contains(what)), "{number} {what}: {found:#?}");
    }
}

/// After a lost answer, a report may be refused as late although it counts.
#[test]
fn a_report_whose_answer_was_lost_may_count() {
    let mut evidence = sound();
    evidence.leases[0].tries = vec![sent(Answered::Unknown), sent(refused())];
    assert_eq!(judge(&evidence), Vec::<String>::new());
    logged(&mut evidence, DONE, 1).ended = None;
    assert!(!judge(&evidence).is_empty(), "then nobody has completed it");
}

/// A failure reported while its lease is being ended is confirmed: the attempt has failed.
#[test]
fn a_failure_may_be_confirmed_that_came_in_another_way_meanwhile() {
    let mut evidence = sound();
    logged(&mut evidence, RETRIED, 1).ended.as_mut().unwrap().body = "silent".to_owned();
    assert_eq!(judge(&evidence), Vec::<String>::new());
}

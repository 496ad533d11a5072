use super::*;

const TASK: TaskId = TaskId { ledger: 7, entry: 1, partition: -1, batch_index: None };
const OTHER: TaskId = TaskId { entry: 2, ..TASK };

fn told(sent_ms: u64, answered: Answered) -> Try {
    Try { sent_ms, answered_ms: sent_ms + 5, answered }
}

fn ok(sent_ms: u64) -> Try {
    told(sent_ms, Answered::Counts)
}

fn refused(sent_ms: u64, code: &str) -> Try {
    told(sent_ms, Answered::Refused(code.to_owned()))
}

fn look(gateway: usize, sent_ms: u64, status: &str) -> Look {
    let status = (!status.is_empty()).then(|| status.to_owned());
    Look { task: TASK, gateway, sent_ms, answered_ms: sent_ms + 5, status }
}

fn leased(epoch: u32, asked_ms: u64, plan: Plan) -> Leased {
    Leased {
        worker: "w".to_owned(),
        task: TASK,
        epoch,
        attempt: epoch,
        max_attempts: ATTEMPTS,
        asked_ms,
        granted_ms: asked_ms + 5,
        plan,
        kept: Vec::new(),
        tries: Vec::new(),
    }
}

/// Submitted at both gateways; one worker fails; the next is silent and late; the last one is
/// eager, and the first answer to its report is lost with its gateway.
#[derive(Clone)]
struct Run {
    submit: Submitted,
    leases: Vec<Leased>,
    looks: Vec<Look>,
}

fn sound() -> Run {
    let submit = Submitted {
        key: "a".to_owned(),
        tries: vec![told(0, Answered::Unknown), ok(2), ok(100)],
        ids: vec![TASK; 2],
    };
    let mut failed = leased(1, 200, Plan::Fail);
    failed.kept = vec![ok(300), refused(450, "lease_expired")];
    failed.tries = vec![ok(400)];
    let mut silent = leased(2, 500, Plan::Hang);
    silent.kept = vec![ok(600)];
    silent.tries = vec![refused(1_700, "lease_expired"), refused(2_100, "stale_lease_id")];
    let mut done = leased(3, 1_610, Plan::Succeed);
    done.kept = vec![ok(1_800), refused(1_900, "task_ended"), refused(2_010, "task_ended")];
    done.tries = vec![told(1_850, Answered::Unknown), ok(1_900), ok(2_000)];
    let looks = vec![
        look(0, 110, "ready"),
        look(0, 310, "running"),
        look(0, 410, "retrying"),
        // The second gateway lags, but does not go back.
        look(1, 1_910, "running"),
        look(0, 1_910, "completed"),
        look(1, 2_020, "completed"),
    ];
    Run { submit, leases: vec![failed, silent, done], looks }
}

fn judged(run: &Run) -> Judged {
    judge(std::slice::from_ref(&run.submit), &run.leases, &run.looks)
}

#[test]
fn a_sound_history_is_linearizable_and_counted() {
    let Judged { violations, answered, overlapping, unknown, kept, looks, behind } =
        judged(&sound());
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!((answered, overlapping, unknown), (22, 2, 2));
    assert_eq!((kept, looks, behind), ([3, 3], 6, 1));
}

type Plant = fn(&mut Run);

/// Each is an answer that callers must not get. The log shows none of them.
const FAULTS: &[(&str, Plant)] = &[
    ("a key names two tasks", |it| it.submit.ids[1] = OTHER),
    ("a lease of a task that was not submitted yet", |it| {
        it.submit.tries = vec![ok(250)];
    }),
    ("a lease of a task that nobody has submitted", |it| it.leases[0].task = OTHER),
    ("two leases at once", |it| {
        (it.leases[2].asked_ms, it.leases[2].granted_ms) = (700, 705);
    }),
    ("a lease after a keep-alive that was accepted half a lease time ago", |it| {
        it.leases[1].kept.push(ok(1_200));
    }),
    ("an epoch that is given twice", |it| it.leases[1].epoch = 1),
    ("an attempt that is given twice", |it| it.leases[2].attempt = 2),
    ("a fourth attempt", |it| it.leases[2].attempt = 4),
    ("a lease after the end", |it| {
        it.leases.remove(0);
        it.leases.push(leased(4, 2_500, Plan::Hang));
        for leased in &mut it.leases {
            leased.attempt -= 1;
        }
    }),
    ("a keep-alive that is accepted after the accepted report of its lease", |it| {
        it.leases[2].kept[2] = ok(2_010);
    }),
    ("a keep-alive that is accepted after an accepted failure", |it| {
        it.leases[0].kept[1] = ok(450);
    }),
    ("a keep-alive that is accepted after the next lease", |it| {
        it.leases[1].kept.push(ok(1_650));
    }),
    ("two outcomes", |it| it.leases[1].tries.push(ok(2_200))),
    ("a failure that is accepted after the success of the next lease", |it| {
        it.leases[1].plan = Plan::Fail;
        it.leases[1].tries.push(ok(2_200));
    }),
    ("a keep-alive that is refused in time", |it| {
        it.leases[0].kept[0] = refused(300, "lease_expired");
    }),
    ("a report that is refused in time", |it| {
        it.leases[0].tries[0] = refused(400, "lease_expired");
    }),
    ("a success that is refused when it is told again", |it| {
        it.leases[2].tries.push(refused(2_030, "task_ended"));
    }),
    ("an end while the next lease runs", |it| {
        it.leases[1].tries[0] = refused(1_700, "task_ended");
    }),
    ("a task that is gone after its submit was answered", |it| it.looks[0].status = None),
    ("an end that is shown before anybody has reported it", |it| {
        it.looks[2].status = Some("completed".to_owned());
    }),
    ("a failure for good while attempts are left and the lease runs", |it| {
        it.looks[1].status = Some("failed".to_owned());
    }),
    ("a gateway that goes back behind the end", |it| it.looks.push(look(0, 2_300, "running"))),
    ("another end", |it| it.looks.push(look(1, 2_300, "failed"))),
    ("an end that nobody has asked for", |it| it.looks.push(look(1, 2_300, "cancelled"))),
];

#[test]
fn each_planted_fault_is_found() {
    for (what, plant) in FAULTS {
        let mut run = sound();
        plant(&mut run);
        let found = judged(&run).violations;
        assert!(found.iter().any(|it| it.contains("not linearizable")), "{what}: {found:?}");
    }
}

/// Possible histories are not called faults.
#[test]
fn what_may_be_is_no_fault() {
    let faults: &[(&str, Plant)] = &[
        ("the report whose answer was lost was the one that failed the attempt", |it| {
            it.leases[0].tries = vec![told(400, Answered::Unknown), ok(430)];
        }),
        ("attempts went by whose leases nobody was told of", |it| {
            it.leases[2].tries = vec![refused(3_000, "task_ended")];
            it.leases[2].kept.clear();
            it.looks.truncate(3);
            it.looks.push(look(1, 3_100, "failed"));
        }),
        ("a late report counts: nobody has ended its lease yet", |it| {
            it.leases.truncate(2);
            it.leases[1].tries = vec![refused(1_700, "lease_expired"), ok(1_710)];
        }),
    ];
    for (what, plant) in faults {
        let mut run = sound();
        plant(&mut run);
        assert_eq!(judged(&run).violations, Vec::<String>::new(), "{what}");
    }
}

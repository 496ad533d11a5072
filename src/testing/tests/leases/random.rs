//! Gateways and holders by chance, on a broker with all its faults: one seed, one history. Gateways
//! die and come back; holders work, fall silent, come back late, and say what they have to say to
//! any gateway, more than once if need be.

use super::*;
use crate::WaitError;
use crate::ops::HistoryEvent;
use longhaul_memory::Faults;
use std::cell::RefCell;

/// How long things go wrong.
const RESTLESS: Duration = Duration::from_secs(400);

/// All tasks must have ended by then.
const END: Duration = Duration::from_secs(4_000);

const TASKS: usize = 8;
const GATEWAYS: usize = 2;
const HOLDERS: usize = 3;
const ATTEMPTS: u32 = 3;
const SEEDS: u32 = 12;

/// The types of the tasks; every third task has none.
const TYPES: [&str; 2] = ["a", "b"];

/// The answers to holders: the lease whose success counts, and its result.
type Told = RefCell<Vec<(LeaseToken, String)>>;

struct World<'a> {
    engine: &'a TestEngine,
    gateways: RefCell<Vec<Leases>>,
    told: Told,
    leases: RefCell<usize>,
    over: RefCell<bool>,
}

impl World<'_> {
    async fn gateway(&self) -> Leases {
        loop {
            let settings = |config: &mut crate::WorkerConfig| {
                config.max_attempts = ATTEMPTS;
                config.heartbeat = Duration::from_secs(10);
                config.self_fence = Duration::from_secs(600);
                config.ledger_retention = Duration::from_secs(3600);
            };
            let builder = self.engine.client().leases(TOPIC).lease_time(LEASE_TIME);
            if let Ok(leases) = builder.settings(settings).start().await {
                return leases;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn any(&self, rng: &mut fastrand::Rng) -> Leases {
        let gateways = self.gateways.borrow();
        gateways[rng.usize(..gateways.len())].clone()
    }

    /// Gateways die, one after the other.
    async fn kill(&self, mut rng: fastrand::Rng) {
        let begin = self.engine.time_passed();
        while self.engine.time_passed() - begin < RESTLESS {
            tokio::time::sleep(Duration::from_secs(rng.u64(5..60))).await;
            let index = rng.usize(..GATEWAYS);
            let next = self.gateway().await;
            self.gateways.borrow_mut()[index] = next;
        }
    }

    async fn hold(&self, name: String, mut rng: fastrand::Rng) {
        let mut before: Vec<LeaseToken> = Vec::new();
        while !*self.over.borrow() {
            let request = LeaseRequest::of(&name).wait(Duration::from_secs(20));
            // Everybody asks for anything now and then, so that all is done some time.
            let wanted = TYPES.get(rng.usize(..4));
            let request = match wanted {
                Some(wanted) => request.types([*wanted]),
                None => request,
            };
            let asked = self.any(&mut rng).lease(request).await;
            for lease in asked.unwrap_or_default() {
                let is = lease.properties.get("TASK_TYPE").map(String::as_str);
                assert!(wanted.is_none_or(|wanted| is == Some(*wanted)), "{wanted:?}, not {is:?}");
                *self.leases.borrow_mut() += 1;
                before.push(lease.token);
                self.work(&lease, &mut rng).await;
            }
            // Sometimes an old lease is reported again, whichever gateway has the task by then.
            if !before.is_empty() && rng.u8(..4) == 0 {
                let stale = before[rng.usize(..before.len())];
                self.report(&stale, "again", &mut rng).await;
            }
        }
    }

    async fn work(&self, lease: &Lease, rng: &mut fastrand::Rng) {
        for _ in 0..rng.u8(..5) {
            let silent = if rng.u8(..6) == 0 { 60 } else { rng.u64(1..25) };
            tokio::time::sleep(Duration::from_secs(silent)).await;
            let checkpoint = rng.bool().then(|| Bytes::from_static(b"so far"));
            let keep = KeepAlive { checkpoint, ..KeepAlive::default() };
            match self.any(rng).keep_alive(&lease.token, keep).await {
                Ok(_) | Err(ReportError::Unavailable) => {}
                // It goes on all the same, as one does that does not listen.
                Err(_) if rng.bool() => {}
                Err(_) => return,
            }
        }
        match rng.u8(..10) {
            0..6 => self.report(&lease.token, &lease.token.to_string(), rng).await,
            6 => drop(self.any(rng).report(&lease.token, failed()).await),
            7 => {
                let released = LeaseOutcome::Released { after: Duration::from_secs(1) };
                drop(self.any(rng).report(&lease.token, released).await);
            }
            _ => tokio::time::sleep(Duration::from_secs(rng.u64(1..90))).await,
        }
    }

    /// Says that the work is done until it is answered, to any gateway.
    async fn report(&self, token: &LeaseToken, result: &str, rng: &mut fastrand::Rng) {
        for _ in 0..6 {
            let done = LeaseOutcome::Succeeded(Bytes::from(result.to_owned()));
            match self.any(rng).report(token, done).await {
                Ok(()) => return self.told.borrow_mut().push((*token, result.to_owned())),
                Err(ReportError::Unavailable) => {}
                Err(_) => return,
            }
        }
    }
}

/// How a task ends: whoever could not ask the broker asks again.
async fn wait(engine: &TestEngine, task: &TaskRef) -> Result<Text, WaitError> {
    loop {
        match engine.client().wait(task).await {
            Err(WaitError::Transport(_)) => tokio::time::sleep(Duration::from_secs(1)).await,
            end => return end,
        }
    }
}

/// Returns how many leases there were, and how many tasks were offered.
fn run(seed: u32) -> [usize; 2] {
    let engine = TestEngine::new();
    let mut rng = fastrand::Rng::with_seed(u64::from(seed));
    let submit = |number: usize| {
        let submission = engine.client().submission(TOPIC, &text(&number.to_string()));
        let submission = match TYPES.get(number % 3) {
            Some(task_type) => submission.task_type(*task_type),
            None => submission,
        };
        engine.run(submission.send()).unwrap()
    };
    let tasks: Vec<TaskRef> = (0..TASKS).map(submit).collect();
    let world = World {
        engine: &engine,
        gateways: RefCell::default(),
        told: Told::default(),
        leases: RefCell::default(),
        over: RefCell::new(false),
    };
    let ends = engine.run(async {
        for _ in 0..GATEWAYS {
            let gateway = world.gateway().await;
            gateway.ready().await;
            world.gateways.borrow_mut().push(gateway);
        }
        engine.broker.set_faults(Faults { until: Some(RESTLESS), ..Faults::rough() });
        let holders = (0..HOLDERS).map(|it| world.hold(format!("holder {it}"), rng.fork()));
        let holders: Vec<_> = holders.collect();
        let until_over = async {
            world.kill(rng.fork()).await;
            let mut ends = Vec::new();
            for task in &tasks {
                let end = tokio::time::timeout(END, wait(&engine, task)).await;
                ends.push(end.unwrap_or_else(|_| panic!("seed {seed}: {} never ends", task.id)));
            }
            *world.over.borrow_mut() = true;
            ends
        };
        let (ends, _) = tokio::join!(until_over, futures::future::join_all(holders));
        ends
    });
    let mut offers = 0;
    for (task, end) in tasks.iter().zip(ends) {
        let told = world.told.borrow();
        let of_task: Vec<_> = told.iter().filter(|(token, _)| token.task() == task.id).collect();
        let counts = end.map(|text| text.0).unwrap_or_default();
        for (token, _) in &of_task {
            assert_eq!(
                *token, of_task[0].0,
                "seed {seed}: two leases of {} have its result",
                task.id
            );
            let own = counts == token.to_string() || counts == "again";
            assert!(
                own,
                "seed {seed}: {} ended with {counts:?}, and {token} was told that its result counts",
                task.id
            );
        }
        let info = engine.run(engine.client().get(task)).unwrap().unwrap();
        assert!(info.attempts <= ATTEMPTS, "seed {seed}: {info:?}");
        let history = engine.run(engine.client().queue(&task.topic).history(task.id)).unwrap();
        offers += history.entries.iter().filter(|it| it.event == HistoryEvent::Offered).count();
    }
    let verified = engine.run(engine.client().queue(TOPIC).verify()).unwrap();
    assert!(verified.is_sound(), "seed {seed}: {:?}", verified.findings);
    [world.leases.into_inner(), offers]
}

#[test]
fn whatever_happens_each_task_ends_once() {
    let [mut leases, mut offers] = [0; 2];
    for [leased, offered] in (0..SEEDS).map(run) {
        leases += leased;
        offers += offered;
    }
    assert!(leases > TASKS * 12, "only {leases} leases: nothing was tried");
    assert!(offers > 12, "only {offers} offers");
}

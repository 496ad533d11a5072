//! The fleet: two workers, or two gateways and the holders of their leases.

use super::Feature;
use super::notes::{Notes, Working};
use super::script::{ATTEMPTS, TYPES};
use super::world::{H, SECOND, SELF_FENCE, SLOTS, TOPIC};
use bytes::Bytes;
use longhaul::lease::{KeepAlive, Lease, LeaseOutcome, LeaseRequest, Leases, ReportError};
use longhaul::{
    Client, Levels, RetryPolicy, TaskContext, TaskError, Text, WorkerConfig, WorkerHandle,
    processor_fn,
};
use std::cell::{Cell, RefCell};
use std::time::Duration;

const LEASE_TIME: Duration = Duration::from_secs(15);
/// How long a request for a lease waits.
const WAIT: Duration = Duration::from_secs(5);
/// How long a draining worker may go on with its running tasks.
const DRAIN: Duration = Duration::from_secs(3);
const REPORTS_MAX: usize = 6;

pub(super) enum Member {
    Worker { handle: WorkerHandle, number: usize },
    Gateway(Leases),
}

impl Member {
    fn fences(&self) -> u64 {
        match self {
            Self::Worker { handle, .. } => handle.stats().self_fenced,
            Self::Gateway(leases) => leases.stats().self_fenced,
        }
    }
}

pub(super) struct Fleet {
    features: Vec<Feature>,
    client: Client,
    notes: Notes,
    members: RefCell<Vec<Member>>,
    started: Cell<usize>,
    /// Open requests for leases.
    asking: Cell<usize>,
    pub(super) over: Cell<bool>,
}

impl Fleet {
    pub(super) fn new(features: Vec<Feature>, client: Client, notes: Notes) -> Self {
        let members = RefCell::default();
        let (started, asking, over) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Self { features, client, notes, members, started, asking, over }
    }

    pub(super) fn leases(&self) -> bool {
        self.features.contains(&Feature::Lease)
    }

    /// Whether the fleet forgets, and fences itself, within a history.
    fn is_brief(&self) -> bool {
        [Feature::Compact, Feature::Fence].iter().any(|it| self.features.contains(it))
    }

    fn config(&self) -> WorkerConfig {
        let mut config = WorkerConfig::default();
        (config.concurrency, config.max_attempts, config.heartbeat) = (SLOTS, ATTEMPTS, H);
        config.cancel_grace = Duration::from_secs(1);
        if self.is_brief() {
            // So that keys and tasks are forgotten during the history.
            config.key_retention = 20 * SECOND;
            (config.ledger_retention, config.self_fence) = (24 * H, SELF_FENCE);
        }
        config.backoff =
            RetryPolicy { base: Duration::from_millis(500), max: 2 * SECOND, ..config.backoff };
        config
    }

    /// Starts one more worker or gateway.
    pub(super) async fn start(&self) -> Member {
        let levels = self.features.contains(&Feature::Level);
        let config = self.config();
        let number = self.started.replace(self.started.get() + 1);
        let member = if self.leases() {
            let builder = self.client.leases(TOPIC).lease_time(LEASE_TIME);
            let builder = builder.settings(|its| {
                (its.heartbeat, its.max_attempts) = (config.heartbeat, config.max_attempts);
                if self.is_brief() {
                    its.key_retention = config.key_retention;
                    (its.ledger_retention, its.self_fence) =
                        (config.ledger_retention, config.self_fence);
                }
                its.backoff = config.backoff;
            });
            let builder = if levels { builder.levels(Levels::strict()) } else { builder };
            let leases = builder.start().await.expect("a gateway starts");
            leases.ready().await;
            Member::Gateway(leases)
        } else {
            let notes = self.notes.clone();
            let body = move |text: Text, context: TaskContext| {
                let notes = notes.clone();
                async move { process(&notes, number, &text, &context).await }
            };
            let builder = self.client.worker(TOPIC, processor_fn(body)).config(config);
            let builder = if levels { builder.levels(Levels::strict()) } else { builder };
            let handle = builder.start().await.expect("a worker starts");
            handle.ready().await;
            Member::Worker { handle, number }
        };
        self.notes.disturb();
        member
    }

    pub(super) async fn add(&self) {
        let member = self.start().await;
        self.members.borrow_mut().push(member);
    }

    /// Replaces a member, which dies or leaves in order.
    pub(super) async fn replace(&self, index: usize, dies: bool) {
        let next = self.start().await;
        let last = std::mem::replace(&mut self.members.borrow_mut()[index], next);
        self.notes.count_many("fenced", last.fences());
        self.notes.disturb();
        self.notes.count(if dies { "killed" } else { "drained" });
        let drained = match last {
            last if dies => {
                drop(last);
                Ok(())
            }
            Member::Worker { handle, .. } => handle.drain(DRAIN).await,
            Member::Gateway(leases) => leases.drain(DRAIN).await,
        };
        // The member may be unable to read the fate of its tasks.
        let may_fail = [Feature::Broker, Feature::Fence];
        let may_fail = may_fail.iter().any(|it| self.features.contains(it));
        assert!(drained.is_ok() || may_fail, "{drained:?}");
        self.notes.disturb();
    }

    /// Counts the self-fences of the members that are still there.
    pub(super) fn count_fences(&self) {
        let fences = self.members.borrow().iter().map(Member::fences).sum();
        self.notes.count_many("fenced", fences);
    }

    /// Free slots of the workers that are to stay.
    pub(super) fn free_slots(&self) -> usize {
        if self.leases() {
            return self.asking.get();
        }
        let done = self.notes.lock();
        let free = |member: &Member| match member {
            Member::Worker { number, .. } => {
                SLOTS.saturating_sub(done.running().filter(|it| it.worker == Some(*number)).count())
            }
            Member::Gateway(_) => 0,
        };
        self.members.borrow().iter().map(free).sum()
    }

    fn any_gateway(&self, rng: &mut fastrand::Rng) -> Option<Leases> {
        let members = self.members.borrow();
        match members.get(rng.usize(..members.len().max(1)))? {
            Member::Gateway(leases) => Some(leases.clone()),
            Member::Worker { .. } => None,
        }
    }

    /// Asks for leases and works on them until all is over.
    pub(super) async fn hold(&self, name: String, mut rng: fastrand::Rng) {
        while !self.over.get() {
            let Some(gateway) = self.any_gateway(&mut rng) else { return };
            let request = LeaseRequest::of(&name).wait(WAIT);
            let typed = self.features.contains(&Feature::Type) && rng.bool();
            let wanted = typed.then(|| TYPES[rng.usize(..2)]);
            let request = if let Some(wanted) = wanted { request.types([wanted]) } else { request };
            // A request for certain types cannot take other tasks, so it does not count as a free
            // slot.
            let asks = usize::from(!typed);
            self.asking.set(self.asking.get() + asks);
            let leased = gateway.lease(request).await;
            self.asking.set(self.asking.get() - asks);
            match leased {
                Ok(leases) => {
                    for lease in leases {
                        self.work(&lease, wanted, &mut rng).await;
                    }
                }
                // The gateway drains or is gone.
                Err(_) => tokio::time::sleep(SECOND / 10).await,
            }
        }
    }

    async fn work(&self, lease: &Lease, wanted: Option<&str>, rng: &mut fastrand::Rng) {
        let number = String::from_utf8_lossy(&lease.payload).parse().expect("the payload is whole");
        let (script, working) = self.notes.begin(number, None);
        if wanted.is_some_and(|wanted| script.task_type != Some(wanted)) {
            self.notes.violation(format!("a request for {wanted:?} got {number}: {script:?}"));
        }
        if script.checkpoints {
            self.notes.found_checkpoint(number, lease.checkpoint.as_ref());
        }
        let lasts = |asked: Duration| working.lasts_until(asked + LEASE_TIME);
        lasts(self.notes.now());
        let mut left = script.works;
        while !left.is_zero() {
            let step = left.min(LEASE_TIME / 8);
            tokio::time::sleep(step).await;
            left -= step;
            let Some(gateway) = self.any_gateway(rng) else { return };
            let asked = self.notes.now();
            let checkpoint = script.checkpoints.then(|| self.notes.next_checkpoint());
            let bytes = checkpoint.map(|it| Bytes::from(it.to_string()));
            let kept = KeepAlive { checkpoint: bytes, ..KeepAlive::default() };
            match gateway.keep_alive(&lease.token, kept).await {
                Ok(kept) if kept.cancelled => {
                    drop(working);
                    return self.report(lease, failed(), rng).await;
                }
                Ok(_) => {
                    lasts(asked);
                    self.notes.count("kept alive");
                    if let Some(checkpoint) = checkpoint {
                        self.notes.stored(number, checkpoint);
                    }
                }
                Err(ReportError::Unavailable) => {}
                Err(_) => return,
            }
        }
        working.returned();
        let succeeds = lease.attempt > script.fails;
        let result = Bytes::from(number.to_string());
        let outcome = if succeeds { LeaseOutcome::Succeeded(result) } else { failed() };
        self.report(lease, outcome, rng).await;
    }

    /// Reports how the work has ended, to any gateway, until one answers.
    async fn report(&self, lease: &Lease, outcome: LeaseOutcome, rng: &mut fastrand::Rng) {
        for _ in 0..REPORTS_MAX {
            let Some(gateway) = self.any_gateway(rng) else { return };
            match gateway.report(&lease.token, outcome.clone()).await {
                Err(ReportError::Unavailable) => {}
                Ok(()) | Err(_) => return,
            }
        }
    }
}

fn failed() -> LeaseOutcome {
    LeaseOutcome::Failed { message: "as told".to_owned(), fatal: false, retry_after: None }
}

async fn process(
    notes: &Notes,
    worker: usize,
    text: &Text,
    context: &TaskContext,
) -> Result<Text, TaskError> {
    let number = text.0.parse()?;
    let (script, working): (_, Working) = notes.begin(number, Some(worker));
    if script.checkpoints {
        notes.found_checkpoint(number, context.last_checkpoint());
        tokio::time::sleep(script.works / 2).await;
        let checkpoint = notes.next_checkpoint();
        context.checkpoint(checkpoint.to_string()).await?;
        context.checkpoint_stored().await?;
        notes.stored(number, checkpoint);
        tokio::time::sleep(script.works / 2).await;
    } else {
        tokio::time::sleep(script.works).await;
    }
    working.returned();
    if context.attempt() > script.fails {
        Ok(Text(number.to_string()))
    } else {
        Err(TaskError::retry("as told"))
    }
}

//! Leases: grants, keep-alives, reports, lookups, and the background care for leases.

use super::desks::Desk;
use super::granted::GrantedLeases;
use super::{GatewayService, QueueLevel, QueueName, ServiceError, TaskName, ViewedTasks, name_of};
use longhaul::lease::{
    KeepAlive, Kept, LeaseOutcome, LeaseRequest, LeaseToken, LeaseView, ReportError,
};
use longhaul::ops::{TaskFilter, TaskStatus, TaskView, WorkerInfo};
use longhaul::topics::SetupError;
use longhaul::{Priority, ReadError};
use longhaul_api::values::Instant;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How often the gateway lists the existing queues.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The most ledgers read in a round, if the namespace has more queues than half of those that may be
/// open. A silent lease that no desk looks after is found in one of the next rounds, one per 500
/// queues, and 2 heartbeat intervals until its gateway counts as dead. A round takes 30 s or, if that
/// is longer, the time for reading the ledgers one after another.
const LOOKS_MAX: usize = 500;

/// Time limit for reading one ledger.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The most queues visited in a round whose ledgers show nothing to do. The desk of each stays open
/// for 3 min, so that these are about a hundred at once.
const VISITS_MAX: usize = 16;

/// How long a desk stays open without requests. Opening one takes dozens of requests to the broker,
/// and a worker that polls asks long before. When the last worker is gone, its connection is closed
/// soon.
const IDLE_MAX: Duration = Duration::from_secs(180);

/// A round ends after this many failures: then it is the broker, and not the queues.
const FAILED_MAX: usize = 3;

/// The number of tasks looked at together.
const PAGE: usize = 1_000;

/// How long the first request for a lease waits until the queue's ledger is read.
const READY_MAX: Duration = Duration::from_secs(10);

/// How long the answer to an operator action waits until its queue is open here; the action itself
/// is already stored.
const SEE_TO_MAX: Duration = Duration::from_millis(250);

/// What a queue needs a desk for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeskNeed {
    /// A lease or a cancel request has no worker that is alive.
    Lease,
    /// No worker of the queue, or of one of its levels, is alive.
    Worker,
    /// Another worker or gateway does all there is to do.
    Nothing,
}

/// The reporting worker, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reporter<'a> {
    pub(crate) queue: &'a QueueName,
    /// The worker's name, if the report has it.
    pub(crate) worker: Option<&'a str>,
}

impl GatewayService {
    async fn desk(&self, queue: &QueueName) -> Result<Desk, ServiceError> {
        // If another gateway has deleted the queue, a new desk would create it again. An error of
        // the broker comes again when the desk opens.
        if !self.desks.has(queue) && matches!(self.queue(queue).exists().await, Ok(false)) {
            self.known.forget(queue).await;
        }
        let levels = self.check_for_use(queue).await?;
        self.desks.of(queue, &self.topic(queue), levels).await
    }

    /// The desk of a queue, once it has read the ledger.
    async fn ready_desk(&self, queue: &QueueName) -> Result<Desk, ServiceError> {
        let ready = async {
            loop {
                let desk = self.desk(queue).await?;
                desk.ready().await;
                // The settings on the ledger were different: the desk is opened again with those.
                if !desk.has_ended() {
                    return Ok(desk);
                }
            }
        };
        let ready = timeout(READY_MAX, ready).await;
        ready.unwrap_or_else(|_| Err(ServiceError::NotConnected(queue.clone())))
    }

    /// Leases tasks of a queue. Returns none if no task came in time, or the gateway drains.
    pub(crate) async fn lease(
        &self,
        queue: &QueueName,
        request: LeaseRequest,
        worker: &str,
        stop: &CancellationToken,
    ) -> Result<GrantedLeases, ServiceError> {
        self.check_not_webhooks(queue)?;
        let desk = tokio::select! {
            desk = self.ready_desk(queue) => desk?,
            () = stop.cancelled() => return Ok(GrantedLeases::default()),
        };
        let leases = desk.lease_until(request, stop.cancelled()).await?;
        if leases.is_empty() && !desk.is_ready() {
            return Err(ServiceError::NotConnected(queue.clone()));
        }
        for lease in &leases {
            tracing::debug!(
                target: "longhaul::tasks",
                event = "job_leased",
                %queue,
                job_id = %name_of(&lease.task),
                worker_id = worker,
                lease_id = lease.token.epoch(),
                lease_expires_at = Instant(lease.expires_at).ms(),
                payload_len = lease.payload.len(),
            );
        }
        Ok(GrantedLeases::of(leases, desk))
    }

    /// Confirms that a worker has got a lease.
    pub(crate) async fn confirm_lease(
        &self,
        by: Reporter<'_>,
        token: &LeaseToken,
    ) -> Result<Kept, ServiceError> {
        let desk = self.ready_desk(by.queue).await?;
        desk.confirm(token).await.map_err(|error| by.rejected(token, error))
    }

    /// Records that a lease's holder is alive, with its report.
    pub(crate) async fn keep_alive(
        &self,
        by: Reporter<'_>,
        token: &LeaseToken,
        keep: KeepAlive,
    ) -> Result<Kept, ServiceError> {
        let desk = self.ready_desk(by.queue).await?;
        let kept = desk.keep_alive(token, keep).await;
        kept.map_err(|error| by.rejected(token, error))
    }

    /// Ends a lease, after its holder's last report.
    pub(crate) async fn end_lease(
        &self,
        by: Reporter<'_>,
        token: &LeaseToken,
        last: KeepAlive,
        outcome: LeaseOutcome,
    ) -> Result<(), ServiceError> {
        let desk = self.ready_desk(by.queue).await?;
        if last != KeepAlive::default() {
            // A repeated end finds the lease over: then the log has the answer.
            match desk.keep_alive(token, last).await {
                Ok(_)
                | Err(
                    ReportError::NotFound
                    | ReportError::StaleLease { .. }
                    | ReportError::NotOwner
                    | ReportError::Expired
                    | ReportError::Ended { .. },
                ) => {}
                Err(error) => return Err(by.rejected(token, error)),
            }
        }
        let event = match &outcome {
            LeaseOutcome::Succeeded(_) => "job_acked",
            LeaseOutcome::Failed { .. } => "job_failed",
            LeaseOutcome::Released { .. } => "job_released",
        };
        desk.report(token, outcome).await.map_err(|error| by.rejected(token, error))?;
        let (job_id, lease_id) = (token.task(), token.epoch());
        let (queue, worker_id) = (by.queue, by.worker);
        tracing::debug!(target: "longhaul::tasks", event, %queue, %job_id, worker_id, lease_id);
        Ok(())
    }

    /// The lease that runs a task now; `None` if there is none.
    pub(crate) async fn lease_of(
        &self,
        queue: &QueueName,
        task: TaskName,
    ) -> Result<Option<LeaseView>, ServiceError> {
        Ok(self.ready_desk(queue).await?.find(&task.id).await?)
    }

    /// Looks after the leases of all existing queues, closes desks that nobody uses, and records
    /// other gateways, until the gateway ends.
    pub(crate) async fn look_after_leases(&self, end: CancellationToken) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        while end.run_until_cancelled(every.tick()).await.is_some() {
            end.run_until_cancelled(Box::pin(self.look_around())).await;
        }
    }

    pub(crate) async fn look_around(&self) {
        if !self.config.look_after_all {
            return self.close_idle_desks(IDLE_MAX).await;
        }
        match self.queues().await {
            Ok(queues) => {
                if !self.desks.has_room_for(queues.len()) {
                    self.close_idle_desks(IDLE_MAX).await;
                }
                self.open_needed_desks(&queues).await;
            }
            // Nothing would open them again.
            Err(ServiceError::Setup(SetupError::NoAdminUrl)) => {}
            Err(error) => tracing::debug!(%error, "cannot list the queues"),
        }
        if let Some(queue) = &self.dialect_queue {
            // Gateways of a dialect know each other by their desks on its queue, which stay open.
            self.see_to(queue).await;
            self.desks.keep(queue);
            // The queue's view stays open from now on.
            let level = QueueLevel::new(queue.clone(), Priority::Normal);
            if let Ok(workers) = self.ask(&level, ViewedTasks::Claimed, TaskView::workers).await {
                self.peers.note(&workers, self.config.advertised_url.as_deref());
            }
        }
    }

    /// Opens desks for all queues, if they are few. If not, for queues without a worker, in turn: for
    /// each that has a lease, a cancel request or a schedule, and for some of the others.
    async fn open_needed_desks(&self, queues: &[QueueName]) {
        let rounds = || self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let are_few = self.desks.has_room_for(queues.len());
        rounds().begin(queues);
        let (mut visits, mut failed) = (0, Vec::new());
        for _ in 0..queues.len().min(LOOKS_MAX) {
            let Some(queue) = rounds().next(queues) else { break };
            if !self.desks.may_open(&queue) {
                rounds().note_open(&queue);
                continue;
            }
            let need = match are_few {
                true => Ok(DeskNeed::Lease),
                // A ledger that takes long to read may have a lease.
                false => {
                    let need = timeout(LOOK_MAX, self.desk_need(&queue)).await;
                    need.unwrap_or(Ok(DeskNeed::Lease))
                }
            };
            let visit = visits < VISITS_MAX && rounds().is_due(&queue);
            let opened = match need {
                Ok(DeskNeed::Lease) => self.desk(&queue).await.map(|_| self.desks.keep(&queue)),
                Ok(DeskNeed::Worker) if visit => {
                    visits += 1;
                    match self.visit(&queue).await {
                        Ok(false) => continue,
                        visited => visited.map(drop),
                    }
                }
                Ok(DeskNeed::Worker | DeskNeed::Nothing) => continue,
                Err(error) => Err(error),
            };
            match opened {
                Ok(()) => rounds().note_open(&queue),
                Err(ServiceError::NoQueue(_)) => {}
                Err(error) => failed.push((queue, error)),
            }
            if failed.len() >= FAILED_MAX {
                break;
            }
        }
        if let Some((queue, error)) = failed.first() {
            let queues = failed.len();
            tracing::warn!(queues, %queue, %error, "cannot serve the leases of some queues; retrying");
        }
    }

    /// Opens the desk of a queue that has a schedule, or if there is room. Returns whether it did.
    async fn visit(&self, queue: &QueueName) -> Result<bool, ServiceError> {
        let has_schedule = timeout(LOOK_MAX, self.queue(queue).schedules().any()).await;
        let has_schedule = has_schedule.unwrap_or(Ok(true))?;
        if !has_schedule && !self.desks.has_room() {
            return Ok(false);
        }
        drop(self.desk(queue).await?);
        if has_schedule {
            self.desks.keep(queue);
        }
        Ok(true)
    }

    /// Closes the desks that nobody has asked for this long, if their queues have no lease and no
    /// schedule.
    pub(crate) async fn close_idle_desks(&self, idle: Duration) {
        for queue in self.desks.idle(idle) {
            match timeout(LOOK_MAX, self.has_duties(&queue)).await {
                Ok(Ok(false)) => self.desks.close_idle(&queue, idle),
                // If it cannot be read, it may have.
                Ok(Ok(true) | Err(_)) | Err(_) => self.desks.keep(&queue),
            }
        }
    }

    /// Whether the queue needs a desk though nobody asks for one.
    async fn has_duties(&self, queue: &QueueName) -> Result<bool, ServiceError> {
        for level in self.known_levels(queue) {
            if has_leases(&self.client.queue(self.level_topic(&level)).ledger_tasks().await?)? {
                return Ok(true);
            }
        }
        Ok(self.queue(queue).schedules().any().await?)
    }

    /// What a queue without a desk here needs one for, by its ledger.
    async fn desk_need(&self, queue: &QueueName) -> Result<DeskNeed, ServiceError> {
        // Who holds a lease attends none.
        let is_alive = |worker: &WorkerInfo| !worker.holds_leases && worker.is_alive();
        let mut need = DeskNeed::Nothing;
        for level in self.known_levels(queue) {
            let view = self.client.queue(self.level_topic(&level)).ledger_tasks().await?;
            if view.workers()?.iter().any(is_alive) {
                continue;
            }
            need = DeskNeed::Worker;
            if has_leases(&view)? {
                return Ok(DeskNeed::Lease);
            }
        }
        Ok(need)
    }

    /// The levels of a queue, as last reported; none if it is gone.
    fn known_levels(&self, queue: &QueueName) -> Vec<QueueLevel> {
        match self.known.last(queue) {
            Some(true) => QueueLevel::all(queue).into_iter().collect(),
            Some(false) => vec![QueueLevel::new(queue.clone(), Priority::Normal)],
            None => Vec::new(),
        }
    }

    /// Opens a queue here if it is not open, so that operator actions on its tasks are processed,
    /// and its schedules fire, without requests for leases.
    pub(super) async fn see_to(&self, queue: &QueueName) {
        if self.desks.may_open(queue)
            && let Err(error) = self.desk(queue).await
        {
            tracing::warn!(%queue, %error, "cannot serve the tasks of a queue; retrying");
        }
    }

    /// As `see_to`, with a short wait: opening continues in the background.
    pub(super) async fn see_to_soon(&self, queue: &QueueName) {
        if timeout(SEE_TO_MAX, self.see_to(queue)).await.is_err() {
            tracing::debug!(%queue, "queue is still being opened");
        }
    }

    /// Opens a queue here that has got a schedule.
    pub(crate) async fn see_to_schedule(&self, queue: &QueueName) {
        self.see_to_soon(queue).await;
        self.desks.keep(queue);
    }

    /// Drains all queues.
    pub(crate) async fn leave_leases(&self, deadline: Duration) {
        self.desks.drain(deadline).await;
    }
}

/// Whether a task of this view is leased, or its end was asked for.
fn has_leases(view: &TaskView) -> Result<bool, ReadError> {
    let is_open = |status: &TaskStatus| !status.is_terminal();
    let statuses = TaskStatus::ALL.into_iter().filter(is_open);
    let open = statuses.fold(TaskFilter::new(), TaskFilter::status);
    let mut after = None;
    loop {
        let page = view.list(&open, after, PAGE)?;
        if page.tasks.iter().any(|task| task.lease.is_some() || task.cancel_requested) {
            return Ok(true);
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
    }
}

impl Reporter<'_> {
    fn rejected(&self, token: &LeaseToken, error: ReportError) -> ServiceError {
        let (job_id, lease_id) = (token.task(), token.epoch());
        let (queue, worker_id) = (self.queue, self.worker);
        tracing::info!(
            target: "longhaul::tasks",
            event = "ack_rejected",
            %queue,
            %job_id,
            worker_id,
            lease_id,
            reason = error.code(),
        );
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;
    use crate::testing::TestGateway;
    use serde_json::json;

    const LEASES: &str = "/v1/queues/tasks/leases";

    fn tasks() -> QueueName {
        QueueName::parse("tasks").unwrap()
    }

    fn lease(bench: &TestGateway) -> String {
        bench.lease("tasks", "ann")["lease"].as_str().unwrap().to_owned()
    }

    fn report(bench: &TestGateway, lease: &str) {
        let body = json!({"lease": lease, "status": "SUCCEEDED"});
        assert_eq!(bench.post(&format!("{LEASES}:report"), body).status, 200);
        // The gateway shows the end, too.
        bench.engine.advance(Duration::from_secs(2));
    }

    /// Closes idle desks, and returns whether that of `tasks` is still open.
    fn stays(bench: &TestGateway, idle: Duration) -> bool {
        bench.engine.run(bench.service.close_idle_desks(idle));
        bench.service.desks.has(&tasks())
    }

    /// Looks at these queues, and returns those with a desk.
    fn open_after(bench: &TestGateway, queues: &[QueueName]) -> Vec<String> {
        bench.engine.run(bench.service.open_needed_desks(queues));
        let open = queues.iter().filter(|queue| bench.service.desks.has(queue));
        open.map(ToString::to_string).collect()
    }

    /// Each desk has a connection, and none was ever closed.
    #[test]
    fn a_desk_that_nobody_uses_closes_and_the_next_request_opens_it_again() {
        let bench = TestGateway::new();
        assert_eq!(bench.post(LEASES, json!({"worker": "ann"})).status, 204);
        assert!(stays(&bench, IDLE_MAX), "somebody has just asked");
        assert!(!stays(&bench, Duration::ZERO));
        bench.submit("tasks", "work");
        let held = lease(&bench);
        assert!(stays(&bench, Duration::ZERO), "it attends a lease");
        report(&bench, &held);
        let service = &bench.service;
        let used = bench.engine.run(service.desk(&tasks())).unwrap_or_else(|it| panic!("{it}"));
        assert!(stays(&bench, Duration::ZERO), "a request uses it");
        drop(used);
        assert!(!stays(&bench, Duration::ZERO));
        bench.engine.advance(Duration::from_secs(1));
        let workers = bench.get("/v1/queues/tasks/workers").json();
        assert_eq!(workers["workers"], json!([]), "it has left in order");
    }

    /// Otherwise silent leases would not end, and schedules would not fire.
    #[test]
    fn a_desk_with_work_of_its_own_stays_open() {
        let bench = TestGateway::new();
        let other = bench.beside(ServerConfig::default());
        bench.submit("tasks", "work");
        let held = lease(&bench);
        other.engine.run(other.service.see_to(&tasks()));
        other.engine.advance(Duration::from_secs(1));
        assert!(stays(&other, Duration::ZERO), "a lease of another gateway");
        report(&bench, &held);
        assert!(!stays(&other, Duration::ZERO));

        let path = "/v1/queues/tasks/schedules/hourly";
        let schedule = json!({"schedule": {"cron": "@hourly"}, "task": {"payload": "work"}});
        assert_eq!(other.post(path, schedule).status, 201);
        other.engine.run(other.service.see_to(&tasks()));
        assert!(stays(&other, Duration::ZERO), "a schedule");
        assert_eq!(other.delete(&format!("{path}?reason=test")).status, 204);
        assert!(!stays(&other, Duration::ZERO));
    }

    /// A gateway warned every 30 s that it could not look after the leases of this queue: its leases
    /// are refused, and so was its desk, which also sees to cancel requests.
    #[test]
    fn the_queue_of_webhooks_is_looked_after_like_any_other() {
        let bench = TestGateway::new();
        let name = longhaul_api::webhook::WEBHOOKS_QUEUE;
        let queue = QueueName::parse(name).unwrap();
        let call = longhaul::Text("a call".to_owned());
        bench.engine.run(bench.engine.client().submit(name, &call)).unwrap();
        bench.service.known.told([(queue.clone(), false)]);
        assert_eq!(open_after(&bench, &[queue]), [name]);
        let refused = bench.post("/v1/queues/webhooks/leases", json!({"worker": "ann"}));
        refused.check_refused(403, "queue_reserved");
    }

    /// A desk for each of 10,000 queues is neither possible nor needed.
    #[test]
    fn desks_open_for_queues_with_leases_and_for_a_few_others_in_turn() {
        let mut config = ServerConfig::default();
        config.limits.leased_queues = 6;
        let (one, other) = (TestGateway::with(config.clone()), TestGateway::new());
        drop(other);
        let other = one.beside(config);
        let name = |number| QueueName::parse(&format!("tasks-{number}")).unwrap();
        let mut queues: Vec<_> = (0..9).map(name).collect();
        queues.insert(0, tasks());
        other.service.known.told(queues.iter().map(|queue| (queue.clone(), false)));
        one.submit("tasks", "work");
        lease(&one);
        let visited = ["tasks-0", "tasks-1", "tasks-2"];
        assert_eq!(open_after(&other, &queues), visited, "the lease has a gateway; half is kept");
        drop(one);
        // It counts as alive for two heartbeats, which are hours in a test.
        other.engine.advance(Duration::from_secs(3 * 3600));
        assert_eq!(open_after(&other, &queues), [&["tasks"][..], &visited].concat());
        bench_idle(&other);
        assert_eq!(open_after(&other, &queues), ["tasks-3", "tasks-4", "tasks-5"]);
    }

    /// Closes all desks without work, after silent leases have ended.
    fn bench_idle(bench: &TestGateway) {
        bench.engine.advance(Duration::from_secs(60));
        bench.engine.run(bench.service.close_idle_desks(Duration::ZERO));
    }

    /// The answer to an action must not wait until the queue is open.
    #[test]
    fn a_queue_that_opens_slowly_delays_nobody_for_long() {
        let bench = TestGateway::new();
        let queue = QueueName::parse("tasks").unwrap();
        let service = &bench.service;
        let asking = service.known.asking.try_lock().unwrap();
        let before = bench.engine.time_passed();
        bench.engine.run(service.see_to_soon(&queue));
        assert_eq!(bench.engine.time_passed() - before, SEE_TO_MAX);
        assert!(!service.desks.has(&queue));
        drop(asking);
        bench.engine.run(service.see_to_soon(&queue));
        assert!(service.desks.has(&queue));
    }
}

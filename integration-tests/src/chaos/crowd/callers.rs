//! HTTP workers and submitters, each using any gateway.

use super::gateways::{COUNT, Urls};
use super::holding::{LEASE_TIME, leased};
use super::told::{Answered, Leased, Look, Shown, Submitted, Try};
use crate::chaos::wall_ms;
use anyhow::{Context, Result, bail, ensure};
use longhaul::TaskId;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// The time limit of an answer, and the pause before a request is repeated.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
pub(super) const AGAIN: Duration = Duration::from_millis(50);

/// How long a request is repeated.
pub(super) const REPEAT_LIMIT_MS: u64 = 180_000;

/// One task of this many is submitted twice at once, at both gateways, as after a lost answer.
const TWICE_ONE_IN: usize = 10;

/// One request of this many does not wait for a task, like the plain clients of DQueue; and
/// one of this many asks for tasks of a type.
const AT_ONCE_ONE_IN: usize = 3;
const TYPED_ONE_IN: usize = 10;

/// The type of one task of this many.
const TYPE: &str = "rare";
const OF_THE_TYPE_ONE_IN: usize = 7;

/// Codes of reports that have no effect.
const STALE: [&str; 4] =
    ["stale_lease_id", "not_current_lease_owner", "lease_expired", "task_ended"];

/// The error code for a task that the gateway does not know.
const UNKNOWN_TASK: &str = "task_not_found";

/// When the last accepted requests were sent, in ms of the wall clock.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    pub(super) submit_ms: AtomicU64,
    pub(super) report_ms: AtomicU64,
}

/// The state shared by all callers.
#[derive(Debug)]
pub(super) struct Callers {
    urls: Urls,
    http: reqwest::Client,
    queue: String,
    pub(super) accepted: Accepted,
    /// Useless answers, by status and code.
    troubles: Mutex<BTreeMap<String, usize>>,
    /// Looks at tasks.
    looks: Mutex<Vec<Look>>,
}

impl Callers {
    pub(super) fn new(urls: Urls, queue: &str) -> Result<Self> {
        // A gateway closes connections idle for 10 s.
        let http = reqwest::Client::builder().timeout(ANSWER_LIMIT);
        let http = http.pool_idle_timeout(Duration::from_secs(5)).build()?;
        let (accepted, troubles, looks) = (Accepted::default(), Mutex::default(), Mutex::default());
        Ok(Self { urls, http, queue: queue.to_owned(), accepted, troubles, looks })
    }

    /// Useless answers, by status and code.
    pub(super) fn troubles(&self) -> BTreeMap<String, usize> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answered looks at tasks.
    pub(super) fn looks(&self) -> Vec<Look> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trouble(&self, what: String) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        *troubles.entry(what).or_default() += 1;
    }

    /// Asks a gateway. An error is an answer that no caller should get.
    pub(super) async fn ask(
        &self,
        gateway: usize,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(Try, Value)> {
        let url = format!("{}/v1/queues/{}/{path}", self.urls.of(gateway), self.queue);
        let request = self.http.request(method, url);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let sent_ms = wall_ms();
        let (answered, body) = match self.answer(request).await {
            Ok((status, body)) => (self.read(path, status, &body)?, body),
            Err(error) if error.is_connect() => {
                self.trouble("no connection".to_owned());
                (Answered::Unheard, Value::Null)
            }
            Err(error) => {
                let what = if error.is_timeout() { "no answer in time" } else { "cut off" };
                self.trouble(what.to_owned());
                (Answered::Unknown, Value::Null)
            }
        };
        Ok((Try { sent_ms, answered_ms: wall_ms(), answered }, body))
    }

    /// Status and body. A truncated body is no answer.
    async fn answer(
        &self,
        request: reqwest::RequestBuilder,
    ) -> reqwest::Result<(StatusCode, Value)> {
        let answer = request.send().await?;
        let status = answer.status();
        let body = answer.bytes().await?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn read(&self, path: &str, status: StatusCode, body: &Value) -> Result<Answered> {
        let code = body.get("code").and_then(Value::as_str).unwrap_or_default();
        if status.is_success() {
            return Ok(Answered::Counts);
        }
        let is_unknown = status == StatusCode::NOT_FOUND && code == UNKNOWN_TASK;
        if is_unknown && path.starts_with("tasks/") {
            return Ok(Answered::Refused(code.to_owned()));
        }
        if status == StatusCode::CONFLICT {
            ensure!(STALE.contains(&code), "{path}: 409 with the code `{code}`: {body}");
            return Ok(Answered::Refused(code.to_owned()));
        }
        ensure!(status.is_server_error(), "{path}: {status} {body}");
        self.trouble(format!("{} {code}", status.as_u16()));
        Ok(Answered::Unknown)
    }

    /// All pages of a list from one gateway.
    pub(super) async fn list(&self, gateway: usize, path: &str, field: &str) -> Result<Vec<Value>> {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit=1000{after}");
            let body = self.read_page(gateway, &page).await?;
            let entries = body.get(field).and_then(Value::as_array);
            found.extend(entries.with_context(|| format!("{page}: {body}"))?.iter().cloned());
            match body.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(found),
            }
        }
    }

    /// A gateway that has just started may not be ready.
    async fn read_page(&self, gateway: usize, page: &str) -> Result<Value> {
        let from_ms = wall_ms();
        loop {
            let (told, body) = self.ask(gateway, Method::GET, page, None).await?;
            if told.answered == Answered::Counts {
                return Ok(body);
            }
            ensure!(wall_ms() - from_ms < REPEAT_LIMIT_MS, "{page}: {told:?}");
            sleep(AGAIN).await;
        }
    }

    /// Works until it is over. Returns the leases.
    pub(super) async fn work(
        self: Arc<Self>,
        worker: String,
        mut rng: fastrand::Rng,
        over: watch::Receiver<bool>,
    ) -> Result<Vec<Leased>> {
        let mut done = Vec::new();
        while !*over.borrow() {
            let gateway = rng.usize(..COUNT);
            let (request, waits) = lease_request(&worker, &mut rng);
            let (told, body) = self.ask(gateway, Method::POST, "leases", Some(&request)).await?;
            ensure!(!matches!(told.answered, Answered::Refused(_)), "a lease is refused: {told:?}");
            if told.answered != Answered::Counts || (!waits && body.is_null()) {
                sleep(AGAIN).await;
            }
            let leases = body.get("leases").and_then(Value::as_array);
            for lease in leases.into_iter().flatten() {
                let (token, leased) = leased(&worker, lease, &told, &mut rng)?;
                done.push(self.handle(&token, leased, &mut rng).await?);
            }
        }
        Ok(done)
    }

    /// Asks for a lease without waiting. A gateway without requests receives no tasks, and so
    /// cannot acknowledge ended tasks redelivered from a killed gateway.
    pub(super) async fn knock(&self, gateway: usize) -> Result<()> {
        let request = json!({ "worker": "judge", "wait": "0s" });
        self.ask(gateway, Method::POST, "leases", Some(&request)).await.map(drop)
    }

    /// Looks at a task. Returns what the gateway shows, if it answers and knows the task. A look
    /// without an answer is not repeated.
    pub(super) async fn look(&self, gateway: usize, task: TaskId) -> Result<Option<Shown>> {
        let (told, body) = self.ask(gateway, Method::GET, &format!("tasks/{task}"), None).await?;
        let shown = match told.answered {
            Answered::Counts => Some(Shown::read(&body)?),
            Answered::Refused(_) => None,
            Answered::Unknown | Answered::Unheard => return Ok(None),
        };
        let status = shown.as_ref().map(|shown| shown.status.clone());
        let Try { sent_ms, answered_ms, .. } = told;
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push(Look { task, gateway, sent_ms, answered_ms, status });
        Ok(shown)
    }

    /// Submits the next tasks until there are enough and no more faults come.
    pub(super) async fn submit(
        self: Arc<Self>,
        next: Arc<AtomicUsize>,
        enough: usize,
        calm: watch::Receiver<bool>,
        pause: Duration,
    ) -> Result<Vec<Submitted>> {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= enough && *calm.borrow() {
                return Ok(done);
            }
            done.push(self.submit_one(number).await?);
            sleep(pause).await;
        }
    }

    async fn submit_one(&self, number: usize) -> Result<Submitted> {
        let key = format!("order-{number}");
        let task = json!({
            "payload": number.to_string(),
            "idempotency_key": key,
            "retry": { "base": "20ms", "max": "100ms" },
            "type": number.is_multiple_of(OF_THE_TYPE_ONE_IN).then_some(TYPE),
        });
        let mut submitted = Submitted { key, ..Submitted::default() };
        let ask = |gateway| self.ask(gateway, Method::POST, "tasks", Some(&task));
        if number.is_multiple_of(TWICE_ONE_IN) {
            let both = tokio::try_join!(ask(0), ask(1))?;
            self.note(&mut submitted, both.0)?;
            self.note(&mut submitted, both.1)?;
        }
        let from_ms = wall_ms();
        while submitted.ids.is_empty() {
            if wall_ms() - from_ms > REPEAT_LIMIT_MS {
                bail!("nobody takes the task {submitted:?}");
            }
            let told = ask(fastrand::usize(..COUNT)).await?;
            self.note(&mut submitted, told)?;
            if submitted.ids.is_empty() {
                sleep(AGAIN).await;
            }
        }
        for task in &submitted.ids {
            self.look(fastrand::usize(..COUNT), *task).await?;
        }
        Ok(submitted)
    }

    fn note(&self, submitted: &mut Submitted, (told, body): (Try, Value)) -> Result<()> {
        match &told.answered {
            Answered::Counts => {
                let id = body.get("id").and_then(Value::as_str).context("no id")?;
                submitted.ids.push(id.parse().with_context(|| id.to_owned())?);
                self.accepted.submit_ms.fetch_max(told.sent_ms, Ordering::Relaxed);
            }
            Answered::Refused(code) => bail!("{}: {code}", submitted.key),
            Answered::Unknown | Answered::Unheard => {}
        }
        submitted.tries.push(told);
        Ok(())
    }
}

/// A worker's request, and whether it waits for a task.
fn lease_request(worker: &str, rng: &mut fastrand::Rng) -> (Value, bool) {
    let lease_time = format!("{}ms", LEASE_TIME.as_millis());
    let mut request = json!({ "worker": worker, "lease_time": lease_time });
    let waits = rng.usize(..AT_ONCE_ONE_IN) != 0;
    if let Some(fields) = request.as_object_mut() {
        fields.extend(waits.then(|| ("wait".to_owned(), json!("2s"))));
        let is_typed = rng.usize(..TYPED_ONE_IN) == 0;
        fields.extend(is_typed.then(|| ("types".to_owned(), json!([TYPE]))));
    }
    (request, waits)
}

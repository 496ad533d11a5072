//! The actions of a lease's worker: work, keep alive, report, and look at the task.

use super::callers::{AGAIN, Callers, REPEAT_LIMIT_MS};
use super::gateways::COUNT;
use super::told::{Answered, Leased, Plan, Try};
use crate::chaos::wall_ms;
use anyhow::{Context, Result, ensure};
use longhaul::TaskId;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// The silence that ends a lease.
pub(super) const LEASE_TIME: Duration = Duration::from_secs(1);

/// The duration of a task without a hang.
const WORK_MS: std::ops::Range<u64> = 0..40;

/// One worker of this many without a hang sends keep-alives: before its report, concurrently with
/// it through the other gateway, and after it. It also repeats the report of a success.
const EAGER_ONE_IN: usize = 3;

impl Callers {
    /// Follows the plan, and repeats the report until its result is known, like any worker.
    pub(super) async fn handle(
        &self,
        token: &str,
        mut leased: Leased,
        rng: &mut fastrand::Rng,
    ) -> Result<Leased> {
        let report = if leased.plan == Plan::Fail {
            let reason = Leased::reason(leased.task, leased.epoch);
            json!({ "lease": token, "status": "FAILED", "reason": reason, "retry_after": "10ms" })
        } else {
            json!({ "lease": token, "status": "SUCCEEDED", "result": leased.worker })
        };
        let alive = json!({ "lease": token, "status": "IN_PROGRESS" });
        let is_eager = leased.plan != Plan::Hang && rng.usize(..EAGER_ONE_IN) == 0;
        if is_eager {
            leased.kept.push(self.tell(rng.usize(..COUNT), &alive).await?);
        }
        match leased.plan {
            Plan::Succeed | Plan::Fail => sleep(Duration::from_millis(rng.u64(WORK_MS))).await,
            Plan::Hang => self.hang(&leased).await?,
        }
        if is_eager {
            let gateway = rng.usize(..COUNT);
            let kept = self.tell((gateway + 1) % COUNT, &alive);
            let (told, kept) = tokio::try_join!(self.tell(gateway, &report), kept)?;
            leased.tries.push(told);
            leased.kept.push(kept);
        }
        self.report(&report, &mut leased, rng).await.with_context(|| format!("{leased:?}"))?;
        if is_eager {
            leased.kept.push(self.tell(rng.usize(..COUNT), &alive).await?);
            if leased.plan == Plan::Succeed && leased.answered() == Some(&Answered::Counts) {
                leased.tries.push(self.tell(rng.usize(..COUNT), &report).await?);
                self.report(&report, &mut leased, rng).await?;
            }
        }
        tokio::try_join!(self.look(0, leased.task), self.look(1, leased.task))?;
        Ok(leased)
    }

    /// Is silent until a gateway shows that the lease has ended. How long that takes depends on
    /// the faults: each gateway that starts gives every lease its whole time again.
    async fn hang(&self, leased: &Leased) -> Result<()> {
        sleep(LEASE_TIME).await;
        let mut pause = AGAIN;
        for gateway in (0..COUNT).cycle() {
            let shown = self.look(gateway, leased.task).await?;
            if shown.is_some_and(|shown| shown.is_over(leased.attempt)) {
                return Ok(());
            }
            let silent_ms = wall_ms() - leased.granted_ms;
            ensure!(silent_ms < REPEAT_LIMIT_MS, "a silent lease does not end: {leased:?}");
            sleep(pause).await;
            // Each look is a call in the task's history, and only short ones can be judged.
            pause = (2 * pause).min(Duration::from_secs(2));
        }
        Ok(())
    }

    /// Reports through any gateway until the answer gives the result.
    async fn report(
        &self,
        report: &Value,
        leased: &mut Leased,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let from_ms = wall_ms();
        loop {
            match leased.tries.last() {
                Some(Try { answered: Answered::Counts, sent_ms, .. }) => {
                    self.accepted.report_ms.fetch_max(*sent_ms, Ordering::Relaxed);
                    return Ok(());
                }
                Some(Try { answered: Answered::Refused(_), .. }) => return Ok(()),
                Some(_) if wall_ms() - from_ms > REPEAT_LIMIT_MS => return Ok(()),
                Some(_) => sleep(AGAIN).await,
                None => {}
            }
            leased.tries.push(self.tell(rng.usize(..COUNT), report).await?);
        }
    }

    async fn tell(&self, gateway: usize, report: &Value) -> Result<Try> {
        let (told, _) = self.ask(gateway, Method::POST, "leases:report", Some(report)).await?;
        Ok(told)
    }
}

/// The content of a lease, and its plan.
pub(super) fn leased(
    worker: &str,
    lease: &Value,
    told: &Try,
    rng: &mut fastrand::Rng,
) -> Result<(String, Leased)> {
    let text = |name| lease.get(name).and_then(Value::as_str).with_context(|| lease.to_string());
    let number = |name| -> Result<u32> {
        let number = lease.get(name).and_then(Value::as_u64);
        Ok(number.with_context(|| lease.to_string())?.try_into()?)
    };
    let task: TaskId = text("task")?.parse().with_context(|| lease.to_string())?;
    let leased = Leased {
        worker: worker.to_owned(),
        task,
        epoch: number("epoch")?,
        attempt: number("attempt")?,
        max_attempts: number("max_attempts")?,
        asked_ms: told.sent_ms,
        granted_ms: told.answered_ms,
        plan: Plan::draw(rng),
        kept: Vec::new(),
        tries: Vec::new(),
    };
    Ok((text("lease")?.to_owned(), leased))
}

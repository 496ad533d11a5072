//! The whole flow of a task, as our worker has it: a claim on C, read back; PROCESSING on M, whose
//! receipt nobody awaits; the outcome on C, read back; COMPLETED on M, awaited; the ack on T.

use super::peer::{Consumer, Peer};
use super::plan::Plan;
use super::stage::{Ledger, Shared, beside, ledger_entry, timed, view_entry};
use crate::meter::{Figures, Times, own_memory_mib};
use anyhow::Result;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::Duration;

struct Flow<P: Peer> {
    ledger: Ledger<P>,
    view: Shared<P::Publisher>,
    in_flight: usize,
}

pub(super) async fn flow<P: Peer>(plan: &Plan) -> Result<Figures> {
    let peer = P::connect(&plan.service_url).await?;
    let (ledger, mut follower) = Ledger::open(&peer, plan).await?;
    let view = peer.publisher(&plan.topics.view, plan.side.view_batched).await?;
    let mut tasks = peer.consumer(&plan.topics.task, plan.in_flight).await?;
    let flow = Flow { ledger, view: Shared::new(view), in_flight: plan.in_flight };
    let work = async {
        flow.work(&mut tasks, plan.warm_up()).await?;
        let meter = plan.meter()?;
        let (task_times, claim_times) = flow.work(&mut tasks, plan.count).await?;
        tasks.settled().await?;
        let mut figures = meter.read("tasks", plan.count)?;
        figures.put("peak RSS MiB", own_memory_mib("VmHWM")?);
        figures.put_times("task", &task_times);
        figures.put_times("claim", &claim_times);
        Ok(figures)
    };
    beside(&flow.ledger.echo, &mut follower, work).await
}

impl<P: Peer> Flow<P> {
    /// Takes so many tasks from T through to their acks. Returns how long the tasks took, and how
    /// long their claims.
    async fn work(&self, tasks: &mut P::Consumer, count: usize) -> Result<(Times, Times)> {
        let (mut task_times, mut claim_times) = (Times::new()?, Times::new()?);
        let mut running = FuturesUnordered::new();
        let (mut started, mut done) = (0, 0);
        while done < count {
            let has_room = started < count && running.len() < self.in_flight;
            tokio::select! { biased;
                Some(finished) = running.next() => {
                    let (took, (id, claim_took)) = finished?;
                    task_times.record(took)?;
                    claim_times.record(claim_took)?;
                    done += 1;
                    tasks.ack(id).await?;
                }
                delivered = tasks.next(), if has_room => {
                    let (id, task) = delivered?;
                    started += 1;
                    running.push(timed(self.run(id, task)));
                }
            }
        }
        Ok((task_times, claim_times))
    }

    async fn run<T>(&self, id: T, task: String) -> Result<(T, Duration)> {
        let (claim_took, ()) = timed(self.ledger.write(ledger_entry("claim", &task))).await?;
        drop(self.view.send(view_entry(&task)).await?);
        self.ledger.write(ledger_entry("done", &task)).await?;
        self.view.publish(view_entry(&task)).await?;
        Ok((id, claim_took))
    }
}

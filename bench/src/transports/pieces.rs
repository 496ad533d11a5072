//! The parts of a task's flow one by one, and what a transport costs that has nothing to do.

use super::peer::{Consumer, Peer, Publisher};
use super::plan::Plan;
use super::stage::{
    Echo, Ledger, Shared, beside, ledger_entry, many, plain_entry, timed, view_entry,
};
use crate::meter::{Figures, Times, own_memory_mib};
use anyhow::Result;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Between two publishes of which the latency is measured.
const PACE: Duration = Duration::from_millis(10);
/// How long a transport has nothing to do before its memory is read.
const IDLE: Duration = Duration::from_secs(3);

/// PROCESSING on M, awaited; COMPLETED, awaited.
pub(super) async fn each<P: Peer>(plan: &Plan) -> Result<Figures> {
    let view = &view::<P>(plan).await?;
    let task = |number| async move {
        view.publish(view_entry(&task_name(number))).await?;
        view.publish(view_entry(&task_name(number))).await
    };
    measured("tasks", plan, task).await
}

/// PROCESSING and COMPLETED on M, both awaited.
pub(super) async fn both<P: Peer>(plan: &Plan) -> Result<Figures> {
    let view = &view::<P>(plan).await?;
    let task = |number| async move {
        let processing = view.send(view_entry(&task_name(number))).await?;
        let completed = view.send(view_entry(&task_name(number))).await?;
        P::Publisher::stored(processing).await?;
        P::Publisher::stored(completed).await
    };
    measured("tasks", plan, task).await
}

async fn view<P: Peer>(plan: &Plan) -> Result<Shared<P::Publisher>> {
    let peer = P::connect(&plan.service_url).await?;
    Ok(Shared::new(peer.publisher(&plan.topics.view, plan.side.view_batched).await?))
}

/// A claim on C, read back.
pub(super) async fn claim<P: Peer>(plan: &Plan) -> Result<Figures> {
    let peer = P::connect(&plan.service_url).await?;
    let (ledger, mut follower) = Ledger::open(&peer, plan).await?;
    let written = &ledger;
    let task = |number| written.write(ledger_entry("claim", &task_name(number)));
    beside(&ledger.echo, &mut follower, measured("tasks", plan, task)).await
}

/// One message, awaited.
pub(super) async fn publish<P: Peer>(plan: &Plan) -> Result<Figures> {
    let peer = P::connect(&plan.service_url).await?;
    let publisher = peer.publisher(&plan.topics.ledger, plan.side.ledger_batched).await?;
    let publisher = &Shared::new(publisher);
    let task = |number| publisher.publish(plain_entry(task_name(number)));
    measured("messages", plan, task).await
}

/// Names no task twice: of what is read back, each must be one's own.
fn task_name(number: usize) -> String {
    format!("1234:{number}:-1")
}

async fn measured<F>(unit: &str, plan: &Plan, task: impl Fn(usize) -> F) -> Result<Figures>
where
    F: Future<Output = Result<()>>,
{
    many(plan.warm_up(), plan.in_flight, |number| task(plan.count + number)).await?;
    let meter = plan.meter()?;
    let times = many(plan.count, plan.in_flight, task).await?;
    let mut figures = meter.read(unit, plan.count)?;
    figures.put("peak RSS MiB", own_memory_mib("VmHWM")?);
    figures.put_times("each", &times);
    Ok(figures)
}

/// Messages at a steady pace: how long until the receipt, how long until it is read.
pub(super) async fn latency<P: Peer>(plan: &Plan) -> Result<Figures> {
    let peer = P::connect(&plan.service_url).await?;
    let mut follower = peer.follower(&plan.topics.ledger).await?;
    let publisher = peer.publisher(&plan.topics.ledger, plan.side.ledger_batched).await?;
    let (publisher, echo) = (Shared::new(publisher), Echo::default());
    let (publisher, heard) = (&publisher, &echo);
    let once = |number: usize| async move {
        let entry = plain_entry(task_name(number));
        let come = heard.of(&entry.key);
        let stored = timed(publisher.publish(entry));
        let read = timed(async { Ok(come.await?) });
        let ((stored, ()), (read, ())) = tokio::try_join!(stored, read)?;
        Ok::<_, anyhow::Error>((number, stored, read))
    };
    let paced = async {
        let (mut receipts, mut reads) = (Times::new()?, Times::new()?);
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut running, mut started) = (FuturesUnordered::new(), 0);
        while started < plan.count + plan.warm_up() || !running.is_empty() {
            tokio::select! { biased;
                Some(done) = running.next() => {
                    let (number, stored, read) = done?;
                    if number >= plan.warm_up() {
                        receipts.record(stored)?;
                        reads.record(read)?;
                    }
                }
                _ = pace.tick(), if started < plan.count + plan.warm_up() => {
                    running.push(once(started));
                    started += 1;
                }
            }
        }
        let mut figures = Figures::default();
        figures.put_times("receipt", &receipts);
        figures.put_times("receive", &reads);
        Ok(figures)
    };
    beside(&echo, &mut follower, paced).await
}

/// Takes and acknowledges.
pub(super) async fn consume<P: Peer>(plan: &Plan) -> Result<Figures> {
    let peer = P::connect(&plan.service_url).await?;
    let mut tasks = peer.consumer(&plan.topics.task, plan.in_flight).await?;
    take(&mut tasks, plan.warm_up()).await?;
    let meter = plan.meter()?;
    take(&mut tasks, plan.count).await?;
    tasks.settled().await?;
    let mut figures = meter.read("messages", plan.count)?;
    figures.put("peak RSS MiB", own_memory_mib("VmHWM")?);
    Ok(figures)
}

async fn take<C: Consumer>(tasks: &mut C, count: usize) -> Result<()> {
    for _ in 0..count {
        let (id, _) = tasks.next().await?;
        tasks.ack(id).await?;
    }
    Ok(())
}

/// Opens all that a worker has open, and does nothing with it.
pub(super) async fn idle<P: Peer>(plan: &Plan) -> Result<Figures> {
    let peer = P::connect(&plan.service_url).await?;
    let topics = &plan.topics;
    let open = (
        peer.publisher(&topics.ledger, plan.side.ledger_batched).await?,
        peer.publisher(&topics.view, plan.side.view_batched).await?,
        peer.follower(&topics.ledger).await?,
        peer.follower(&topics.view).await?,
        peer.consumer(&topics.task, plan.in_flight).await?,
    );
    sleep(IDLE).await;
    let mut figures = Figures::default();
    figures.put("RSS MiB", own_memory_mib("VmRSS")?);
    figures.put("of it anonymous MiB", own_memory_mib("RssAnon")?);
    drop((open, peer));
    Ok(figures)
}

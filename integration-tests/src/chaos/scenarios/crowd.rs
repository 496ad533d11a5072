//! Gateways are killed and restarted under a crowd of HTTP workers and submitters; in a cluster, a
//! broker and a bookie, too.

use crate::chaos::crowd::{Crowd, Outage, Progress, SETTLED, Size};
use crate::chaos::{Host, Options, Row, wall_ms};
use crate::sandbox::Cluster;
use crate::wait::until;
use anyhow::{Context, Result};
use std::time::Duration;
use tokio::time::sleep;

/// The size used to judge a release.
const WHOLE: Size = Size {
    tasks: 2_000,
    workers: 50,
    submitters: 8,
    submit_every: Duration::from_millis(100),
    kill_every: Duration::from_secs(5),
    kills_min: 4,
    settle_max: SETTLED,
};
const SHORT: Size = Size {
    tasks: 60,
    workers: 10,
    submitters: 2,
    submit_every: Duration::from_millis(150),
    kill_every: Duration::from_secs(2),
    kills_min: 2,
    settle_max: Duration::from_secs(2),
};

/// On a cluster tasks are submitted as long as there are faults, at a pace that the workers keep up
/// with.
const WHOLE_CLUSTER: Size = Size { submit_every: Duration::from_millis(250), ..WHOLE };
const SHORT_CLUSTER: Size = Size {
    tasks: 100,
    workers: 20,
    submit_every: Duration::from_millis(200),
    kill_every: Duration::from_secs(5),
    settle_max: SETTLED,
    ..SHORT
};

/// The time without faults before and after each one.
const BETWEEN: Duration = Duration::from_secs(4);

/// The time limit until brokers and gateways recover; the dead broker's session alone takes 10 s.
const RECOVERY_LIMIT: Duration = Duration::from_secs(120);

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let size = match (&host, options.short) {
        (Host::Cluster(_), true) => SHORT_CLUSTER,
        (Host::Cluster(_), false) => WHOLE_CLUSTER,
        (Host::Own(_) | Host::Shared(_), true) => SHORT,
        (Host::Own(_) | Host::Shared(_), false) => WHOLE,
    };
    let size = Size {
        tasks: options.tasks.unwrap_or(size.tasks),
        workers: options.workers.unwrap_or(size.workers),
        ..size
    };
    let sandbox = host.sandbox().clone();
    let row = match host {
        Host::Cluster(cluster) => {
            let admins = cluster.admin_urls()?;
            // All topics of the namespace are at one broker, so its death affects all of them.
            let crowd = Crowd::new(&sandbox, &admins, Some(1), size, options).await?;
            let rounds = options.faults.unwrap_or(if options.short { 1 } else { 3 });
            let (short, seed) = (options.short, options.seed);
            let outages = async |names: &longhaul::topics::TopicNames, progress: Progress| {
                let mut stage = Stage { cluster, progress, outages: Vec::new() };
                stage.rounds(rounds, seed, short, &names.ledger).await?;
                Ok((stage.outages, stage.cluster.admin()?))
            };
            crowd.run(options, outages).await?
        }
        Host::Own(_) | Host::Shared(_) => {
            let crowd = Crowd::new(&sandbox, sandbox.admin().url(), None, size, options).await?;
            let none = async |_: &longhaul::topics::TopicNames, _| {
                Ok((Vec::new(), sandbox.admin().clone()))
            };
            crowd.run(options, none).await?
        }
    };
    Ok(vec![row])
}

struct Stage<'a> {
    cluster: &'a mut Cluster,
    progress: Progress,
    outages: Vec<Outage>,
}

impl Stage<'_> {
    /// In each round, kills the broker that owns the topics and then a bookie; the last round of a
    /// short run does not restart them.
    async fn rounds(&mut self, rounds: usize, seed: u64, short: bool, topic: &str) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 1..=rounds {
            sleep(BETWEEN).await;
            let owner = self.cluster.owner(topic).await?;
            let at_ms = wall_ms();
            self.cluster.kill_broker(owner).await?;
            self.goes_on("broker_killed", at_ms).await?;
            let again = !short || round < rounds;
            if again {
                sleep(BETWEEN).await;
                self.cluster.start_broker(owner).await?;
            }
            sleep(BETWEEN).await;
            let bookie = rng.usize(..self.cluster.bookies());
            let at_ms = wall_ms();
            self.cluster.kill_bookie(bookie).await?;
            self.goes_on("bookie_killed", at_ms).await?;
            sleep(BETWEEN).await;
            if again {
                self.cluster.start_bookie(bookie).await?;
            }
        }
        Ok(())
    }

    /// Waits until submits and reports are accepted again.
    async fn goes_on(&mut self, what: &'static str, at_ms: u64) -> Result<()> {
        let gone_ms = wall_ms();
        let accepted = async || Ok(self.progress.is_after(gone_ms).then_some(()));
        until("a submit and a report accepted", RECOVERY_LIMIT, accepted).await.context(what)?;
        self.outages.push(Outage { what, at_ms, gone_ms });
        Ok(())
    }
}

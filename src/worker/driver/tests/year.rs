//! A year in minutes: with periods of seconds and constant work, the memory of a worker and its
//! compacted topics must have the same size after many cycles as after a few.

use super::*;
use longhaul_core::settings::{Limit, QueueSettings};
use rustix::time::{ClockId, clock_gettime};

/// Cycles of a short run, after the warm-up in which all sizes settle. `LONGHAUL_TEST_YEAR=N` runs
/// N.
const CYCLES: usize = 360;
const WARM_UP: usize = 180;
const COMPACTED_EVERY: usize = 30;
/// Samples of a long run. Each of them costs as much as several cycles.
const SAMPLES: usize = 600;

/// The texts of ids and times get longer, and samples at different moments of a period differ.
const GROWTH_MAX: f64 = 1.25;
/// Anything up to this size, in bytes of its debug form or in keys, may come and go.
const SMALL: usize = 3_000;
const FEW: usize = 60;

fn config() -> WorkerConfig {
    let (retention, ledger_retention) = (20 * SECOND, 24 * SECOND);
    WorkerConfig { retention, ledger_retention, key_retention: 10 * SECOND, ..brisk() }
}

/// A task whose message has the property `fails` fails at its first attempt.
async fn work(context: TaskContext) -> Result<Text, TaskError> {
    if context.properties().contains_key("fails") && context.attempt() == 1 {
        return Err(TaskError::retry_after(SECOND, "as told"));
    }
    end_after(SECOND / 2).await
}

/// The processor time that this thread, and with it all that is tested, has taken.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it is positive")
}

impl Bench {
    /// The events of each cycle: at least one task for each kind of data that a worker remembers.
    fn cycle(&self, cycle: usize, before: TaskId) -> TaskId {
        let unique = format!("cycle {cycle}");
        let plain = self.submit(&[]);
        self.submit(&[("IDEMPOTENCY_KEY", &unique)]);
        self.submit(&[("DEDUPE_KEY", "debounced"), ("OVERWRITE", "true"), ("DELAY", "PT2S")]);
        self.submit(&[("DEDUPE_KEY", "once at a time")]);
        self.submit(&[("LIMIT_KEY", "limited")]);
        self.submit(&[("fails", "1")]);
        self.submit(&[("AFTER", &before.to_string())]);
        self.submit(&[("AFTER", &format!("key:{unique}"))]);
        let cancelled = self.submit(&[("DELAY", "PT5S")]);
        self.write(&Entry::Cancel(cancelled));
        self.submit(&[("EXPIRES_AT", &self.wall_ms().to_string())]);
        plain
    }

    /// The size of each part of a worker: the length of its debug form stands for the sizes of all
    /// collections in it, but for the ranges of sealed tasks, of which it has the number: tasks that
    /// end in different ways split them. Also the number of keys of each compacted topic.
    fn sizes(&self) -> Vec<(&'static str, usize, usize)> {
        let lane = &self.driver.lanes[-1];
        let queue = &self.driver.queues[0];
        let text = |it: &dyn std::fmt::Debug| format!("{it:?}").len();
        // A period of the register leaves its entry: 52 a year by default.
        let counts =
            |it: &&Message| !it.key.as_deref().is_some_and(|key| key.starts_with("period/"));
        let keys =
            |topic: &str| self.broker.view(&self.at(topic, -1), true).iter().filter(counts).count();
        let parts = queue.core.parts().map(|(name, part)| (name, text(part), SMALL));
        let mut sizes = vec![
            ("partition", text(&lane.core), SMALL),
            ("metadata", text(&lane.metadata), SMALL),
            ("searches", text(&queue.searches), SMALL),
            ("payloads", lane.payloads.len(), FEW),
            ("running", lane.running.len(), FEW),
            ("ended attempts", lane.ended_attempts.len(), FEW),
            ("pending", self.driver.pending.len(), FEW),
            ("services", self.driver.env.services.len(), FEW),
            ("keys on the ledger", keys(&self.names.ledger), FEW),
            ("keys on the register", keys(&self.names.register), FEW),
            ("keys on the metadata topic", keys(&self.names.metadata), FEW),
        ];
        sizes.extend(parts);
        sizes
    }
}

/// Regression: the register of a debounced key grew by an entry in each period, in the memory of
/// every worker, and each event on it went through all of them. Tests that ran for minutes did not
/// show it. And each seal copied the ranges of all sealed tasks, which no size shows: in a long run
/// the cycles must take no more processor time late than early.
#[tokio::test(start_paused = true)]
async fn nothing_grows_with_the_number_of_cycles() {
    let by_hand = std::env::var("LONGHAUL_TEST_YEAR").ok().and_then(|it| it.parse().ok());
    let cycles = by_hand.unwrap_or(CYCLES);
    let mut bench = Bench::new(config(), None, work);
    bench.broker.look_after_itself(|topic| topic.ends_with("-ledger"));
    let mut settings = QueueSettings::default();
    let limit = Limit { max_in_flight: Some(1), ..Limit::default() };
    settings.keys.insert("limited".to_owned(), limit);
    bench.settle(1, &settings);
    bench.run_for(5 * SECOND).await;
    let mut before = bench.submit(&[]);
    let (mut early, mut late) = (Vec::new(), Vec::new());
    let mut times = Vec::new();
    for cycle in 0..WARM_UP + cycles {
        if cycle >= WARM_UP && (cycle - WARM_UP).is_multiple_of(cycles / 3) {
            times.push(processor_time());
        }
        before = bench.cycle(cycle, before);
        bench.turns = 0;
        bench.run_for(SECOND).await;
        if cycle % COMPACTED_EVERY == 0 {
            let names = &bench.names;
            for topic in [&names.ledger, &names.register, &names.metadata] {
                bench.broker.compact(&bench.at(topic, -1));
            }
            // A year of messages does not fit into memory.
            for topic in [&names.task, &names.ledger, &names.register, &names.metadata] {
                bench.broker.trim_and_forget(&bench.at(topic, -1));
            }
        }
        // An odd number, so that the samples are not all taken at the same time between compactions.
        match cycle.checked_sub(WARM_UP).filter(|passed| passed % ((cycles / SAMPLES) | 1) == 0) {
            Some(passed) if passed < cycles / 3 => early.push(bench.sizes()),
            Some(passed) if passed >= cycles - cycles / 3 => late.push(bench.sizes()),
            Some(_) | None => {}
        }
    }
    times.push(processor_time());
    let (first, last) = (times[1] - times[0], times[3] - times[2]);
    assert!(by_hand.is_none() || last <= first.mul_f64(GROWTH_MAX), "{first:?}, later {last:?}");
    let mean = |samples: &[Vec<(&str, usize, usize)>], at: usize| {
        let sum: usize = samples.iter().map(|sample| sample[at].1).sum();
        sum as f64 / samples.len() as f64
    };
    for (at, (what, _, small)) in early[0].iter().enumerate() {
        let (first, last) = (mean(&early, at), mean(&late, at));
        assert!(
            last <= first.max(*small as f64) * GROWTH_MAX,
            "{what}: {first:.0} at the beginning, {last:.0} {cycles} cycles later"
        );
    }
    let stats = bench.driver.stats.read();
    assert!(stats.completed > 5 * u64::try_from(cycles).unwrap(), "{stats:?}");
    assert_eq!((stats.violations, stats.self_fenced), (0, 0));
}

//! The cost of an event must not grow with the number of partitions or tasks.

use super::*;

/// Regression: at each event the worker looked at all of its partitions, several times. With 16
/// partitions it was slower than with 4.
#[tokio::test(start_paused = true)]
async fn an_event_of_one_partition_is_no_matter_of_the_others() {
    let mut looks = Vec::new();
    for partitions in [2, 200] {
        let (heartbeat, self_fence) = (60 * SECOND, 300 * SECOND);
        let config = WorkerConfig { heartbeat, self_fence, ..WorkerConfig::default() };
        let mut bench = Bench::new(config, Some(partitions), end);
        bench.run_for(5 * SECOND).await;
        bench.driver.lanes.looks = 0;
        let task = bench.at(&bench.names.task, 1);
        for _ in 0..10 {
            bench.submit_to(&bench.names.task, 1, &[]);
            bench.run_for(SECOND / 4).await;
        }
        assert!(bench.broker.backlog(&task, "longhaul").is_empty());
        looks.push(bench.driver.lanes.looks);
    }
    // A turn may handle more or fewer of the events.
    assert!(looks[0] >= 10 && looks[1] <= 2 * looks[0], "{looks:?}");
}

/// Slots that one partition frees are available to the tasks of others.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_free_goes_to_whichever_partition_waits_for_it() {
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, Some(8), |_| end_after(SECOND / 10));
    let topics: Vec<_> = (0..8).map(|id| bench.at(&bench.names.task, id)).collect();
    for number in 0..40 {
        bench.submit_to(&bench.names.task, number % 8, &[]);
    }
    bench.run_for(60 * SECOND).await;
    for topic in topics {
        let left = bench.broker.backlog(&topic, "longhaul");
        assert!(left.is_empty(), "{topic}: {left:?}");
    }
}

/// Regression: if many tasks waited for the same many others, each entry on one of these made the
/// worker look up all of them again for each waiting task. With 1,000 of both it looked up a
/// million tasks, and did nothing else meanwhile.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_is_no_matter_of_the_others_that_are_waited_for() {
    const MANY: usize = 40;
    let config = WorkerConfig { concurrency: 2 * MANY, ..brisk() };
    for by_key in [false, true] {
        let mut bench = Bench::new(config.clone(), None, |context| async move {
            let seconds = context.properties().get("seconds").map_or(0, |it| it.parse().unwrap());
            end_after(seconds * SECOND).await
        });
        let seconds: Vec<_> = (5..).take(MANY).map(|seconds: u32| seconds.to_string()).collect();
        // They end from both ends of the list towards its middle.
        let named = seconds.iter().step_by(2).chain(seconds.iter().skip(1).step_by(2).rev());
        let submit = |bench: &Bench, seconds: &String| {
            bench.submit(&[("seconds", seconds), ("IDEMPOTENCY_KEY", seconds)])
        };
        let names: Vec<String> = if by_key {
            seconds.iter().map(|it| format!("key:{it}")).collect()
        } else {
            named.clone().map(|it| submit(&bench, it).to_string()).collect()
        };
        let after = names.join(",");
        let parked: Vec<_> = (0..MANY).map(|_| bench.submit(&[("AFTER", &after)])).collect();
        bench.run_for(4 * SECOND).await;
        assert!(parked.iter().all(|task| bench.parked(*task) == 1));
        if by_key {
            named.for_each(|it| _ = submit(&bench, it));
        }
        bench.run_for(60 * SECOND).await;
        assert!(bench.driver.queues[0].core.dependencies().is_empty());
        let looks = bench.driver.queues[0].core.dependencies().lookups();
        assert!(looks <= 10 * MANY * MANY, "{looks}, by key: {by_key}");
        let broker = bench.broker.clone();
        let mut next = Bench::on(broker, "next", config.clone(), None, end);
        next.run_for(30 * SECOND).await;
        let looks = next.driver.queues[0].core.dependencies().lookups();
        assert!(looks <= 10 * MANY * MANY, "{looks} at a start, by key: {by_key}");
    }
}

//! What an event costs must not grow with what the worker has.

use super::*;

/// Each event made the worker look at all of its partitions, several times: with sixteen of them it
/// was slower than with four.
#[tokio::test(start_paused = true)]
async fn an_event_of_one_partition_is_no_matter_of_the_others() {
    let mut looks = Vec::new();
    for partitions in [2, 200] {
        let (heartbeat, self_fence) = (60 * SECOND, 300 * SECOND);
        let config = WorkerConfig { heartbeat, self_fence, ..WorkerConfig::default() };
        let mut bench =
            Bench::new(config, Some(partitions), |_| async { Ok(Text("done".to_owned())) });
        bench.run_for(5 * SECOND).await;
        bench.driver.lanes.looks = 0;
        let task = bench.at(&bench.names.task, 1);
        for _ in 0..10 {
            let message = Outgoing { payload: "task".into(), ..Outgoing::default() };
            bench.broker.publish(&task, message);
            bench.run_for(SECOND / 4).await;
        }
        assert!(bench.broker.backlog(&task, "longhaul").is_empty());
        looks.push(bench.driver.lanes.looks);
    }
    // A turn may handle more or fewer of the events.
    assert!(looks[0] >= 10 && looks[1] <= 2 * looks[0], "{looks:?}");
}

/// Slots that one partition gives back are what the tasks of others wait for.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_free_goes_to_whichever_partition_waits_for_it() {
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, Some(8), |_| async {
        tokio::time::sleep(SECOND / 10).await;
        Ok(Text("done".to_owned()))
    });
    let topics: Vec<_> = (0..8).map(|id| bench.at(&bench.names.task, id)).collect();
    for topic in topics.iter().cycle().take(40) {
        let message = Outgoing { payload: "task".into(), ..Outgoing::default() };
        bench.broker.publish(topic, message);
    }
    bench.run_for(60 * SECOND).await;
    for topic in topics {
        let left = bench.broker.backlog(&topic, "longhaul");
        assert!(left.is_empty(), "{topic}: {left:?}");
    }
}

//! Several task topics in one worker.

use super::*;

impl Bench {
    /// Creates a task topic with its other topics, and makes the worker serve it.
    pub(super) fn add_topic(
        &mut self,
        name: &str,
        share: Share,
        partitions: Option<u32>,
    ) -> TopicNames {
        let names: TopicNames = name.parse().unwrap();
        self.broker.create_topic(&names.register, None, true);
        self.broker.create_topic(&names.dead_letters, None, false);
        self.create(&names, partitions);
        self.driver.add_topic(names.clone(), share, partitions);
        names
    }

    /// Creates a task topic with its ledger and its metadata topic.
    pub(super) fn create(&self, names: &TopicNames, partitions: Option<u32>) {
        for (topic, deduplication) in
            [(&names.task, false), (&names.metadata, false), (&names.ledger, true)]
        {
            self.broker.create_topic(topic, partitions, deduplication);
        }
        let count = partitions.map_or(-1..0, |count| 0..i32::try_from(count).unwrap());
        for partition in count {
            self.broker.create_subscription(&self.at(&names.task, partition), "longhaul");
        }
    }
}

/// Regression: a worker had one task topic, so a hundred queues needed a hundred workers, each with
/// slots of its own.
#[tokio::test(start_paused = true)]
async fn each_topic_has_its_own_ledger_and_metadata_and_all_share_the_slots() {
    let config = WorkerConfig { concurrency: 2, ..WorkerConfig::default() };
    let running = Arc::new(Mutex::new((0, 0)));
    let (mut bench, diary) = Bench::with_diary(config, None, move |context, notes| {
        notes.note(format!("{}@{}", context.topic(), context.task_id()));
        let running = Arc::clone(&running);
        async move {
            {
                let mut running = running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
                assert!(running.1 <= 2, "more than there are slots");
            }
            tokio::time::sleep(SECOND / 10).await;
            running.lock().unwrap().0 -= 1;
            Ok(Text("done".to_owned()))
        }
    });
    let others = [
        bench.add_topic("orders", Share::default(), Some(3)),
        bench.add_topic("mails", Share::default(), None),
    ];
    let all = [bench.names.clone(), others[0].clone(), others[1].clone()];
    let mut submitted = Vec::new();
    for _ in 0..10 {
        for (names, partition) in [(&all[0], -1), (&all[1], 0), (&all[1], 2), (&all[2], -1)] {
            let task = bench.submit_to(&names.task, partition, &[]);
            submitted.push(format!("{}@{task}", names.task));
        }
    }
    bench.run_for(20 * SECOND).await;
    let mut ran = diary.lines();
    ran.sort();
    submitted.sort();
    assert_eq!(ran, submitted);
    assert_eq!(bench.driver.stats.read().completed, 40);
    assert!(bench.driver.stats.is_ready(5));
    for (names, partition, tasks) in
        [(&all[0], -1, 10), (&all[1], 0, 10), (&all[1], 1, 0), (&all[1], 2, 10), (&all[2], -1, 10)]
    {
        let shown = bench.broker.full_log(&bench.at(&names.metadata, partition));
        let read = |message: &Message| serde_json::from_slice::<TaskMetadata>(&message.payload);
        let ends = shown.iter().filter(|message| read(message).is_ok_and(|it| it.is_terminal()));
        assert_eq!(ends.count(), tasks, "{} {partition}", names.metadata);
        let left = bench.broker.backlog(&bench.at(&names.task, partition), "longhaul");
        assert!(left.is_empty(), "{} {partition}", names.task);
        let ledger = bench.broker.full_log(&bench.at(&names.ledger, partition));
        let done = |message: &&Message| matches!(ledger::read(message), Ok(Entry::Done(_)));
        assert_eq!(ledger.iter().filter(done).count(), tasks, "{} {partition}", names.ledger);
    }
}

/// The partitions of each topic are counted separately.
#[tokio::test(start_paused = true)]
async fn a_topic_that_gains_partitions_is_worked_on_whole() {
    use super::growth::PartitionCounts;
    let mut bench = Bench::new(WorkerConfig::default(), Some(2), end);
    let names = bench.add_topic("orders", Share::default(), Some(1));
    bench.run_for(2 * SECOND).await;
    bench
        .driver
        .handle(WorkerEvent::Partitions(1, PartitionCounts { task: Some(2), ledger: Some(2) }));
    let lanes: Vec<_> = bench.driver.lanes.keys().collect();
    let expected = [(0, 0), (0, 1), (1, 0), (1, 1)];
    assert_eq!(lanes, expected.map(|(topic, partition)| LaneId::new(topic, partition)));
    let added = &bench.driver.lanes.get(&LaneId::new(1, 1)).unwrap().topics;
    assert_eq!(added.task, bench.at(&names.task, 1));
}

/// Regression: topics may share a register without being levels of one queue. The tasks of one of
/// them were looked for among those of the other.
#[tokio::test(start_paused = true)]
async fn topics_with_one_register_do_not_take_each_others_tasks_for_their_own() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    let mut names: TopicNames = "orders".parse().unwrap();
    names.register.clone_from(&bench.names.register);
    bench.create(&names, None);
    bench.driver.add_topic(names.clone(), Share::default(), None);
    bench.run_for(SECOND).await;
    let all = [bench.names.task.clone(), names.task.clone()];
    for topic in &all {
        for _ in 0..2 {
            bench.submit_to(topic, -1, &[("IDEMPOTENCY_KEY", topic)]);
        }
    }
    bench.run_for(20 * SECOND).await;
    let counted = bench.driver.stats.read();
    assert_eq!((counted.completed, counted.violations), (2, 0), "of two with one key one is run");
    for topic in &all {
        assert!(bench.broker.backlog(&bench.at(topic, -1), "longhaul").is_empty(), "{topic}");
    }
}

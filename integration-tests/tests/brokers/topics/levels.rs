//! A queue with levels: its topics, and one worker for all of them.

use super::Bench;
use anyhow::{Context, Result};
use longhaul::topics::{TopicOverrides, TopicSettings, check};
use longhaul::{Levels, Priority, Raw, TaskContext, TaskError, TaskProcessor, TaskRef, Text};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

const DRAIN: Duration = Duration::from_secs(30);

/// Records the tasks that it runs, and waits until it may end.
#[derive(Clone)]
struct Noting {
    ran: Arc<Mutex<Vec<String>>>,
    started: Arc<Notify>,
    may_end: Arc<Semaphore>,
}

impl TaskProcessor for Noting {
    type Task = Text;
    type Output = Raw;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Raw, TaskError> {
        let level = context.topic().rsplit('-').next().unwrap_or_default();
        let noted = format!("{} {}", task.0, if level.len() > 4 { "normal" } else { level });
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(noted);
        self.started.notify_one();
        drop(self.may_end.acquire().await.map_err(TaskError::retry)?);
        Ok(Raw::default())
    }
}

/// One worker creates the topics of all levels and works on all of them. A queue with levels was
/// once three task topics, each created and named separately, with a worker of its own.
#[tokio::test]
async fn a_worker_makes_the_levels_of_its_queue_and_works_on_all() -> Result<()> {
    let Some(bench) = Bench::new("levels").await? else { return Ok(()) };
    let bench = bench.partitioned(2);
    bench.setup().await?;
    let client = bench.sandbox.client().await?;
    let may_end = Arc::new(Semaphore::new(0));
    let noting = Noting { ran: Arc::default(), started: Arc::default(), may_end };
    let builder = client.worker(&bench.names.task, noting.clone()).levels(Levels::strict());
    let worker = builder.concurrency(1).start().await?;
    worker.ready().await;
    for priority in [Priority::High, Priority::Low] {
        let names = bench.names.level(priority, "longhaul", &TopicOverrides::default())?;
        let settings = TopicSettings { partitions: Some(2), ..TopicSettings::default() };
        assert_eq!(check(&bench.admin, &names, &settings).await?, []);
    }
    assert_eq!(
        client.queue(&bench.names.task).setup_levels(TopicSettings::default()).await?.steps,
        []
    );
    let submit = |text: &'static str, priority| {
        let submission = client.submission(&bench.names.task, &Text(text.to_owned()));
        submission.priority(priority).send()
    };
    let mut tasks: Vec<TaskRef> = vec![submit("first", Priority::Low).await?];
    noting.started.notified().await;
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        for text in ["a", "b", "c"] {
            tasks.push(submit(text, priority).await?);
        }
    }
    noting.may_end.add_permits(100);
    for task in &tasks {
        client.wait::<Raw>(task).await.with_context(|| task.to_string())?;
    }
    // The order depends on the broker's deliveries as well; the tests of the driver check it.
    let mut ran = noting.ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ran.sort();
    let of_each =
        ["a", "b", "c"].map(|text| ["high", "low", "normal"].map(|it| format!("{text} {it}")));
    let mut expected = of_each.concat();
    expected.push("first low".to_owned());
    assert_eq!(ran, expected);
    worker.drain(DRAIN).await?;
    Ok(())
}

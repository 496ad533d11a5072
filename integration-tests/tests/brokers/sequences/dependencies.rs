//! Tasks that wait for others, and the results that they get from them.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Result, ensure};
use integration_tests::bench::Bench;
use longhaul::{Client, TaskContext, TaskError, TaskRef, Text, processor_fn};

/// `fan <words>` has a task for each word, and waits for them; `join` says what the tasks have that
/// it has waited for; any other task is its own result, but `fail` fails.
async fn work(client: &Client, task: Text, context: TaskContext) -> Result<Text, TaskError> {
    let mut words = task.0.split(' ');
    match words.next() {
        Some("fan") if context.predecessors().is_empty() => {
            let mut parts: Vec<TaskRef> = Vec::new();
            for word in words {
                parts.push(client.submit(context.topic(), &Text(word.to_owned())).await?);
            }
            Err(TaskError::after(&parts))
        }
        Some("fan" | "join") => {
            let mut all = Vec::new();
            for part in context.predecessors() {
                let result = part.result::<Text>().await?;
                all.push(result.map_or_else(|| format!("{:?}", part.outcome()), |it| it.0));
            }
            all.sort();
            Ok(Text(all.join(" ")))
        }
        Some("fail") => Err(TaskError::fatal("no")),
        _ => Ok(task),
    }
}

#[tokio::test]
async fn tasks_begin_when_others_are_over_and_have_their_results() -> Result<()> {
    let Some(bench) = Bench::new("dependencies").await? else { return Ok(()) };
    let client = Client::connect(bench.service_url()).await?;
    let submitter = client.clone();
    let worker = bench.worker(processor_fn(move |task: Text, context: TaskContext| {
        let client = submitter.clone();
        async move { work(&client, task, context).await }
    }));
    let worker = worker.await?.max_attempts(1).start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    // The key is not used yet, and the id is given as any producer would give it.
    let one = producer.submit_with(b"one", &[("DELAY", "PT3S")]).await?;
    let after = format!("{one},key:two");
    let join = producer.submit_with(b"join", &[("AFTER", &after), ("AFTER_FAILED", "run")]).await?;
    let strict = producer.submit_with(b"join", &[("AFTER", "key:two")]).await?;
    let mut view = bench.view().await?;
    let two = client.submission(&bench.names().task, &Text("fail".to_owned()));
    let two = two.idempotency_key("two").send().await?;
    view.until(join, "COMPLETED 1: Failed one").await?;
    let reason =
        format!("FAILED 0 FINAL: Task {}, which had to be over first, has no result", two.id);
    let by_key = reason.replace(&two.id.to_string(), "key:two");
    let told = client.wait_metadata(&TaskRef::new(&bench.names().task, strict)?).await?;
    let told = format!("FAILED 0 FINAL: {}", told.failure_reason.unwrap_or_default());
    ensure!(told == reason || told == by_key, "{told}");
    let fan = producer.submit_with(b"fan a b c", &[]).await?;
    view.until(fan, "COMPLETED 1: a b c").await?;
    // A dependency on a task that was never submitted is refused.
    let nobody = TaskRef::new(
        &bench.names().task,
        longhaul::TaskId { entry: fan.entry + 1_000_000, ..fan },
    )?;
    let late = client.submission(&bench.names().task, &Text("join".to_owned()));
    let refused = late.after(&[nobody]).send().await.unwrap_err().to_string();
    ensure!(refused.starts_with("AFTER: no task "), "{refused}");
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}

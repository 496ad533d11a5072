//! Workers that ask for tasks of some types only, through two gateways.

mod beside;

use super::*;
use anyhow::bail;
use std::collections::BTreeMap;
use std::time::Instant;

/// The number of tasks of each type.
const TASKS: usize = 200;

/// The number of tasks of a type that no request asks for.
const UNWANTED: usize = 1_000;

/// The limit for an end of which nothing else informs a worker.
const LAST_OF_ALL: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "a measurement decides nothing")]
fn now() -> Instant {
    Instant::now()
}

impl Gateway {
    async fn submit(&self, queue: &str, types: &[&str]) -> Result<()> {
        for some in types.chunks(100) {
            let tasks: Vec<_> =
                some.iter().map(|it| json!({"payload": format!("for {it}"), "type": it})).collect();
            let path = format!("/{queue}/tasks:batch");
            let (status, answer) = self.call(Method::POST, &path, json!({"tasks": tasks})).await?;
            ensure!((200..300).contains(&status), "{status} {answer}");
        }
        Ok(())
    }

    /// Leases up to ten tasks of this type, or of any type.
    async fn lease(&self, queue: &str, task_type: Option<&str>, wait: &str) -> Result<Vec<Value>> {
        let types = task_type.map(|task_type| [task_type, "never"]);
        let body = json!({"worker": "ann", "count": 10, "wait": wait, "types": types});
        let (status, answer) = self.call(Method::POST, &format!("/{queue}/leases"), body).await?;
        ensure!([200, 204].contains(&status), "{status} {answer}");
        Ok(answer.get("leases").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    async fn succeed(&self, queue: &str, leases: &[Value]) -> Result<()> {
        let lease = |it: &Value| it.get("lease").cloned();
        let reports: Vec<_> =
            leases.iter().map(|it| json!({"lease": lease(it), "status": "SUCCEEDED"})).collect();
        let path = format!("/{queue}/leases:report-batch");
        let (_, answer) = self.call(Method::POST, &path, json!({"reports": reports})).await?;
        let outcomes = answer.get("outcomes").and_then(Value::as_array);
        for outcome in outcomes.context("it has outcomes")? {
            ensure!(outcome.get("outcome") == Some(&json!("RESULT_OK")), "{answer}");
        }
        Ok(())
    }

    /// Works until all tasks of this type are done. Returns the number of leases of each task.
    async fn work(&self, queue: &str, task_type: &str) -> Result<BTreeMap<String, usize>> {
        let mut leased = BTreeMap::new();
        while leased.len() < TASKS {
            let leases = self.lease(queue, Some(task_type), "20s").await?;
            ensure!(!leases.is_empty(), "{task_type}: only {} of {TASKS} came", leased.len());
            for lease in &leases {
                let is = lease.get("type").and_then(Value::as_str);
                ensure!(is == Some(task_type), "{task_type} was asked for: {lease}");
                let task = lease.get("task").and_then(Value::as_str).context("it has a name")?;
                *leased.entry(task.to_owned()).or_default() += 1;
            }
            self.succeed(queue, &leases).await?;
        }
        Ok(leased)
    }
}

/// Describes where the tasks are. Once, on a Pulsar on a busy machine, eight of the tasks did not
/// come, and it was not clear whether the broker, a gateway or a lease had them.
async fn where_they_are(sandbox: &Sandbox, gateways: &[&Gateway], queue: &str) -> Result<String> {
    let mut told = String::new();
    for gateway in gateways {
        let (_, counts) = gateway.get(&format!("/{queue}/counts")).await?;
        let (_, open) =
            gateway.get(&format!("/{queue}/tasks?status=ready,running&limit=20")).await?;
        told.push_str(&format!("a gateway: {counts} {open}\n"));
    }
    for partition in 0..2 {
        let topic = format!("persistent://public/default/{queue}-partition-{partition}");
        told.push_str(&format!(
            "{topic}: {}\n",
            sandbox.admin().stats(&topic).await.unwrap_or_default()
        ));
    }
    Ok(told)
}

#[tokio::test]
async fn each_worker_gets_the_tasks_of_its_type_through_its_own_gateway() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let queue = name(&sandbox)?;
    let one = Gateway::start(&sandbox, |_| {}).await?;
    let other = Gateway::start(&sandbox, |_| {}).await?;
    ensure!(one.call(Method::PUT, &format!("/{queue}"), json!({"partitions": 2})).await?.0 == 200);
    for gateway in [&one, &other] {
        ensure!(gateway.lease(&queue, Some("none"), "1s").await?.is_empty(), "nothing is there");
    }
    let mixed: Vec<&str> = (0..2 * TASKS).map(|it| ["resize", "mail"][it % 2]).collect();
    one.submit(&queue, &["print"]).await?;
    one.submit(&queue, &mixed).await?;
    let worked = tokio::join!(one.work(&queue, "mail"), other.work(&queue, "resize"));
    let (mails, pictures) = match worked {
        (Ok(mails), Ok(pictures)) => (mails, pictures),
        (mails, pictures) => bail!(
            "{:?}, {:?}; {}",
            mails.map(|leased| leased.len()),
            pictures.map(|leased| leased.len()),
            where_they_are(&sandbox, &[&one, &other], &queue).await?
        ),
    };
    for leased in [mails, pictures] {
        ensure!(leased.len() == TASKS && leased.values().all(|times| *times == 1), "{leased:?}");
    }
    let (_, counts) = other.get(&format!("/{queue}/counts")).await?;
    ensure!(counts["by_status"]["completed"] == json!(2 * TASKS), "{counts}");
    let rest = other.lease(&queue, None, "20s").await?;
    ensure!(rest.len() == 1 && rest[0]["type"] == json!("print"), "{rest:?}");
    ensure!(rest[0]["attempt"] == json!(1), "nobody has tried it before: {rest:?}");
    other.succeed(&queue, &rest).await
}

//! The end of tasks for which no worker asks: two gateways, no other worker, and no request for a
//! lease since the tasks were submitted.

use super::*;
use integration_tests::sandbox::BrokerConfig;
use integration_tests::{stopwatch, until};

/// The actions on a task, and the status with which each ends it.
const ENDS: [(&str, &str); 4] =
    [("cancel", "cancelled"), ("kill", "cancelled"), ("force-fail", "failed"), ("", "cancelled")];

impl Gateway {
    async fn submit_one(&self, tasks: &str, task: Value) -> Result<String> {
        let (status, made) = self.call(Method::POST, tasks, task).await?;
        ensure!(status == 201, "{status} {made}");
        Ok(made.get("id").and_then(Value::as_str).context("it has an id")?.to_owned())
    }

    async fn end(&self, tasks: &str, id: &str, verb: &str) -> Result<()> {
        let (status, answer) = if verb.is_empty() {
            self.call(Method::DELETE, &format!("{tasks}/{id}?reason=test"), json!({})).await?
        } else {
            let reason = json!({"reason": "test"});
            self.call(Method::POST, &format!("{tasks}/{id}:{verb}"), reason).await?
        };
        ensure!(status == 204, "{verb} {id}: {status} {answer}");
        Ok(())
    }

    /// Waits for the end. On a quiet machine it takes a second at most, and twenty beside all other
    /// tests.
    async fn is_over(&self, tasks: &str, id: &str, how: &str) -> Result<()> {
        let over = until(&format!("the end of {id} ({how})"), PATIENCE, async || {
            let (status, over) = self.get(&format!("{tasks}/{id}/wait?timeout=20s")).await?;
            ensure!([200, 204, 503].contains(&status), "{id}: {status} {over}");
            Ok((status == 200).then_some(over))
        })
        .await?;
        ensure!(over.get("status") == Some(&json!(how)), "{id}: {over}");
        let (_, shown) = self.get(&format!("{tasks}/{id}")).await?;
        ensure!(shown.get("status") == Some(&json!(how)), "{shown}");
        Ok(())
    }

    async fn dead(&self, queue: &str) -> Result<Vec<String>> {
        let (_, dead) = self.get(&format!("/{queue}/dead")).await?;
        let letters = dead.get("dead_letters").and_then(Value::as_array);
        let letters = letters.with_context(|| format!("a list: {dead}"))?;
        Ok(letters.iter().filter_map(|it| Some(it.get("task")?.as_str()?.to_owned())).collect())
    }
}

/// Makes both gateways workers of the queue, so that they know of each other.
async fn both_are_there(gateways: [&Gateway; 2], queue: &str) -> Result<()> {
    for gateway in gateways {
        // A request opens the queue at a gateway, which keeps it open for 3 min.
        let asks = json!({"worker": "ann"});
        let (status, _) = gateway.call(Method::POST, &format!("/{queue}/leases"), asks).await?;
        ensure!(status == 204, "there is no task: {status}");
    }
    for gateway in gateways {
        until("workers", PATIENCE, async || {
            let (_, listed) = gateway.get(&format!("/{queue}/workers")).await?;
            let seen = listed.get("workers").and_then(Value::as_array).map_or(0, Vec::len);
            Ok((seen >= 2).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Each kind of waiting task comes to each kind of end, through a gateway at which it does not
/// wait.
async fn waiting_tasks_end([one, other]: [&Gateway; 2], queue: &str, made: Value) -> Result<()> {
    let (status, answer) = one.call(Method::PUT, &format!("/{queue}"), made).await?;
    ensure!(status == 200, "{queue}: {status} {answer}");
    both_are_there([one, other], queue).await?;
    let tasks = format!("/{queue}/tasks");
    let mut kinds = vec![json!({"payload": "a"}), json!({"payload": "a", "type": "resize"})];
    kinds.push(json!({"payload": "a", "delay": "1h"}));
    if queue == "levels" {
        kinds.push(json!({"payload": "a", "priority": "high"}));
        kinds.push(json!({"payload": "a", "priority": "low", "type": "resize"}));
    }
    let (mut took, mut failed) = (Vec::new(), Vec::new());
    for task in kinds {
        for (verb, how) in ENDS {
            let id = one.submit_one(&tasks, task.clone()).await?;
            let passed = stopwatch();
            other.end(&tasks, &id, verb).await?;
            one.is_over(&tasks, &id, how).await?;
            took.push(passed());
            other.is_over(&tasks, &id, how).await?;
            if how == "failed" {
                failed.push(id);
            }
        }
    }
    let most = took.iter().max().copied().unwrap_or_default();
    say(&format!("{queue}: {} tasks ended, each within {most:?}", took.len()));
    failed.sort();
    let mut dead = other.dead(queue).await?;
    dead.sort();
    ensure!(dead == failed, "one dead letter of each: {dead:?}, {failed:?}");
    // The ended tasks are not delivered any more.
    let last = one.submit_one(&tasks, json!({"payload": "last"})).await?;
    let leased = until("the last task", PATIENCE, async || {
        let asks = json!({"worker": "ann", "count": 10, "wait": "10s"});
        let (status, leased) = other.call(Method::POST, &format!("/{queue}/leases"), asks).await?;
        ensure!([200, 204].contains(&status), "{status} {leased}");
        Ok((status == 200).then_some(leased))
    })
    .await?;
    let leases = leased.get("leases").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_last = leases.iter().all(|lease| lease.get("task") == Some(&json!(last)));
    ensure!(leases.len() == 1 && is_last, "{leased}");
    Ok(())
}

/// A cancelled task was once still ready after thirteen minutes, and a forced failure appeared
/// neither in the wait nor in the dead letters: both took effect only when a worker asked for a
/// lease.
#[tokio::test]
async fn waiting_tasks_end_though_nobody_asks_for_leases() -> Result<()> {
    let Some(broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(()) };
    let (one, other) = (Gateway::of(&broker).await?, Gateway::of(&broker).await?);
    let gateways = [&one, &other];
    tokio::try_join!(
        waiting_tasks_end(gateways, "plain", json!({})),
        waiting_tasks_end(gateways, "parts", json!({"partitions": 2})),
        waiting_tasks_end(gateways, "levels", json!({"levels": true})),
    )?;
    ensure!(one.server.drain(PATIENCE).await && other.server.drain(PATIENCE).await, "in order");
    Ok(())
}

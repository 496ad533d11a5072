//! The effects of the buttons, checked through the API.

use super::stage::{PATIENCE, Stage, WORKER};
use anyhow::{Context, Result, ensure};
use integration_tests::until;
use reqwest::Method;
use serde_json::{Value, json};

pub(super) async fn upon_tasks(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("/tasks").await?;
    browser.click("//summary[normalize-space()='Submit a task']").await?;
    browser.write("//textarea[@name='payload']", "hold, from the page").await?;
    stage.press("Submit").await?;
    browser.until("document.querySelector('h1 .status')?.textContent === 'running'").await?;
    let id = browser.look("decodeURIComponent(location.pathname.split('/').pop())").await?;
    let id = id.as_str().context("it has an id")?.to_owned();
    ensure!(status(stage, &id).await? == json!("running"), "{id}");
    stage.ask("Take it from its worker", "it hangs").await?;
    browser.until_shown("claimed for attempt 2").await?;
    // The history is read from the log, and the task from a view that may be behind: the form has
    // to name the epoch that is failed.
    let facts = "[...document.querySelectorAll('#facts div')].map((fact) => fact.textContent)";
    browser.until(&format!("{facts}.some((fact) => fact.startsWith('Attempts2'))")).await?;
    stage.ask("Fail it for good", "no use").await?;
    stage.until_status(&id, "failed").await?;
    stage.open(&format!("/tasks/{}", stage.failed)).await?;
    // An ended task cannot be ended again.
    let offered = "[...document.querySelectorAll('#actions summary')].map((it) => it.textContent)";
    ensure!(browser.look(offered).await? == json!(["Run it once more"]), "of a task that failed");
    stage.ask("Run it once more", "once more").await?;
    let other = format!("!location.pathname.endsWith('{}')", stage.failed);
    browser.until(&other).await?;
    let killed = stage.submit("hold to be killed", "running").await?;
    let deleted = stage.submit("hold to be deleted", "running").await?;
    for (id, name, reason) in [
        (&killed, "Kill", "at once"),
        (&deleted, "Delete", "tidied up"),
        (&stage.running, "Cancel", "enough"),
    ] {
        stage.open(&format!("/tasks/{id}")).await?;
        stage.ask(name, reason).await?;
        stage.until_status(id, "cancelled").await?;
    }
    stage.open("/actions").await?;
    for reason in ["it hangs", "no use", "at once", "tidied up", "enough"] {
        browser.until_shown(reason).await?;
    }
    Ok(())
}

/// Nothing is done to a task that was not ticked.
pub(super) async fn upon_several_tasks(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let mut held = Vec::new();
    for payload in ["hold one", "hold two", "hold three"] {
        held.push(stage.submit(payload, "running").await?);
    }
    stage.open("/tasks?status=running").await?;
    for id in &held {
        browser.until_shown(id).await?;
    }
    // A page that changes under a tick would give the tick to another task.
    browser.click(&format!("//input[@value='{}']", held[0])).await?;
    held.push(stage.submit("hold four", "running").await?);
    browser.click(&format!("//input[@value='{}']", held[2])).await?;
    stage.press("Cancel …").await?;
    browser.until("document.querySelector('h1').textContent === 'Cancel 2 tasks'").await?;
    browser.write("//input[@name='reason']", "no more").await?;
    stage.press("Cancel 2 tasks").await?;
    browser.until_shown("2 tasks asked to end").await?;
    for (at, status) in [(0, "cancelled"), (1, "running"), (2, "cancelled"), (3, "running")] {
        stage.until_status(&held[at], status).await?;
    }
    stage.open("/tasks?text=hold&level=normal").await?;
    browser.until_shown("No task matches").await?;
    stage.open(&format!("/tasks?text={}&level=normal", held[1])).await?;
    browser.click("//input[@name='all']").await?;
    stage.press("Delete …").await?;
    browser.until("document.querySelector('h1').textContent === 'Delete 1 task'").await?;
    stage.press("Delete 1 task").await?;
    stage.until_status(&held[1], "cancelled").await?;
    stage.api(Method::POST, &format!("/tasks/{}:cancel", held[3]), json!({})).await?;
    stage.until_status(&held[3], "cancelled").await
}

async fn status(stage: &Stage, id: &str) -> Result<Value> {
    let task = stage.api(Method::GET, &format!("/tasks/{id}"), json!({})).await?;
    Ok(task["status"].clone())
}

/// The tasks with a type that have a dead letter: the stage has submitted one, which fails whenever
/// it runs.
async fn letters(stage: &Stage) -> Result<Vec<String>> {
    let found = stage.api(Method::GET, "/dead", json!({})).await?;
    let all = found["dead_letters"].as_array().context("a list")?;
    let typed = all.iter().filter(|it| it["type"].is_string());
    Ok(typed.filter_map(|it| it["task"].as_str().map(str::to_owned)).collect())
}

pub(super) async fn upon_dead_letters(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    // Running a task once more replays its letter, so that there is another one by now.
    let dead = until("the task that ran once more is dead", PATIENCE, async || {
        let dead = letters(stage).await?.pop();
        Ok(dead.filter(|dead| *dead != stage.failed))
    })
    .await?;
    stage.open("/dead").await?;
    browser.click(&format!("//main//td//a[normalize-space()='{dead}']")).await?;
    browser.until_shown("Properties").await?;
    stage.ask("Replay", "upstream is back").await?;
    browser.until("location.pathname.endsWith('/dead')").await?;
    until("it was replayed, and what was replayed has failed again", PATIENCE, async || {
        let found = letters(stage).await?;
        Ok((found.len() == 1 && !found.contains(&dead)).then_some(()))
    })
    .await?;
    stage.open("/dead").await?;
    browser.click("//summary[normalize-space()='Purge']").await?;
    ensure!(letters(stage).await?.len() == 1, "nothing is done before it is confirmed");
    browser.click("//details[summary[normalize-space()='Purge']]//button").await?;
    browser.until_shown("There are no dead letters").await?;
    ensure!(letters(stage).await?.is_empty(), "all are gone");
    Ok(())
}

pub(super) async fn upon_a_schedule(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let schedule = async || stage.api(Method::GET, "/schedules", json!({})).await;
    stage.open("/schedules").await?;
    stage.press("Pause").await?;
    browser.until_shown("paused").await?;
    ensure!(schedule().await?["schedules"][0]["schedule"]["paused"] == json!(true), "paused");
    stage.press("Resume").await?;
    browser.until("!document.querySelector('main').innerText.includes('paused')").await?;
    stage.press("Run now").await?;
    until("it has fired", PATIENCE, async || {
        let listed = stage.api(Method::GET, "/tasks?order=newest&limit=1", json!({})).await?;
        let id = listed["tasks"][0]["id"].as_str().unwrap_or_default().to_owned();
        let url = format!("{}/tasks/{id}/payload", stage.place("").replace("/ui/", "/v1/"));
        Ok((reqwest::get(url).await?.text().await? == "report").then_some(()))
    })
    .await?;
    stage.open("/schedules").await?;
    stage.ask("Delete", "not any more").await?;
    browser.until_shown("There are no schedules").await?;
    ensure!(schedule().await?["schedules"] == json!([]), "deleted");
    Ok(())
}

pub(super) async fn upon_limits(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let settings = async || stage.api(Method::GET, "", json!({})).await;
    stage.open("/limits").await?;
    browser.write("//input[@name='max_in_flight']", "12").await?;
    stage.press("Change").await?;
    // The field's value changes as soon as it is typed; its default is what the server sent. CI
    // once read the settings before the change was made.
    browser.until(&format!("{}?.defaultValue === '12'", field("max_in_flight"))).await?;
    let found = settings().await?;
    ensure!(found["settings"]["max_in_flight"] == json!(12), "{found}");
    // Another user is quicker, while this one types.
    browser.write("//input[@name='max_in_flight']", "14").await?;
    let other = json!({"expected_version": found["version"], "settings": {"max_in_flight": 13}});
    stage.api(Method::PATCH, "", other).await?;
    stage.press("Change").await?;
    browser.until_shown("version_conflict").await?;
    let found = settings().await?;
    ensure!(found["settings"]["max_in_flight"] == json!(13), "{found}");
    browser.click("//main//a[normalize-space()='Go on']").await?;
    stage.open("/limits").await?;
    browser.click("//summary[normalize-space()='All settings, as JSON']").await?;
    browser.write("//textarea[@name='settings']", r#"{"max_attempts": 5}"#).await?;
    browser.click("//details//button[normalize-space()='Change']").await?;
    browser.until(&format!("{}?.defaultValue === '5'", field("max_attempts"))).await?;
    let found = settings().await?;
    ensure!(found["settings"]["max_attempts"] == json!(5), "{found}");
    ensure!(found["settings"]["max_in_flight"] == json!(null), "{found}");
    Ok(())
}

fn field(name: &str) -> String {
    format!("document.querySelector('input[name={name}]')")
}

pub(super) async fn upon_a_worker(stage: &Stage) -> Result<()> {
    stage.open("/workers").await?;
    stage.browser.until_shown(WORKER).await?;
    stage.ask("Drain", "its machine goes").await?;
    until("it has left", PATIENCE, async || {
        let found = stage.api(Method::GET, "/workers", json!({})).await?;
        Ok((!found.to_string().contains(WORKER)).then_some(()))
    })
    .await
}

/// The actions on the queue, when it has no workers any more.
pub(super) async fn upon_the_queue(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("").await?;
    stage.ask("Pause", "a new printer").await?;
    browser.until_shown("a new printer").await?;
    let found = stage.api(Method::GET, "", json!({})).await?;
    ensure!(found["settings"]["paused"] == json!(true), "{found}");
    stage.press("Resume").await?;
    browser.until("!document.querySelector('h1').innerText.includes('paused')").await?;
    let waiting = stage.submit("nobody works any more", "ready").await?;
    stage.ask("Purge", "over").await?;
    stage.until_status(&waiting, "cancelled").await
}

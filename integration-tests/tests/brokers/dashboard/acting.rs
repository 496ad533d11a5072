//! What the buttons do, seen by the API.

use super::stage::{PATIENCE, Stage, WORKER, gateway};
use anyhow::{Context, Result, ensure};
use integration_tests::until;
use longhaul_server::{Scope, TokenEntry, TokenFile};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    stage.ask("Fail it for good", "no use").await?;
    stage.until_status(&id, "failed").await?;
    stage.open(&format!("/tasks/{}", stage.failed)).await?;
    stage.ask("Run it once more", "once more").await?;
    let other = format!("!location.pathname.endsWith('{}')", stage.failed);
    browser.until(&other).await?;
    let held = stage.submit("hold to be killed", "running").await?;
    stage.open(&format!("/tasks/{held}")).await?;
    stage.ask("Kill", "at once").await?;
    stage.until_status(&held, "cancelled").await?;
    stage.open("/actions").await?;
    for reason in ["it hangs", "no use", "at once"] {
        browser.until_shown(reason).await?;
    }
    Ok(())
}

async fn status(stage: &Stage, id: &str) -> Result<Value> {
    let task = stage.api(Method::GET, &format!("/tasks/{id}"), json!({})).await?;
    Ok(task["status"].clone())
}

async fn letters(stage: &Stage) -> Result<Vec<String>> {
    let found = stage.api(Method::GET, "/dead", json!({})).await?;
    let all = found["dead_letters"].as_array().context("a list")?;
    Ok(all.iter().filter_map(|it| it["task"].as_str().map(str::to_owned)).collect())
}

pub(super) async fn upon_dead_letters(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("/dead").await?;
    browser.click(&format!("//main//td/a[normalize-space()='{}']", stage.failed)).await?;
    browser.until_shown("Properties").await?;
    stage.ask("Replay", "upstream is back").await?;
    let gone = format!("!document.querySelector('main').innerText.includes('{}')", stage.failed);
    browser.until(&format!("location.pathname.endsWith('/dead') && {gone}")).await?;
    ensure!(!letters(stage).await?.contains(&stage.failed), "it was replayed");
    // What was replayed fails again.
    until("it is dead again", PATIENCE, async || {
        Ok((!letters(stage).await?.is_empty()).then_some(()))
    })
    .await?;
    stage.open("/dead").await?;
    browser.click("//summary[normalize-space()='Purge']").await?;
    ensure!(!letters(stage).await?.is_empty(), "nothing is done before it is confirmed");
    browser.click("//details[summary[normalize-space()='Purge']]//button").await?;
    until("all are gone", PATIENCE, async || Ok(letters(stage).await?.is_empty().then_some(())))
        .await
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
        let payload =
            format!("/tasks/{}/payload", listed["tasks"][0]["id"].as_str().unwrap_or_default());
        let url = stage.place("").replace("/ui/", "/v1/") + &payload;
        Ok((reqwest::get(url).await?.text().await? == "report").then_some(()))
    })
    .await?;
    stage.open("/schedules").await?;
    stage.ask("Delete", "not any more").await?;
    browser.until_shown("There is none").await?;
    ensure!(schedule().await?["schedules"] == json!([]), "deleted");
    Ok(())
}

pub(super) async fn upon_limits(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("/limits").await?;
    browser.write("//input[@name='max_in_flight']", "12").await?;
    stage.press("Change").await?;
    browser.until("document.querySelector('input[name=max_in_flight]')?.value === '12'").await?;
    let found = stage.api(Method::GET, "", json!({})).await?;
    ensure!(found["settings"]["max_in_flight"] == json!(12), "{found}");
    // Somebody else was quicker.
    stage.open("/limits").await?;
    let settings = json!({"expected_version": found["version"], "settings": {"max_in_flight": 13}});
    stage.api(Method::PATCH, "", settings).await?;
    browser.write("//input[@name='max_in_flight']", "14").await?;
    stage.press("Change").await?;
    browser.until_shown("version_conflict").await?;
    let found = stage.api(Method::GET, "", json!({})).await?;
    ensure!(found["settings"]["max_in_flight"] == json!(13), "{found}");
    Ok(())
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

pub(super) async fn upon_the_queue(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("").await?;
    stage.press("Pause").await?;
    browser.until_shown("paused").await?;
    ensure!(stage.api(Method::GET, "", json!({})).await?["settings"]["paused"] == json!(true));
    stage.press("Resume").await?;
    browser.until("!document.querySelector('h1').innerText.includes('paused')").await?;
    let waiting = stage.submit("nobody works any more", "ready").await?;
    stage.open("").await?;
    stage.ask("Purge", "over").await?;
    until("it is gone", PATIENCE, async || {
        Ok((status(stage, &waiting).await? != json!("ready")).then_some(()))
    })
    .await
}

/// A gateway with tokens, and one whose dashboard only shows.
pub(super) async fn with_tokens(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tokens.json");
    let mut tokens = TokenFile::open_or_new(&file)?;
    let token = tokens.create(TokenEntry::new("ann", BTreeSet::from([Scope::Read])))?;
    tokens.write()?;
    let server = gateway(&stage.client, |config| config.token_file = Some(file.clone())).await?;
    browser.open(&format!("{}/ui/queues/{}/limits", server.url(), stage.queue)).await?;
    browser.until("location.pathname === '/ui/sign-in'").await?;
    browser.write("//input[@name='token']", "wrong").await?;
    stage.press("Sign in").await?;
    browser.until("document.querySelector('[role=alert]') !== null").await?;
    browser.write("//input[@name='token']", &token).await?;
    stage.press("Sign in").await?;
    browser.until("location.pathname.endsWith('/limits')").await?;
    ensure!(browser.look("document.cookie").await? == json!(""), "no script reads the cookie");
    stage.press("Pause").await?;
    browser.until_shown("scope_missing").await?;
    browser.click("//header//button[normalize-space()='Sign out']").await?;
    browser.until("location.pathname === '/ui/sign-in'").await?;
    ensure!(server.drain(PATIENCE).await, "in order");
    // A token that is refused is no complaint about the page.
    browser.complaints().await.map(|_| ())
}

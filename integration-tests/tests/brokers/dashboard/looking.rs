//! The contents of the pages: in light and dark colours, on a small screen, while things happen,
//! without their script, and by keyboard.

use super::stage::{Stage, WORKER};
use anyhow::{Context, Result, ensure};
use integration_tests::browser::{Browser, ENTER, TAB};
use reqwest::Method;
use serde_json::{Value, json};

/// Each page, and a text that it has to show.
fn pages(stage: &Stage) -> Vec<(String, String)> {
    let place = |below: &str| stage.place(below);
    let text = str::to_owned;
    vec![
        (format!("{}/", stage.root()), stage.queue.clone()),
        (place(""), text("in the last 1 h")),
        (place("/tasks"), stage.running.clone()),
        (place("/tasks?status=failed&tag=eu"), stage.failed.clone()),
        (place(&format!("/tasks/{}", stage.running)), text("claimed for attempt 1")),
        (place(&format!("/tasks/{}", stage.failed)), text("U+202E")),
        (place(&format!("/tasks/{}?as=hex", stage.completed)), text("00000000")),
        (place(&format!("/bulk?verb=cancel&task={}", stage.running)), text("Cancel 1 task")),
        (place("/reasons?status=failed"), text("the most frequent first")),
        (place("/workers"), text(WORKER)),
        (place("/dead"), stage.failed.clone()),
        (place(&format!("/dead/{}", stage.failed)), text("Properties")),
        (place("/schedules"), text("nightly")),
        (place("/limits"), text("Version")),
        (place("/actions"), text("Actions")),
        (place("/topics"), text("Together")),
        (format!("{}/ui/names", stage.root()), stage.queue.clone()),
    ]
}

/// The usual colours and sizes: nothing is wider than the window, and every page looks different in
/// the dark.
pub(super) async fn at_every_page(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let folder = std::env::var_os("LONGHAUL_TEST_DASHBOARD_PICTURES");
    let axe = std::env::var_os("LONGHAUL_TEST_AXE").map(std::fs::read_to_string).transpose()?;
    for (width, height, scheme) in [(1440, 900, "light"), (360, 740, "dark"), (2560, 1440, "light")]
    {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.devtools("Emulation.setEmulatedMedia", media).await?;
        for (at, (place, shown)) in pages(stage).into_iter().enumerate() {
            browser.open(&place).await?;
            browser.until_shown(&shown).await?;
            let wide =
                browser.look("document.documentElement.scrollWidth - window.innerWidth").await?;
            ensure!(wide.as_i64().is_some_and(|it| it <= 0), "{place} at {width}: {wide} too wide");
            let ground = browser.look("getComputedStyle(document.body).backgroundColor").await?;
            let light = ground == json!("rgb(251, 251, 249)");
            ensure!(light == (scheme == "light"), "{place}: {ground} where it is {scheme}");
            let complaints = browser.complaints().await?;
            ensure!(complaints.is_empty(), "{place}: {complaints:?}");
            if let Some(axe) = axe.as_ref().filter(|_| width <= 1440) {
                let found = barriers(browser, axe).await?;
                ensure!(found == json!([]), "{place} at {width}, by axe-core: {found:#}");
            }
            if let Some(folder) = &folder {
                let name = format!("{at:02}-{width}-{scheme}.png");
                std::fs::write(std::path::Path::new(folder).join(name), browser.picture().await?)?;
            }
        }
    }
    browser.devtools("Emulation.clearDeviceMetricsOverride", json!({})).await?;
    browser.devtools("Emulation.setEmulatedMedia", json!({"features": []})).await.map(|_| ())
}

/// What axe-core finds on the page that keeps people from reading or using it: rules, each with the
/// elements that break it.
async fn barriers(browser: &Browser, axe: &str) -> Result<Value> {
    browser.devtools("Runtime.evaluate", json!({"expression": axe})).await?;
    let found = "axe.run().then(({violations}) => violations.map(({id, nodes}) => [id, nodes.map((node) => node.html)]))";
    let run = json!({"expression": found, "awaitPromise": true, "returnByValue": true});
    let told = browser.devtools("Runtime.evaluate", run).await?;
    told.pointer("/result/value").cloned().with_context(|| format!("axe-core: {told}"))
}

/// A payload, a key, a type and a failure of HTML and scripts: they are visible, and none of it
/// runs, loads or becomes a part of the page.
pub(super) async fn at_something_hostile(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    for below in [
        "/tasks".to_owned(),
        format!("/tasks/{}", stage.completed),
        format!("/tasks/{}", stage.failed),
        format!("/tasks/{}?as=text", stage.failed),
        "/dead".to_owned(),
        format!("/dead/{}", stage.failed),
    ] {
        stage.open(&below).await?;
        browser.until_shown("<img src=x onerror=").await?;
        let made = "document.querySelectorAll('img, main script, [onerror]').length + (window.harmed ?? 0)";
        ensure!(browser.look(made).await? == json!(0), "{below}: something of it is on the page");
        let turned =
            browser.look("/[\\u202e\\u0007]/.test(document.documentElement.outerHTML)").await?;
        ensure!(turned == json!(false), "{below}: it turns the direction of the page");
        ensure!(browser.complaints().await?.is_empty(), "{below}: something was tried");
    }
    Ok(())
}

/// A page follows the events without a reload.
pub(super) async fn at_news(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("/tasks?status=completed").await?;
    browser.until("document.getElementById('live').textContent === 'live'").await?;
    browser.devtools("Runtime.evaluate", json!({"expression": "window.kept = 1"})).await?;
    let new = stage.submit("short", "completed").await?;
    browser.until_shown(&new).await?;
    ensure!(browser.look("window.kept").await? == json!(1), "the page was loaded anew");
    // The page of a task does too, and text that a user types there meanwhile stays.
    let held = stage.submit("hold too", "running").await?;
    stage.open(&format!("/tasks/{held}")).await?;
    browser.until_shown("1 of 4").await?;
    stage
        .api(Method::POST, &format!("/tasks/{held}:cancel"), json!({"reason": "seen live"}))
        .await?;
    browser.until("document.querySelector('h1 .status').textContent === 'cancelled'").await?;
    browser.until_shown("a cancel was requested").await
}

/// Without its script each page shows the same.
pub(super) async fn without_a_script(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    browser.devtools("Network.enable", json!({})).await?;
    browser.devtools("Network.setCacheDisabled", json!({"cacheDisabled": true})).await?;
    browser.devtools("Network.setBlockedURLs", json!({"urls": ["*ui.js*"]})).await?;
    for (place, shown) in pages(stage) {
        browser.open(&place).await?;
        let text = browser.look("document.querySelector('main').innerText").await?;
        let text = text.as_str().context("a page is text")?;
        ensure!(text.contains(&shown), "{place} without its script: {text}");
        let live = browser.look("document.getElementById('live').textContent").await?;
        ensure!(live == json!(""), "the script was kept away");
    }
    stage.open("/limits").await?;
    stage.press("Pause").await?;
    browser.until_shown("paused").await?;
    stage.open("/limits").await?;
    stage.press("Resume").await?;
    browser.until("!document.querySelector('h1').innerText.includes('paused')").await?;
    browser.devtools("Network.setBlockedURLs", json!({"urls": []})).await?;
    browser.devtools("Network.setCacheDisabled", json!({"cacheDisabled": false})).await?;
    browser.complaints().await.map(|_| ())
}

/// The menu of queues stays open while the page is renewed, and leads to a queue.
pub(super) async fn at_the_menu(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    stage.open("/tasks").await?;
    browser.click("//header//details[@class='switcher']/summary").await?;
    let link = format!("//header//details//li/a[normalize-space()='{}']", stage.queue);
    browser.until("document.querySelector('.switcher li a') !== null").await?;
    browser.click(&link).await?;
    browser
        .until("document.querySelector('nav [aria-current=page]').textContent === 'Overview'")
        .await
}

/// From the first Tab to a cancelled task, without a mouse.
pub(super) async fn with_keys_alone(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let held = stage.submit("hold for the keys", "running").await?;
    stage.open("/tasks").await?;
    browser.press(TAB).await?;
    let focused = "document.activeElement.textContent";
    ensure!(browser.look(focused).await? == json!("Skip to the content"), "the first stop");
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    ensure!(browser.look(outline).await? == json!("solid"), "the focus is seen");
    browser.press(ENTER).await?;
    ensure!(browser.look("document.activeElement.id").await? == json!("main"), "the content");
    browser.press("/").await?;
    ensure!(browser.look("document.activeElement.name").await? == json!("text"), "the filter");
    browser.press("eu").await?;
    browser.press(ENTER).await?;
    browser.until("new URLSearchParams(location.search).get('text') === 'eu'").await?;
    browser.until_shown(&held).await?;
    stops_at(stage, &format!("document.activeElement.textContent === '{held}'")).await?;
    browser.press(ENTER).await?;
    browser.until("document.querySelector('h1').textContent.startsWith('Task ')").await?;
    stops_at(stage, "document.activeElement.matches('summary') && document.activeElement.textContent === 'Cancel'").await?;
    browser.press(ENTER).await?;
    browser.press(TAB).await?;
    ensure!(browser.look("document.activeElement.name").await? == json!("reason"), "the reason");
    browser.press("by keys").await?;
    browser.press(TAB).await?;
    browser.press(ENTER).await?;
    stage.until_status(&held, "cancelled").await
}

/// Presses Tab until `holds` is true; at most 150 times.
async fn stops_at(stage: &Stage, holds: &str) -> Result<()> {
    for _ in 0..150 {
        if stage.browser.look(holds).await? == json!(true) {
            return Ok(());
        }
        stage.browser.press(TAB).await?;
    }
    anyhow::bail!("no stop where {holds}")
}

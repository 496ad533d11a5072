//! A queue with many tasks: how soon its pages appear, how large they are, and whether a user can
//! page through them.

use super::stage::{PATIENCE, Stage};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use integration_tests::{say, stopwatch, until};
use longhaul::Text;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The number of waiting tasks in the queue.
const TASKS: usize = 100_000;

/// The number of submissions whose receipts are awaited at once.
const UNDERWAY: usize = 2_000;

/// The maximum size of a page with its style, script and icon, as transferred.
const BYTES_MAX: f64 = 150_000.0;

/// Far more than a page needs, and far less than a page that draws every task would:
/// `docs/dashboard.md` has the time on a good machine.
const PAINT_MS_MAX: f64 = 5_000.0;

/// The number of list pages that are turned.
const PAGES: usize = 10;

pub(super) async fn many_tasks(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let queue = format!("{}-large", stage.queue);
    let watch = stopwatch();
    fill(stage, &queue).await?;
    say(&format!("dashboard: {TASKS} tasks in {:?}", watch()));
    for below in ["/tasks", "", "/tasks?status=ready&tag=eu"] {
        let place = format!("{}/ui/queues/{queue}{below}", stage.root());
        let figures = first_look(stage, &place).await?;
        say(&format!("dashboard: {below:?} with {TASKS} tasks: {figures:?}"));
        ensure!(figures.bytes <= BYTES_MAX, "{below:?} is too large: {figures:?}");
        ensure!(figures.paint_ms <= PAINT_MS_MAX, "{below:?} is too slow: {figures:?}");
    }
    browser.open(&format!("{}/ui/queues/{queue}/tasks", stage.root())).await?;
    let all = "document.querySelector('#statuses a').textContent.replace(/\\D/g, '')";
    ensure!(browser.look(all).await? == json!(TASKS.to_string()), "the page knows all of them");
    scrolls(stage).await?;
    page_by_page(stage).await
}

/// Submits tasks that no worker runs, so that they stay.
async fn fill(stage: &Stage, queue: &str) -> Result<()> {
    stage.make(queue).await?;
    let topic = format!("public/default/{queue}");
    let submit = |_| {
        let task = stage.client.submission(&topic, &Text("one of many".to_owned()));
        task.task_type("mail").tag("eu").send()
    };
    let sent = stream::iter(0..TASKS).map(submit).buffer_unordered(UNDERWAY);
    sent.try_for_each(async |_| Ok(())).await?;
    until("all are known", PATIENCE, async || {
        let url = format!("{}/v1/queues/{queue}/counts", stage.root());
        let counts: Value = reqwest::get(url).await?.json().await?;
        Ok((counts["total"] == json!(TASKS)).then_some(()))
    })
    .await
}

#[derive(Debug)]
struct Figures {
    /// From the click until something is visible.
    paint_ms: f64,
    bytes: f64,
}

/// A page as a first visitor sees it: nothing of it is cached.
async fn first_look(stage: &Stage, place: &str) -> Result<Figures> {
    let browser = &stage.browser;
    browser.open("about:blank").await?;
    browser.devtools("Network.clearBrowserCache", json!({})).await?;
    browser.open(place).await?;
    browser.until("performance.getEntriesByName('first-contentful-paint').length > 0").await?;
    let found = browser
        .look(
            "(() => {
                const parts = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
                const own = parts.filter((part) => !part.name.includes('/events'));
                return {
                    paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
                    bytes: own.reduce((sum, part) => sum + part.transferSize, 0),
                };
            })()",
        )
        .await?;
    let number = |name: &str| found[name].as_f64().with_context(|| format!("{found}"));
    Ok(Figures { paint_ms: number("paint")?, bytes: number("bytes")? })
}

/// Scrolls from the first task of a page to its end.
async fn scrolls(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let seen = "(() => { const { top, bottom } = document.querySelector('a[rel=next]').getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; })()";
    ensure!(browser.look(seen).await? == json!(false), "a page is longer than the window");
    browser.look("scrollTo(0, document.documentElement.scrollHeight)").await?;
    browser.until(seen).await
}

/// The list continues by pages, each with as many rows as the first, and no task appears twice.
async fn page_by_page(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let ids = "[...document.querySelectorAll('#tasks tbody tr td:first-child a')].map((link) => link.textContent)";
    let mut seen = BTreeSet::new();
    let watch = stopwatch();
    for page in 1..=PAGES {
        let found = browser.look(ids).await?;
        let found = found.as_array().context("rows")?;
        ensure!(found.len() == 100, "page {page} has {} rows", found.len());
        ensure!(found.iter().all(|id| seen.insert(id.to_string())), "page {page} has a task again");
        let last = found.last().context("rows")?.clone();
        browser.press("n").await?;
        browser.until(&format!("!({ids}).includes({last}) && ({ids}).length > 0")).await?;
    }
    say(&format!("dashboard: {PAGES} pages in {:?}", watch()));
    Ok(())
}

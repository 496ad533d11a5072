//! A queue with many tasks: how soon its pages are there, and how large they are.
//!
//! With `LONGHAUL_TEST_DASHBOARD_TASKS=100000` and a release build it gives the figures of `docs/dashboard.md`, and holds them to what was promised.

use super::stage::{PATIENCE, Stage};
use anyhow::{Context, Result, ensure};
use integration_tests::{say, stopwatch, until};
use reqwest::Method;
use serde_json::{Value, json};

/// The variable that says how many tasks there are.
const TASKS: &str = "LONGHAUL_TEST_DASHBOARD_TASKS";

/// What a page may weigh, with its style and its script, and how long it may take to its first paint.
const BYTES_MAX: f64 = 150_000.0;
const PAINT_MS_MAX: f64 = 200.0;

pub(super) async fn many_tasks(stage: &Stage) -> Result<()> {
    let wanted = std::env::var(TASKS).ok().map(|it| it.parse::<usize>()).transpose()?;
    let count = wanted.unwrap_or(2_000);
    for _ in 0..count.div_ceil(1_000) {
        let task = json!({"payload": "one of many", "type": "mail", "tags": ["eu"]});
        let batch = json!({"tasks": vec![task; count.min(1_000)]});
        stage.api(Method::POST, "/tasks:batch", batch).await?;
    }
    until("all are known", PATIENCE, async || {
        let counts = stage.api(Method::GET, "/counts", json!({})).await?;
        Ok(counts["total"].as_u64().is_some_and(|it| it >= count as u64).then_some(()))
    })
    .await?;
    for below in ["/tasks", "", "/tasks?status=completed"] {
        let figures = first_look(stage, below).await?;
        say(&format!("dashboard: {count} tasks, {below:?}: {figures:?}"));
        ensure!(figures.bytes <= BYTES_MAX, "{below:?} is too large: {figures:?}");
        ensure!(
            wanted.is_none() || figures.paint_ms <= PAINT_MS_MAX,
            "{below:?} is too slow: {figures:?}"
        );
    }
    page_by_page(stage).await
}

#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Figures {
    /// Until something is seen, from the click on.
    paint_ms: f64,
    /// Until the whole page has come.
    whole_ms: f64,
    /// Of the page, its style, its script and its icon, as they come over the wire.
    bytes: f64,
}

/// A page as somebody sees it who comes for the first time: nothing of it is kept.
async fn first_look(stage: &Stage, below: &str) -> Result<Figures> {
    let browser = &stage.browser;
    browser.open("about:blank").await?;
    browser.devtools("Network.clearBrowserCache", json!({})).await?;
    stage.open(below).await?;
    browser.until("performance.getEntriesByName('first-contentful-paint').length > 0").await?;
    let found = browser
        .look(
            "(() => {
                const [page] = performance.getEntriesByType('navigation');
                const parts = [page, ...performance.getEntriesByType('resource')].filter((part) => !part.name.includes('/events'));
                return {
                    paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
                    whole: page.responseEnd,
                    bytes: parts.reduce((sum, part) => sum + part.transferSize, 0),
                };
            })()",
        )
        .await?;
    let number = |value: &Value| value.as_f64().with_context(|| format!("{found}"));
    Ok(Figures {
        paint_ms: number(&found["paint"])?,
        whole_ms: number(&found["whole"])?,
        bytes: number(&found["bytes"])?,
    })
}

/// The list goes on by pages, each with as many rows as the first, and none twice.
async fn page_by_page(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let ids = "[...document.querySelectorAll('#tasks tbody tr td:first-child a')].map((link) => link.textContent)";
    stage.open("/tasks").await?;
    let mut seen = std::collections::BTreeSet::new();
    let watch = stopwatch();
    for page in 1..=10 {
        let found = browser.look(ids).await?;
        let found = found.as_array().context("rows")?;
        ensure!(found.len() == 100, "page {page} has {} rows", found.len());
        ensure!(found.iter().all(|id| seen.insert(id.to_string())), "page {page} has a task again");
        let last = found.last().context("rows")?.clone();
        browser.press("n").await?;
        browser.until(&format!("!({ids}).includes({last}) && ({ids}).length > 0")).await?;
    }
    say(&format!("dashboard: 10 pages in {:?}", watch()));
    Ok(())
}

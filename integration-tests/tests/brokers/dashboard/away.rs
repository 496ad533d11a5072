//! A gateway whose broker goes away and comes back, while a user looks at its pages.

use super::stage::{PATIENCE, Stage, gateway};
use anyhow::{Result, ensure};
use integration_tests::sandbox::{Cut, Proxy, Scope, Way, Weather};
use longhaul::Client;
use serde_json::json;
use std::time::Duration;

/// The text in the corner of a page about its connection to the events.
const LIVE: &str = "document.getElementById('live').textContent";

/// Each page of a queue, and its heading.
const PAGES: [(&str, &str); 6] = [
    ("/tasks", "Tasks"),
    ("/dead", "Dead letters"),
    ("/schedules", "Schedules"),
    ("/limits", "Limits"),
    ("/actions", "Actions"),
    ("/workers", "Workers"),
];

pub(super) async fn and_back(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let proxy = Proxy::start(stage.sandbox.service_url(), 1).await?;
    let builder = Client::builder(proxy.service_url());
    let client = builder.admin_url(stage.sandbox.admin().url()).connect().await?;
    let server = gateway(&client, |config| config.broker_grace = Duration::ZERO).await?;
    let queue = format!("{}/ui/queues/{}", server.url(), stage.queue);
    let live = format!("{LIVE} === 'live'");
    // An open page stays, and says what is wrong.
    browser.open(&format!("{queue}/tasks")).await?;
    browser.until(&live).await?;
    browser.devtools("Runtime.evaluate", json!({"expression": "window.kept = 1"})).await?;
    lose(&proxy);
    browser.until(&format!("{LIVE} === 'the broker is away'")).await?;
    browser.until_shown(&stage.failed).await?;
    find(&proxy);
    browser.until(&live).await?;
    ensure!(browser.look("window.kept").await? == json!(1), "the page was loaded anew");
    // A page that is opened meanwhile says that there is no broker, and loads by itself later.
    lose(&proxy);
    browser.until(&format!("{LIVE} === 'the broker is away'")).await?;
    for (below, _) in [("", "")].into_iter().chain(PAGES) {
        browser.open(&format!("{queue}{below}")).await?;
        browser.until_shown("The broker is away").await?;
    }
    find(&proxy);
    let (_, heading) = PAGES[PAGES.len() - 1];
    browser.until(&format!("document.querySelector('h1').textContent === '{heading}'")).await?;
    browser.until(&live).await?;
    ensure!(server.drain(PATIENCE).await, "in order");
    // Requests that were refused meanwhile are no complaint about the pages.
    browser.complaints().await.map(|_| ())
}

/// Breaks the proxy's connections and leaves new ones without an answer.
fn lose(proxy: &Proxy) {
    let held = Way { held: true, ..Way::default() };
    proxy.set(Scope::All, Weather { to_broker: held, to_client: held });
    proxy.cut(Scope::All, Cut { reset: true, ..Cut::default() });
}

fn find(proxy: &Proxy) {
    proxy.set(Scope::All, Weather::default());
}

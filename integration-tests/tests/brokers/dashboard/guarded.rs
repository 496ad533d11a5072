//! Gateways that restrict what users may do.

use super::stage::{PATIENCE, Stage, gateway};
use anyhow::{Result, ensure};
use longhaul_server::{Dashboard, TokenEntry, TokenFile, TokenScope};
use serde_json::json;
use std::collections::BTreeSet;

/// A gateway with tokens: a signed-in user may do what the token permits.
pub(super) async fn by_tokens(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tokens.json");
    let mut tokens = TokenFile::open_or_new(&file)?;
    let token = tokens.create(TokenEntry::new("ann", BTreeSet::from([TokenScope::Read])))?;
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
    Ok(())
}

/// A gateway with a read-only dashboard: no page has a control that changes anything.
pub(super) async fn by_reading_only(stage: &Stage) -> Result<()> {
    let browser = &stage.browser;
    let server = gateway(&stage.client, |config| config.dashboard = Dashboard::ReadOnly).await?;
    let queue = format!("{}/ui/queues/{}", server.url(), stage.queue);
    for below in ["", "/tasks", "/workers", "/dead", "/schedules", "/limits", "/actions"] {
        browser.open(&format!("{queue}{below}")).await?;
        browser.until("document.querySelector('header').innerText.includes('read only')").await?;
        let found = browser.look("document.querySelectorAll('form[method=post]').length").await?;
        ensure!(found == json!(0), "{below} has {found} forms that do something");
    }
    browser.open(&format!("{queue}/tasks/{}", stage.failed)).await?;
    browser.until_shown("Timeline").await?;
    let found = browser.look("document.querySelectorAll('main form, main summary').length").await?;
    ensure!(found == json!(0), "a task has {found} actions");
    ensure!(server.drain(PATIENCE).await, "in order");
    Ok(())
}

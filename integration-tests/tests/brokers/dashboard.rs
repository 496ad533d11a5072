//! The dashboard in a real browser, with a gateway on a real broker: what users see, click and
//! type.
//!
//! One browser runs through all of it. `LONGHAUL_TEST_DASHBOARD_PICTURES` names a folder for a
//! picture of each page, `LONGHAUL_TEST_AXE` the script of axe-core, which then judges each page.

mod acting;
mod away;
mod guarded;
mod large;
mod looking;
mod picture;
mod stage;

use anyhow::Result;
use integration_tests::browser::Browser;
use integration_tests::sandbox::Sandbox;
use stage::Stage;

#[tokio::test]
async fn people_see_and_do_in_a_browser_what_the_pages_say() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let stage = Stage::new(&sandbox, browser).await?;
    let done = play(&stage).await;
    stage.end().await?;
    done
}

async fn play(stage: &Stage) -> Result<()> {
    looking::at_every_page(stage).await?;
    looking::at_something_hostile(stage).await?;
    looking::at_news(stage).await?;
    looking::without_a_script(stage).await?;
    looking::at_the_menu(stage).await?;
    looking::with_keys_alone(stage).await?;
    acting::upon_tasks(stage).await?;
    acting::upon_several_tasks(stage).await?;
    acting::upon_dead_letters(stage).await?;
    acting::upon_a_schedule(stage).await?;
    acting::upon_limits(stage).await?;
    away::and_back(stage).await?;
    acting::upon_a_worker(stage).await?;
    acting::upon_the_queue(stage).await?;
    guarded::by_tokens(stage).await?;
    guarded::by_reading_only(stage).await?;
    large::many_tasks(stage).await
}

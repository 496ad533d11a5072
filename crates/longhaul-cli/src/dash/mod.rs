//! `longhaul dash`: the queues of a gateway, on a terminal.
//!
//! ```text
//! state.rs ── what is shown, and what keys and answers change
//! tables.rs, pulse.rs ── the lists, and the heartbeats of workers
//! view.rs ── draws the state
//! ask.rs ── asks the gateway; screen.rs ── takes the terminal, and gives it back
//! ```
//!
//! State and view are pure. The loop here has no rule of its own: it passes keys, answers and the
//! time to the state, and performs the returned effects. At most one request for a list and one
//! action are in progress.

mod ask;
mod pulse;
mod screen;
mod state;
mod tables;
#[cfg(test)]
mod testing;
mod view;

use crate::clock;
use crate::service::gateway::GatewayClient;
use crate::signals::ShutdownSignals;
use ask::DashboardClient;
use futures::StreamExt;
use futures::future::{BoxFuture, pending};
use ratatui::crossterm::event::{Event, EventStream, KeyEventKind};
use ratatui::widgets::TableState;
use screen::Screen;
use state::{DashboardAction, DashboardData, DashboardEffect, DashboardQuery, DashboardState};
use std::io;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use view::DashboardStyle;

/// How often times are redrawn.
const TICK: Duration = Duration::from_secs(1);

/// The pause before a gateway that refuses is asked again.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// The options of the dashboard.
#[derive(Debug)]
pub(crate) struct DashboardOptions {
    /// The queue whose tasks are shown first.
    pub(crate) queue: Option<String>,
    /// The pause between an answer and the next request.
    pub(crate) every: Duration,
    pub(crate) read_only: bool,
    pub(crate) has_colours: bool,
    /// The reason in the log of actions.
    pub(crate) reason: String,
}

/// The pause before the next request.
enum PollDelay {
    For(Duration),
    After(anyhow::Error),
}

type Round<'a> = BoxFuture<'a, (DashboardQuery, anyhow::Result<DashboardData>)>;
type Acting<'a> = Option<BoxFuture<'a, Result<String, String>>>;

/// Shows the dashboard until the user ends it.
///
/// # Errors
/// When the gateway does not answer the first request, or the terminal cannot be used.
pub(crate) async fn run(gateway: GatewayClient, options: DashboardOptions) -> anyhow::Result<()> {
    let asker = DashboardClient::new(gateway);
    let mut dash = DashboardState::new(options.queue.clone(), options.read_only, clock::wall_ms());
    // An invalid address or queue is reported before the terminal is taken.
    let wanted = dash.wanted();
    let first = asker.ask(&wanted).await?;
    dash.answer(&wanted, Ok(first), clock::wall_ms());
    let mut signals = ShutdownSignals::new()?;
    let mut screen = Screen::open()?;
    Box::pin(show(&asker, &mut dash, &mut screen, &mut signals, &options)).await?;
    Ok(())
}

async fn show(
    asker: &DashboardClient,
    dash: &mut DashboardState,
    screen: &mut Screen,
    signals: &mut ShutdownSignals,
    options: &DashboardOptions,
) -> io::Result<()> {
    let mut keys = EventStream::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut scroll = TableState::new();
    let mut acting: Acting<'_> = None;
    let mut round = next_round(asker, dash.wanted(), PollDelay::For(options.every));
    loop {
        let look = DashboardStyle {
            gateway: asker.gateway.at().to_string(),
            has_colours: options.has_colours,
        };
        screen.draw(|frame| view::draw(frame, dash, &look, &mut scroll))?;
        tokio::select! {
            () = signals.next() => return Ok(()),
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => match dash.key(key) {
                    Some(DashboardEffect::Quit) => return Ok(()),
                    Some(DashboardEffect::Look) => round = next_round(asker, dash.wanted(), PollDelay::For(Duration::ZERO)),
                    Some(DashboardEffect::Do(act)) => acting = Some(act_upon(asker, act, &options.reason)),
                    None => {}
                },
                // A new size is drawn; other events are ignored.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            outcome = acted(&mut acting) => {
                acting = None;
                dash.outcome(outcome, clock::wall_ms());
                round = next_round(asker, dash.wanted(), PollDelay::For(Duration::ZERO));
            }
            (wanted, answer) = &mut round => {
                let (answer, rest) = match answer {
                    Ok(answer) => {
                        asker.gateway.back();
                        (Ok(answer), PollDelay::For(options.every))
                    }
                    Err(error) => (Err(ask::trouble(&error)), PollDelay::After(error)),
                };
                dash.answer(&wanted, answer, clock::wall_ms());
                round = next_round(asker, dash.wanted(), rest);
            }
            _ = ticks.tick() => dash.tick(clock::wall_ms()),
        }
    }
}

/// Requests a list after its pause.
fn next_round(asker: &DashboardClient, wanted: DashboardQuery, rest: PollDelay) -> Round<'_> {
    Box::pin(async move {
        match rest {
            PollDelay::For(time) => tokio::time::sleep(time).await,
            PollDelay::After(failure) => {
                if asker.gateway.pause(failure).await.is_err() {
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
        let answer = asker.ask(&wanted).await;
        (wanted, answer)
    })
}

fn act_upon<'a>(
    asker: &'a DashboardClient,
    act: DashboardAction,
    reason: &'a str,
) -> BoxFuture<'a, Result<String, String>> {
    Box::pin(async move { ask::act(&asker.gateway, &act, reason).await })
}

/// The result of the action in progress, if there is one.
async fn acted(acting: &mut Acting<'_>) -> Result<String, String> {
    match acting {
        Some(acting) => acting.await,
        None => pending().await,
    }
}

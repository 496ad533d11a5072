//! The web dashboard of longhaul's gateway.
//!
//! Its pages are made of what the gateway's public routes answer, and of nothing else: this crate
//! knows no client, no topic and no task, only an [`axum::Router`] that serves `/v1`, which it
//! calls in the same process, with the caller's token and behind the same checks. So whatever a
//! page shows a program can ask for, and nobody sees or does more here than by the API.
//!
//! Every page is complete without scripts. A script of some hundred lines follows the queue's
//! events and replaces the parts of a page that have changed.

mod api;
mod asked;
mod assets;
mod model;
mod pages;
mod parts;
mod session;
mod shown;
mod trouble;
mod visit;

use api::Api;
use axum::Router;
use axum::routing::get;
use std::sync::Arc;

/// Where the dashboard is served.
pub const ROOT: &str = "/ui";

/// How a dashboard is served.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UiOptions {
    /// It shows, and changes nothing.
    pub read_only: bool,
    /// It is reached by TLS: browsers send its cookie by nothing else.
    pub has_tls: bool,
}

/// What all requests share.
#[derive(Clone)]
struct Ui {
    api: Api,
    options: UiOptions,
}

/// The routes of the dashboard, at [`ROOT`] and below; `/` leads there. `api` serves the gateway's
/// public routes, with all of its checks.
pub fn router(api: Router, options: UiOptions) -> Router {
    let ui = Arc::new(Ui { api: Api::new(api), options });
    let pages = pages::routes().merge(session::routes()).merge(assets::routes()).with_state(ui);
    let root = || get(async || visit::to(ROOT));
    Router::new().route("/", root()).route(&format!("{ROOT}/"), root()).nest(ROOT, pages)
}

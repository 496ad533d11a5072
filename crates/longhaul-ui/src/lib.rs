//! The web dashboard of longhaul's gateway.
//!
//! Its pages are made only from the answers of the gateway's public routes. This crate knows no
//! client, topic or task, only an [`axum::Router`] that serves `/v1`. It calls the router in the
//! same process, with the caller's token and all checks. So a program can get everything that a
//! page shows, and nobody sees or does more here than through the API.
//!
//! Every page is complete without scripts. A script of some hundred lines follows the queue's
//! events and replaces the parts of a page that have changed.

mod api;
mod asked;
mod assets;
mod pages;
mod parts;
mod session;
mod shown;
mod trouble;
mod visit;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use std::sync::Arc;
use tower_http::compression::CompressionLayer;

/// The path of the dashboard.
pub const ROOT: &str = "/ui";

/// The options of a dashboard.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UiOptions {
    /// Show everything, without actions.
    pub read_only: bool,
    /// The gateway is reached by TLS: the cookie is sent only over TLS.
    pub has_tls: bool,
}

/// The state shared by all requests.
#[derive(Clone)]
struct Ui {
    /// The gateway's public routes.
    routes: Router,
    options: UiOptions,
}

/// The routes of the dashboard, at [`ROOT`] and below; `/` redirects there. `api` serves the
/// gateway's public routes, with all its checks.
pub fn router(api: Router, options: UiOptions) -> Router {
    let ui = Arc::new(Ui { routes: api, options });
    let with_errors = from_fn_with_state(Arc::clone(&ui), visit::with_error_page);
    let pages = pages::routes().merge(session::routes()).merge(assets::routes());
    let pages = pages.layer(with_errors).with_state(ui);
    let root = || get(async || visit::to(ROOT));
    let all = Router::new().route("/", root()).route(&format!("{ROOT}/"), root()).nest(ROOT, pages);
    // A list of a hundred tasks is a tenth as large. No other site can have a page made with its
    // own text beside a secret one: the cookie is not sent from there.
    all.layer(CompressionLayer::new())
}

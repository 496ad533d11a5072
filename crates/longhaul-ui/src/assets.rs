//! The style, the script and the icon, compiled into the program. Their URLs contain a hash of the
//! content, so that browsers may cache them.

use crate::{ROOT, Ui};
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 3] = [
    Asset {
        name: "ui.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../assets/ui.css"),
    },
    Asset {
        name: "ui.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("../assets/ui.js"),
    },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("../assets/icon.svg") },
];

/// Changes with any asset. It identifies a version and is not a security measure.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    for asset in &ASSETS {
        asset.text.hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
});

pub(crate) fn routes() -> Router<Arc<Ui>> {
    Router::new().route("/assets/{version}/{name}", get(serve))
}

pub(crate) fn place(name: &str) -> String {
    format!("{ROOT}/assets/{}/{name}", *VERSION)
}

async fn serve(Path((version, name)): Path<(String, String)>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A gateway of another version may have rendered the page: its assets must be requested again.
    let keep = if version == *VERSION { "public, max-age=31536000, immutable" } else { "no-store" };
    ([(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, keep)], asset.text).into_response()
}

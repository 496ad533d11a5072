//! The routes of the native API, one file per resource.

mod health;

use crate::route::Route;

/// All of them.
pub(crate) fn routes() -> Vec<Route> {
    [health::routes()].into_iter().flatten().collect()
}

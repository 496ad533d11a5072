//! The gateway on a real socket: the layer between the network and the routes.

#![expect(clippy::unwrap_used, reason = "helpers of tests end the test where something is wrong")]

mod browsers;
mod connections;
mod limits;
mod lingering;
mod rates;
mod support;
mod tls;
mod tokens;

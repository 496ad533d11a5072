//! The gateway on a real socket: what stands between the network and the routes.

mod connections;
mod support;

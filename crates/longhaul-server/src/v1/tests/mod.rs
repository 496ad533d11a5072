//! The native API on an in-memory engine.

mod acting;
mod allowed;
mod authorization;
mod bodies;
mod contract;
mod cut_off;
mod dashboard;
mod draining;
mod hiding;
mod leasing;
mod logging;
mod named;
mod promises;
mod reading;
mod streaming;
mod submitting;
mod verbatim;
mod webhooks;
mod wrong;

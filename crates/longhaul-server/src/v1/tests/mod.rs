//! The native API on an engine in memory.

mod acting;
mod allowed;
mod bodies;
mod cut_off;
mod dashboard;
mod draining;
mod hiding;
mod leasing;
mod logging;
mod named;
mod streaming;
mod submitting;
mod wrong;

//! The native API on an engine in memory.

mod acting;
mod allowed;
mod streaming;
mod submitting;
mod wrong;

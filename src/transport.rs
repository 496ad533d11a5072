//! The interface to a broker, re-exported from its own crate.

pub use longhaul_transport::*;

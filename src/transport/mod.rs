//! What longhaul stands on: the seam to a broker, which is a crate of its own, and the session behind it.

pub mod session;

pub use longhaul_transport::*;

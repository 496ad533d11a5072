//! The seam to a broker, which is a crate of its own.

pub use longhaul_transport::*;

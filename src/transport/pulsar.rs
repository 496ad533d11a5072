//! The transport on the crate `pulsar`.

//! Workers.

#[cfg(not(feature = "testing"))]
mod machine;
#[cfg(feature = "testing")]
pub mod machine;

//! Workers.

#[cfg(not(feature = "testing"))]
mod machine;
#[cfg(feature = "testing")]
pub mod machine;
#[cfg(not(feature = "testing"))]
mod partition;
#[cfg(feature = "testing")]
pub mod partition;

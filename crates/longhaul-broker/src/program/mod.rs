//! What the program takes from its command line.

pub(crate) mod arguments;
mod token;
mod units;

//! What the program takes from its command line.

pub(crate) mod arguments;
mod rescue;
mod token;
mod units;

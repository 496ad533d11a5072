//! What the program takes from its command line.

pub(crate) mod arguments;
#[cfg(test)]
mod pages;
mod rescue;
mod token;
mod units;

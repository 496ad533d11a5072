//! `longhaul worker run --exec` with real programs, on the embedded broker.

mod ends;
mod fleet;
mod groups;
mod hours;
mod programs;
mod reports;
mod stage;

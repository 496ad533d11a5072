//! The program `longhaul`.

fn main() {}

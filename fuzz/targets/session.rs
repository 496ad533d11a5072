//! See `longhaul_fuzz::session::session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::session::session(input));

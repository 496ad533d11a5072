//! See `longhaul_fuzz::wire::batches`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::wire::batches(input));

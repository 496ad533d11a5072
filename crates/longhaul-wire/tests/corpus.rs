//! Runs the checks of the fuzz targets on their seeds and findings, and on damaged copies of them.
//! The fuzzer itself needs a nightly compiler, see `fuzz/README.md`.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may fail as tests do"
)]

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(dead_code, unreachable_pub, reason = "the other half stores what was found")]
mod corpus;
#[path = "recorded/recording.rs"]
#[expect(dead_code, reason = "the other half records")]
mod recording;
#[path = "../../../fuzz/src/wire.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets are other crates")]
mod wire;

use bytes::Bytes;
use recording::Recording;
use std::path::Path;

/// Changes per undamaged input.
const CHANGES: usize = 24;

/// Runs a check on all inputs of its target.
#[track_caller]
fn check(target: &str, check: fn(&[u8])) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stored = here.join(format!("../../fuzz/corpus/{target}.corpus"));
    let found = corpus::unpack(&std::fs::read(stored).unwrap()).unwrap();
    let seeds = corpus::seeds(target, &frames());
    assert!(!found.is_empty() && !seeds.is_empty(), "the inputs are there");
    found.iter().chain(&seeds).for_each(|input| check(input));
    for seed in &seeds {
        for turn in 0..CHANGES {
            // A different offset in each turn, so that the seeds together cover all offsets.
            let at = (turn * 37 + seed.len() * 13) % seed.len();
            check(&seed[..at]);
            let mut changed = seed.clone();
            changed[at] ^= 1 << (turn % 8);
            check(&changed);
            changed[at] = [0, 1, 0x7f, 0x80, 0xff][turn % 5];
            check(&changed);
            changed.remove(at);
            check(&changed);
        }
    }
}

fn frames() -> Vec<Bytes> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "frames") {
            let recording = Recording::unpack(&std::fs::read(path).unwrap()).unwrap();
            frames.extend(recording.frames().iter().map(|(_, bytes)| bytes.clone()));
        }
    }
    frames
}

#[test]
fn frames_of_the_corpus() {
    check("frames", wire::frames);
}

#[test]
fn payload_of_the_corpus() {
    check("payload", wire::payload);
}

#[test]
fn batches_of_the_corpus() {
    check("batches", wire::batches);
}

#[test]
fn decompression_of_the_corpus() {
    check("decompression", wire::decompression);
}

//! The files of `docker/` and `packaging/`: what can be said of them without an engine, a cluster or an init.
//!
//! The rules are those of hadolint and of the field that matter here. Each has a planted fault that it finds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod alerts;
mod compose;
mod dockerfile;
mod kubernetes;
mod packages;
mod parts;
mod units;

use serde_json::Value;
use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// How deep merges stand in each other, at most.
const MERGES_DEEP: usize = 3;

/// The documents of a YAML file, with its anchors and merges resolved.
fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text).map(|document| {
        let mut value: serde_yaml_ng::Value = serde::Deserialize::deserialize(document).unwrap();
        // What is merged may merge something itself.
        for _ in 0..MERGES_DEEP {
            value.apply_merge().unwrap();
        }
        serde_json::to_value(value).unwrap()
    });
    documents.collect()
}

/// What is wrong with the name of an image: it must say which one, and not the newest.
fn image_fault(image: &str) -> Option<String> {
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':'));
    match tag {
        _ if image.contains("@sha256:") => None,
        None => Some(format!("{image} has no tag")),
        Some((_, tag)) if tag.starts_with(|first: char| first.is_ascii_digit()) => None,
        Some((_, tag)) => Some(format!("{image}: `{tag}` is no version")),
    }
}

/// Seconds of `45s`, `11m`, `2h`.
fn seconds(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => panic!("{text}: {other} is no unit"),
    };
    number.parse::<u64>().unwrap() * unit
}

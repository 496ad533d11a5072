//! Tests that the pictures of `docs/concepts.md` show the real behaviour of workers. Whole workers
//! run on the in-memory broker in paused time, and the pictures are drawn from their reads and
//! writes.
//!
//! With `LONGHAUL_WRITE_DOCS=1` the tests write the pictures instead of comparing them.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed, and looks at some rows alone"
)]

mod draw;
mod scene;

use longhaul_core::protocol::fold::IgnoredReason;
use scene::{Play, Row, What};
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures");

/// Compares the picture with that of the page, or writes it. Returns its rows.
#[track_caller]
fn check(name: &str, title: &str, play: Play) -> Vec<Row> {
    let rows = scene::run(play);
    assert_eq!(rows, scene::run(play), "another run shows something else");
    let picture = draw::svg(title, &rows);
    let path = Path::new(FOLDER).join(name);
    if std::env::var_os("LONGHAUL_WRITE_DOCS").is_some() {
        std::fs::write(&path, &picture).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == picture, "{name} is out of date: LONGHAUL_WRITE_DOCS=1 writes it anew");
    rows
}

/// The texts of the entries that a worker stored on the ledger or on the metadata topic.
fn stored(rows: &[Row], by: usize, on: usize) -> Vec<&str> {
    let of =
        |row: &&Row| matches!(row.what, What::Stores { by: b, on: o, .. } if b == by && o == on);
    rows.iter().filter(of).map(|row| row.text.as_str()).collect()
}

/// The entries without effect.
fn ignored(rows: &[Row]) -> Vec<(usize, IgnoredReason)> {
    let reason = |row: &Row| match row.what {
        What::Stores { by, ignored: Some(reason), .. } => Some((by, reason)),
        _ => None,
    };
    rows.iter().filter_map(reason).collect()
}

#[test]
fn a_claim_is_read_back_before_the_task_runs() {
    let rows = check("claim.svg", "A task is claimed, and its claim is read back", Play::Claim);
    assert!(ignored(&rows).is_empty(), "{rows:?}");
    let at = |is: &dyn Fn(&Row) -> bool| rows.iter().position(is).unwrap();
    let claimed = at(&|row| row.text.starts_with("claim"));
    let read = at(&|row| matches!(row.what, What::Reads { on: scene::LEDGER, .. }));
    let begun = at(&|row| row.what == What::Begins { who: scene::A });
    assert!(claimed < read && read < begun, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| matches!(row.what, What::Begins { .. })).count(), 1);
}

#[test]
fn a_dead_worker_is_replaced() {
    let rows =
        check("takeover.svg", "A worker dies, and another one takes its task over", Play::Takeover);
    assert!(ignored(&rows).is_empty(), "{rows:?}");
    let entries = stored(&rows, scene::B, scene::LEDGER);
    assert!(entries.first().is_some_and(|text| text.contains("claim: epoch 2")), "{entries:?}");
    let shown = stored(&rows, scene::B, scene::METADATA);
    assert!(shown.last().is_some_and(|text| text.contains("COMPLETED")), "{shown:?}");
}

#[test]
fn what_a_zombie_writes_has_no_effect() {
    let rows =
        check("zombie.svg", "A worker freezes, and is replaced before it goes on", Play::Zombie);
    assert_eq!(ignored(&rows), [(scene::A, IgnoredReason::Fenced)], "{rows:?}");
    let shown = stored(&rows, scene::B, scene::METADATA);
    assert!(shown.last().is_some_and(|text| text.contains("COMPLETED")), "{shown:?}");
}

//! Descriptions of states for people.

use super::bounds::Bounds;
use super::world::{Worker, World, task_id};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::key::{Key, OnceKey};

/// Describes a state over several lines.
pub fn show(bounds: &Bounds, world: &World) -> String {
    let mut text = String::new();
    let log: Vec<_> = world
        .log
        .iter()
        .map(|record| {
            let mark = if record.removed { "-" } else { "" };
            format!("{mark}{}", entry(&record.entry))
        })
        .collect();
    text += &format!("       ledger: {}\n", log.join(" "));
    for (number, state) in world.workers.iter().enumerate() {
        let frozen = if world.steps(number) { "" } else { " (frozen or gone)" };
        text += &format!("       worker {number}{frozen}: {}\n", worker(bounds, state));
    }
    for ghost in &world.ghosts {
        let entries: Vec<_> = ghost.iter().map(entry).collect();
        text += &format!("       ghost: {}\n", entries.join(" "));
    }
    text += &format!("       messages: {:?}, stored {}", world.messages, world.stored);
    text
}

fn worker(bounds: &Bounds, state: &Worker) -> String {
    let out: Vec<_> = state.out.iter().map(entry).collect();
    let owner = state.machine.owner().0;
    let mut text = format!("owner {owner}, reads {}/{}", state.cursor, state.end);
    text += &format!(", out [{}]", out.join(" "));
    if !state.effects.is_empty() {
        text += &format!(", {:?}", state.effects);
    }
    if state.draining {
        text += ", draining";
    }
    for task in 0..bounds.tasks {
        let Some(known) = state.machine.task(task_id(bounds, task)) else { continue };
        let fold = &known.fold;
        text += &format!(
            "; task {task}: e{} a{} by {} {:?}{} {:?}",
            fold.epoch,
            fold.attempt,
            fold.owner.0,
            fold.phase,
            if fold.cancel { " cancel" } else { "" },
            known.stage,
        );
        for (flag, name) in [(known.held, "held"), (known.payload, "payload")] {
            if flag {
                text += &format!(" {name}");
            }
        }
    }
    text
}

pub(super) fn entry(entry: &Entry) -> String {
    match entry {
        Entry::Claim(claim) => {
            format!("claim:{:?}({} a{})", claim.kind, key(&claim.key), claim.attempt)
        }
        Entry::Done(done) => format!("done:{:?}({})", done.outcome, key(&done.key)),
        Entry::Checkpoint(of) => format!("ckpt({})", key(of)),
        Entry::Renewal(renewal) => format!("keep({})", key(&renewal.key)),
        Entry::Tombstone(Key::Once(of)) => format!("tombstone({})", key(of)),
        Entry::Tombstone(of) => format!("tombstone({of})"),
        Entry::Cancel(task) => format!("cancel({task})"),
        Entry::Seal(seal) => {
            let ranges: Vec<_> = seal
                .entries
                .ranges()
                .map(|range| format!("{}..={}", range.first, range.last))
                .collect();
            format!("seal({} by {} #{})", ranges.join(","), seal.key.owner.0, seal.key.serial)
        }
        Entry::Heartbeat(beat) => format!("hb({} #{})", beat.owner.0, beat.number),
        Entry::Config(_) => format!("{entry:?}"),
    }
}

fn key(key: &OnceKey) -> String {
    format!("{} e{} by {} #{}", key.task, key.epoch, key.owner.0, key.serial)
}

//! States in a form for persons.

use super::bounds::Bounds;
use super::world::{Worker, World, task_id};
use longhaul::protocol::entry::Entry;
use longhaul::protocol::key::{Key, OnceKey};
use std::fmt::Write;

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
    let _ = writeln!(text, "       ledger: {}", log.join(" "));
    for (number, state) in world.workers.iter().enumerate() {
        let frozen = if world.steps(number) { "" } else { " (frozen or gone)" };
        let _ = writeln!(text, "       worker {number}{frozen}: {}", worker(bounds, state));
    }
    for ghost in &world.ghosts {
        let entries: Vec<_> = ghost.iter().map(entry).collect();
        let _ = writeln!(text, "       ghost: {}", entries.join(" "));
    }
    let _ = write!(text, "       messages: {:?}, stored {}", world.messages, world.stored);
    text
}

fn worker(bounds: &Bounds, state: &Worker) -> String {
    let out: Vec<_> = state.out.iter().map(entry).collect();
    let owner = state.machine.owner().0;
    let mut text = format!("owner {owner}, reads {}/{}", state.cursor, state.end);
    let _ = write!(text, ", out [{}]", out.join(" "));
    if let Some(second) = state.second {
        let _ = write!(text, ", second {second:?}");
    }
    if !state.effects.is_empty() {
        let _ = write!(text, ", {:?}", state.effects);
    }
    for (flag, name) in [(state.stale, "stale"), (state.draining, "draining")] {
        if flag {
            let _ = write!(text, ", {name}");
        }
    }
    for task in 0..bounds.tasks {
        let Some(known) = state.machine.task(task_id(bounds, task)) else { continue };
        let fold = &known.fold;
        let _ = write!(
            text,
            "; task {task}: e{} a{} by {} {:?}{} {:?}",
            fold.epoch,
            fold.attempt,
            fold.owner.0,
            fold.phase,
            if fold.cancel { " cancel" } else { "" },
            known.stage,
        );
        for (flag, name) in [(known.held, "held"), (known.live, "live"), (known.payload, "payload")]
        {
            if flag {
                let _ = write!(text, " {name}");
            }
        }
    }
    text
}

fn entry(entry: &Entry) -> String {
    match entry {
        Entry::Claim(claim) => {
            format!("claim:{:?}({} a{})", claim.kind, key(&claim.key), claim.attempt)
        }
        Entry::Done(done) => format!("done:{:?}({})", done.outcome, key(&done.key)),
        Entry::Checkpoint(of) => format!("ckpt({})", key(of)),
        Entry::Tombstone(Key::Once(of)) => format!("tombstone({})", key(of)),
        Entry::Tombstone(of) => format!("tombstone({of})"),
        Entry::Cancel(task) => format!("cancel({task})"),
        Entry::Heartbeat(_) | Entry::Config(_) => format!("{entry:?}"),
    }
}

fn key(key: &OnceKey) -> String {
    format!("{} e{} by {} #{}", key.task, key.epoch, key.owner.0, key.serial)
}

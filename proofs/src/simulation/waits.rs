//! Tasks that wait for others: none starts before the tasks that its message names are over, by the
//! ledger and the times of its entries.

use super::checks::{Book, Evidence};
use super::script::Start;
use longhaul_core::protocol::invariants as ids;

pub(super) fn check(
    evidence: &Evidence<'_>,
    book: &Book,
    starts: &[Start],
    found: &mut Vec<String>,
) {
    for Start { task, epoch, at, .. } in starts {
        for first in evidence.script(*task).unwrap_or_default().after {
            let ended = book.stories.get(&first).and_then(|story| story.ended.as_ref());
            if ended.is_none_or(|(ended, ..)| ended > at) {
                let id = ids::AFTER;
                found.push(format!(
                    "{id}: task {task} epoch {epoch} started before {first} was over"
                ));
            }
        }
    }
}

/// The number of attempts at tasks that had waited for others.
pub(super) fn count(evidence: &Evidence<'_>, starts: &[Start]) -> usize {
    let waited = |start: &&Start| !evidence.script(start.task).unwrap_or_default().after.is_empty();
    starts.iter().filter(waited).count()
}

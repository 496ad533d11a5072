//! What has happened, as text.

use super::notes::Done;
use super::world::{World, register};
use longhaul::TaskMetadata;
use std::time::Duration;

impl World<'_> {
    /// The ledgers, the register, the runs and the acts, by time.
    pub(super) fn history(&self, done: &Done) -> String {
        let mut lines: Vec<(Duration, String)> = Vec::new();
        let ledgers = self.topics().flat_map(|topic| self.log(&format!("{topic}-ledger")));
        for message in ledgers.chain(self.broker().full_log(&register())) {
            let at = self.since_start(message.publish_time_ms);
            let gone = if message.null { "gone: " } else { "" };
            let key = message.key.unwrap_or_default();
            lines.push((at, format!("{gone}{key} {:?}", message.properties)));
        }
        for (id, entries) in self.shown() {
            let line = |(at_ms, it): (u64, TaskMetadata)| {
                (
                    self.since_start(at_ms),
                    format!("{id} is shown as {:?} {:?}", it.state, it.outcome),
                )
            };
            lines.extend(entries.into_iter().map(line));
        }
        let id = |number: usize| done.placed.get(&number).map(|it| it.id().to_string());
        for run in &done.runs {
            let (task, script) = (id(run.number), &done.scripts[run.number]);
            lines.push((run.begin, format!("{task:?} runs at {:?}: {script:?}", run.worker)));
            lines.extend(run.end.map(|end| (end, format!("{task:?} ends at {:?}", run.worker))));
        }
        lines.extend(done.acts.iter().map(|(task, act, at)| (*at, format!("{act:?} {task}"))));
        lines.extend(done.troubles.iter().map(|it| (it.begin, "the broker fails".to_owned())));
        lines.extend(done.disturbed.iter().map(|at| (*at, "the fleet changes".to_owned())));
        lines.sort();
        let line = |(at, what): &(Duration, String)| format!("{:9.3} {what}\n", at.as_secs_f64());
        lines.iter().map(line).collect()
    }
}

//! Takes a migration back, and closes tasks at both ends.

use super::ends::{Level, MigrationRound, is_open, runs, tasks_of};
use super::plan::{MigrationNote, first, stands};
use super::steps::{Migration, PAUSED_AFTER, TOGETHER_MAX, changed};
use crate::exit::{Code, CommandFailure};
use futures::future::try_join_all;
use longhaul::migration::QueueTask;
use longhaul::ops::TaskInfo;
use std::collections::BTreeMap;
use tokio::time::sleep;

/// How often tasks are closed without success, because they change meanwhile.
const FAILURES_MAX: usize = 3;

impl Migration {
    /// Takes back a migration that does not close yet: it deletes the copies and resumes both queues.
    pub(super) async fn back(&self) -> anyhow::Result<()> {
        let own = self.source.queue().identity().await?;
        if !self.target.exists().await? {
            return Err(
                CommandFailure::not_found(format!("there is no {}", self.target.place)).into()
            );
        }
        let theirs = self.target.queue().identity().await?;
        let ((settings, from), (_, to)) = (self.source.look().await?, self.target.look().await?);
        let mark = self.own_mark((&own, &theirs), (from.clone(), to))?;
        if from.is_none() && mark.is_none() {
            let what = format!("no migration to {} is unfinished", self.target.place);
            return Err(CommandFailure::new(Code::Conflict, what).into());
        }
        if self.done().closes {
            let what = "all tasks are copied, and are being closed at the source";
            let help = "run the command without --back: it ends soon. Then the queue can be moved \
                back by another migration";
            return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
        }
        self.done().has_begun = true;
        self.source.write("its migration is taken back", true, from.as_ref(), None).await?;
        if let Some(mark) = mark {
            let note = MigrationNote::From(mark.clone());
            self.target.write("a migration is taken back", true, Some(&note), None).await?;
            sleep(PAUSED_AFTER).await;
            let source = self.source.levels().await?;
            let mut round = self.read(mark, settings.expires_after, source).await?;
            self.find_copies(&mut round).await?;
            self.take_back(&round).await?;
            self.target.write("a migration was taken back", false, None, None).await?;
        }
        self.source.write("its migration was taken back", false, None, None).await?;
        self.count_open(&self.source.levels().await?)
    }

    /// Deletes the copies that have not begun. Somebody may have resumed the target: the tasks
    /// whose copies have begun are closed at the source.
    pub(super) async fn take_back(&self, round: &MigrationRound) -> anyhow::Result<()> {
        let reason = "its task stays at the source, or has ended there";
        self.delete(round, reason, |_| Ok(true)).await?;
        let mut closing = BTreeMap::new();
        for copy in &round.copies {
            if round.at_target(&copy.task)?.is_some_and(|(_, info)| stands(&info)) {
                closing.insert(copy.old, self.moved_as(&copy.task));
            }
        }
        self.close(round, &closing).await
    }

    /// Deletes waiting copies.
    pub(super) async fn delete(
        &self,
        round: &MigrationRound,
        reason: &str,
        is: impl Fn(QueueTask) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let left = || {
            let mut left = Vec::new();
            for (old, level, info) in round.waiting()? {
                if is(old)? {
                    left.push((old, level, info, reason));
                }
            }
            Ok(left)
        };
        self.close_all(round, "at the target", left, |_| ()).await
    }

    /// Closes tasks at the source, for these reasons.
    pub(super) async fn close(
        &self,
        round: &MigrationRound,
        closing: &BTreeMap<QueueTask, String>,
    ) -> anyhow::Result<()> {
        let left = || {
            let open = tasks_of(&round.source, is_open)?.into_iter();
            Ok(open
                .filter(|(_, (_, info))| !runs(info.status))
                .filter_map(|(old, (level, info))| {
                    Some((old, level, info, closing.get(&old)?.as_str()))
                })
                .collect())
        };
        let progress = self.output.progress(closing.len() as u64);
        let closed = |old| {
            let mut done = self.done();
            let done = &mut *done;
            let is_moved = !round.without_copy.contains_key(&old);
            *if is_moved { &mut done.moved } else { &mut done.ended_without_copy } += 1;
            progress.set(done.moved, closing.len() as u64, "closed at the source");
        };
        self.close_all(round, "at the source", left, closed).await?;
        let running = tasks_of(&round.source, runs)?.into_keys();
        match running.filter(|old| closing.contains_key(old)).count() {
            0 => Ok(()),
            count => Err(changed(count, "at the source")),
        }
    }

    /// Closes tasks until none of them is left, those first that no other one waits for.
    async fn close_all<'a>(
        &self,
        round: &MigrationRound,
        place: &str,
        left: impl Fn() -> anyhow::Result<Vec<(QueueTask, &'a Level, TaskInfo, &'a str)>>,
        closed: impl Fn(QueueTask),
    ) -> anyhow::Result<()> {
        let mut failures = 0;
        loop {
            let left = left()?;
            if left.is_empty() {
                return Ok(());
            } else if failures >= FAILURES_MAX {
                return Err(changed(left.len(), place));
            }
            let first = first(&left.iter().map(|(old, ..)| *old).collect(), &round.open);
            let (wave, mut count) = (left.iter().filter(|(old, ..)| first.contains(old)), 0);
            for some in wave.collect::<Vec<_>>().chunks(TOGETHER_MAX) {
                self.check().await?;
                let close = some.iter().map(|(_, level, info, reason)| {
                    level.queue.delete_seen(&level.view, info, reason)
                });
                for ((old, ..), is_closed) in some.iter().zip(try_join_all(close).await?) {
                    if is_closed {
                        count += 1;
                        closed(*old);
                    }
                }
            }
            failures = if count == 0 { failures + 1 } else { 0 };
        }
    }
}

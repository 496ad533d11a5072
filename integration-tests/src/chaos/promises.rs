//! The promises made to each task's submitter, and whether they were kept, by the task topic, the
//! journals, the ledger and the metadata topic.
//!
//! A message carries its promises in a header that no worker reads, besides the properties that
//! workers read. So a message without those properties is a planted fault: its promises are broken,
//! and the judge must find that. Pure.

use anyhow::{Context, Result};
use longhaul::{TaskId, TaskMetadata};
use longhaul_core::protocol::fold::Phase;
use longhaul_transport::Message;
use proofs::checkers::Run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The header.
pub(super) const HEADER: &str = "promises";

/// The key prefix of tasks submitted by a schedule.
const FIRED: &str = "schedule/";

/// A promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Promise {
    /// It completes with this result.
    Result(String),
    /// No run starts before this time.
    NotBefore(u64),
    /// It expired before it was submitted, so it never runs.
    Never,
    /// No run starts before these tasks are over; if one of them has no result it fails (`fail`),
    /// is cancelled (`skip`), or runs (`run`).
    After(Vec<String>, String),
    /// Exactly one of the tasks with this key runs and completes, and the others name it.
    Once(String),
    /// No two tasks with this key are active at the same time, and none is closed for one whose end
    /// was already shown.
    OneAtATime(String),
    /// The entry with its end has these tags.
    Tags(Vec<String>),
    /// It has no more attempts than this.
    Attempts(u32),
    /// Its key has few tickets, and it completes all the same.
    Limited,
}

impl Promise {
    /// Its name in figures and findings.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Result(_) => "result",
            Self::NotBefore(_) => "not_before",
            Self::Never => "never",
            Self::After(..) => "after",
            Self::Once(_) => "once",
            Self::OneAtATime(_) => "one_at_a_time",
            Self::Tags(_) => "tags",
            Self::Attempts(_) => "attempts",
            Self::Limited => "limited",
        }
    }
}

/// A task's fate.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    pub(super) promises: Vec<Promise>,
    pub(super) published_ms: u64,
    /// Its real runs, by the journals of the workers.
    pub(super) runs: Vec<Run>,
    /// When its first accepted claim with a run was published.
    pub(super) claimed_ms: Option<u64>,
    pub(super) end: Option<End>,
    /// The first entry with its end, and its publish time.
    pub(super) shown: Option<(u64, TaskMetadata)>,
}

/// The accepted ledger entry that ends a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) published_ms: u64,
    pub(super) phase: Phase,
}

impl Fate {
    /// From a message on the task topic.
    pub(super) fn of(message: &Message) -> Result<Self> {
        let mut promises = match message.properties.get(HEADER) {
            Some(text) => serde_json::from_str(text).with_context(|| text.to_owned())?,
            None => Vec::new(),
        };
        // Each time of a schedule is a key, under which any worker may have submitted.
        let key = message.properties.get("IDEMPOTENCY_KEY");
        let fired = key.filter(|key| key.starts_with(FIRED));
        promises.extend(fired.map(|key| Promise::Once(key.to_owned())));
        Ok(Self { promises, published_ms: message.publish_time_ms, ..Self::default() })
    }

    fn phase(&self) -> Option<Phase> {
        self.end.map(|end| end.phase)
    }

    fn result(&self) -> Option<String> {
        let result = self.shown.as_ref()?.1.result.as_deref()?;
        Some(String::from_utf8_lossy(result).into_owned())
    }

    /// The key of the time of a schedule that it was submitted for.
    pub(super) fn fired(&self) -> Option<&str> {
        self.promises.iter().find_map(|promise| {
            let Promise::Once(key) = promise else { return None };
            key.starts_with(FIRED).then_some(key.as_str())
        })
    }

    fn duplicate_of(&self) -> Option<TaskId> {
        self.shown.as_ref()?.1.duplicate_of.as_ref()?.parse().ok()
    }
}

/// A broken promise, by its name.
pub(super) type Broken = (&'static str, String);

/// Checks all promises of all ended tasks.
pub(super) fn judge(fates: &BTreeMap<TaskId, Fate>) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut keys: BTreeMap<&Promise, Vec<(TaskId, &Fate)>> = BTreeMap::new();
    for (id, fate) in fates {
        for promise in &fate.promises {
            if matches!(promise, Promise::Once(_) | Promise::OneAtATime(_)) {
                keys.entry(promise).or_default().push((*id, fate));
            } else if let Err(why) = judge_alone(promise, fate, fates) {
                broken.push((promise.name(), format!("task {id}: {why}")));
            }
        }
    }
    for (promise, tasks) in keys {
        let found = if matches!(promise, Promise::Once(_)) {
            judge_once(&tasks, fates)
        } else {
            judge_one_at_a_time(&tasks, fates)
        };
        let found = found.into_iter().map(|why| (promise.name(), format!("{promise:?}: {why}")));
        broken.extend(found);
    }
    broken
}

fn judge_alone(
    promise: &Promise,
    fate: &Fate,
    fates: &BTreeMap<TaskId, Fate>,
) -> Result<(), String> {
    let phase = fate.phase();
    let kept = match promise {
        Promise::Result(text) => {
            phase == Some(Phase::Completed) && fate.result().as_ref() == Some(text)
        }
        Promise::NotBefore(ms) => fate.runs.iter().all(|run| run.started_us / 1_000 >= *ms),
        Promise::Never => fate.runs.is_empty() && phase == Some(Phase::Expired),
        Promise::After(ids, policy) => return judge_after(ids, policy, fate, fates),
        Promise::Tags(tags) => fate.shown.as_ref().is_some_and(|(_, shown)| shown.tags == *tags),
        Promise::Attempts(count) => fate.runs.iter().all(|run| run.attempt <= *count),
        Promise::Limited => phase == Some(Phase::Completed),
        Promise::Once(_) | Promise::OneAtATime(_) => true,
    };
    if kept { Ok(()) } else { Err(format!("{promise:?} and not {fate:?}")) }
}

fn judge_after(
    ids: &[String],
    policy: &str,
    fate: &Fate,
    fates: &BTreeMap<TaskId, Fate>,
) -> Result<(), String> {
    let mut all_completed = true;
    for id in ids {
        let before = id.parse().ok().and_then(|id: TaskId| fates.get(&id));
        let before = before.ok_or_else(|| format!("waits for {id}, which does not exist"))?;
        let end = before.end.ok_or_else(|| format!("waits for {id}, which has not ended"))?;
        all_completed &= end.phase == Phase::Completed;
        let early = |run: &&Run| run.started_us / 1_000 < end.published_ms;
        if let Some(run) = fate.runs.iter().find(early) {
            return Err(format!("begins before the end of {id}, {end:?}: {run:?}"));
        }
    }
    let expected = match policy {
        _ if all_completed => Phase::Completed,
        "skip" => Phase::Cancelled,
        "run" => Phase::Completed,
        _ => Phase::Final,
    };
    if fate.phase() != Some(expected) {
        return Err(format!("ends as {:?} and not as {expected:?}", fate.phase()));
    }
    if expected != Phase::Completed && !fate.runs.is_empty() {
        return Err(format!("runs although it is closed: {:?}", fate.runs));
    }
    Ok(())
}

/// Whether the tasks were submitted for a time of a schedule that another worker has left out, since
/// it knew of an earlier firing under way: all of them name that one, which ran.
fn is_left_out(tasks: &[(TaskId, &Fate)], fates: &BTreeMap<TaskId, Fate>) -> bool {
    let Some((_, first)) = tasks.first() else { return false };
    let holder = first.duplicate_of();
    let before = holder.and_then(|id| fates.get(&id)).filter(|it| !it.runs.is_empty());
    // Keys have the order of times.
    let is_earlier = before.and_then(Fate::fired).zip(first.fired()).is_some_and(|(a, b)| a < b);
    let names_it = |(_, fate): &(TaskId, &Fate)| {
        fate.phase() == Some(Phase::Cancelled) && fate.duplicate_of() == holder
    };
    is_earlier && tasks.iter().all(names_it)
}

fn judge_once(tasks: &[(TaskId, &Fate)], fates: &BTreeMap<TaskId, Fate>) -> Vec<String> {
    let ran: Vec<TaskId> =
        tasks.iter().filter(|(_, fate)| !fate.runs.is_empty()).map(|(id, _)| *id).collect();
    if ran.is_empty() && is_left_out(tasks, fates) {
        return Vec::new();
    }
    let [holder] = ran.as_slice() else {
        return vec![format!("{ran:?} ran, and not one task: {tasks:?}")];
    };
    let differs = |(id, fate): &&(TaskId, &Fate)| {
        if id == holder {
            fate.phase() != Some(Phase::Completed)
        } else {
            fate.phase() != Some(Phase::Cancelled) || fate.duplicate_of() != Some(*holder)
        }
    };
    let differ = tasks.iter().filter(differs);
    differ.map(|(id, fate)| format!("{holder} ran, and {id} is {fate:?}")).collect()
}

fn judge_one_at_a_time(tasks: &[(TaskId, &Fate)], fates: &BTreeMap<TaskId, Fate>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut spans: Vec<(u64, u64, TaskId)> = tasks
        .iter()
        .filter_map(|(id, fate)| Some((fate.claimed_ms?, fate.end?.published_ms, *id)))
        .collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        if let [(_, end, first), (begin, _, second)] = pair
            && begin < end
        {
            broken.push(format!("{first} and {second} are under way at the same time"));
        }
    }
    for (id, fate) in tasks {
        let Some(holder) = fate.duplicate_of() else {
            if fate.phase() != Some(Phase::Completed) {
                broken.push(format!("{id} neither completes nor names another task: {fate:?}"));
            }
            continue;
        };
        let shown = fates.get(&holder).and_then(|holder| holder.shown.as_ref());
        if let Some((shown_ms, _)) = shown
            && *shown_ms < fate.published_ms
        {
            broken.push(format!("{id} came after the end of {holder} and was closed for it"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::TaskState;

    const fn id(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    fn run(started_ms: u64) -> Run {
        Run {
            worker: "w0".to_owned(),
            task: id(0),
            epoch: 1,
            attempt: 1,
            started_us: started_ms * 1_000,
            cancelled_us: None,
            ended_us: None,
        }
    }

    fn shown() -> TaskMetadata {
        serde_json::from_str(
            r#"{"messageId":"1:0:-1","state":"COMPLETED","created":1,"lastUpdated":2,"attempts":1}"#,
        )
        .unwrap()
    }

    /// A task that ran between these times; times and places are the same here.
    fn ran(promise: Promise, from: u32, to: u32) -> Fate {
        Fate {
            promises: vec![promise],
            published_ms: 0,
            runs: vec![run(from.into())],
            claimed_ms: Some(from.into()),
            end: Some(End { published_ms: to.into(), phase: Phase::Completed }),
            shown: Some((to.into(), shown())),
        }
    }

    fn closed(promise: Promise, phase: Phase, duplicate_of: Option<TaskId>) -> Fate {
        let mut metadata = shown();
        metadata.state = TaskState::Failed;
        metadata.duplicate_of = duplicate_of.map(|id| id.to_string());
        Fate {
            promises: vec![promise],
            end: Some(End { published_ms: 9, phase }),
            shown: Some((9, metadata)),
            ..Fate::default()
        }
    }

    fn found(fates: impl IntoIterator<Item = Fate>) -> Vec<&'static str> {
        let fates = (1..).map(id).zip(fates).collect();
        judge(&fates).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_result_is_the_one_that_was_promised() {
        let promise = Promise::Result("kept".to_owned());
        let mut fate = ran(promise.clone(), 1, 2);
        assert_eq!(found([fate.clone()]), ["result"]);
        fate.shown.as_mut().unwrap().1.result = Some(b"kept".to_vec().into());
        assert!(found([fate]).is_empty());
        assert_eq!(found([closed(promise, Phase::Final, None)]), ["result"]);
    }

    #[test]
    fn what_is_scheduled_begins_at_its_time() {
        assert!(found([ran(Promise::NotBefore(5), 5, 6)]).is_empty());
        assert_eq!(found([ran(Promise::NotBefore(5), 4, 6)]), ["not_before"]);
    }

    #[test]
    fn what_has_expired_never_runs() {
        assert!(found([closed(Promise::Never, Phase::Expired, None)]).is_empty());
        assert_eq!(found([closed(Promise::Never, Phase::Final, None)]), ["never"]);
        assert_eq!(found([ran(Promise::Never, 1, 2)]), ["never"]);
    }

    #[test]
    fn a_dependent_begins_when_the_others_are_over() {
        let after = |policy: &str| Promise::After(vec!["1:1:-1".to_owned()], policy.to_owned());
        let (good, bad) =
            (ran(Promise::Attempts(1), 1, 5), closed(Promise::Attempts(1), Phase::Final, None));
        assert!(found([good.clone(), ran(after("fail"), 5, 7)]).is_empty());
        assert_eq!(found([good.clone(), ran(after("fail"), 4, 7)]), ["after"]);
        assert_eq!(found([good, closed(after("fail"), Phase::Final, None)]), ["after"]);
        for (policy, phase) in [("fail", Phase::Final), ("skip", Phase::Cancelled)] {
            assert!(found([bad.clone(), closed(after(policy), phase, None)]).is_empty());
            assert_eq!(found([bad.clone(), ran(after(policy), 10, 11)]), ["after"]);
        }
        assert!(found([bad.clone(), ran(after("run"), 10, 11)]).is_empty());
        let open = Fate { end: None, ..bad };
        assert_eq!(found([open, ran(after("run"), 10, 11)]), ["after"]);
        let unknown = Promise::After(vec!["1:9:-1".to_owned()], "run".to_owned());
        assert_eq!(found([ran(unknown, 1, 2)]), ["after"]);
    }

    #[test]
    fn of_one_key_one_task_runs_and_the_others_name_it() {
        let once = || Promise::Once("k".to_owned());
        let lost = |holder| closed(once(), Phase::Cancelled, Some(id(holder)));
        assert!(found([ran(once(), 1, 2), lost(1), lost(1)]).is_empty());
        assert_eq!(found([ran(once(), 1, 2), ran(once(), 3, 4)]), ["once"]);
        assert_eq!(found([ran(once(), 1, 2), lost(3), lost(1)]), ["once"]);
        assert_eq!(found([lost(2), lost(1)]), ["once"]);
    }

    /// A worker may fire a time while another one leaves it out for a task under way. The judge would
    /// have taken the closed task for a broken promise.
    #[test]
    fn a_time_of_a_schedule_may_be_left_out_for_an_earlier_one() {
        let fired = |ms: u32| Promise::Once(format!("{FIRED}chaos/{ms}"));
        let lost = |holder| closed(fired(2), Phase::Cancelled, Some(id(holder)));
        assert!(found([ran(fired(1), 1, 2), lost(1), lost(1)]).is_empty());
        assert_eq!(found([lost(2), lost(1)]), ["once"], "none of them ran");
        let other = ran(Promise::Once("k".to_owned()), 1, 2);
        assert_eq!(found([other, lost(1)]), ["once"], "that is no time of the schedule");
        let failed = closed(fired(2), Phase::Final, Some(id(1)));
        assert_eq!(found([ran(fired(1), 1, 2), failed]), ["once"], "it was begun");
        assert_eq!(found([ran(fired(3), 1, 2), lost(1)]), ["once"], "that is a later time");
        let both = [ran(fired(1), 1, 2), ran(fired(1), 3, 4), lost(1), lost(2)];
        assert_eq!(found(both), ["once", "once"], "they name two");
    }

    #[test]
    fn tasks_of_one_dedupe_key_follow_each_other() {
        let key = || Promise::OneAtATime("k".to_owned());
        assert!(found([ran(key(), 1, 3), ran(key(), 4, 6)]).is_empty());
        assert_eq!(found([ran(key(), 1, 3), ran(key(), 2, 6)]), ["one_at_a_time"]);
        let lost =
            |published_ms| Fate { published_ms, ..closed(key(), Phase::Cancelled, Some(id(1))) };
        assert!(found([ran(key(), 1, 3), lost(3)]).is_empty());
        assert_eq!(found([ran(key(), 1, 3), lost(4)]), ["one_at_a_time"]);
        assert_eq!(found([closed(key(), Phase::Final, None)]), ["one_at_a_time"]);
    }

    #[test]
    fn tags_are_shown_and_attempts_counted() {
        let tags = || Promise::Tags(vec!["a".to_owned()]);
        assert_eq!(found([ran(tags(), 1, 2)]), ["tags"]);
        let mut tagged = ran(tags(), 1, 2);
        tagged.shown.as_mut().unwrap().1.tags = vec!["a".to_owned()];
        assert!(found([tagged]).is_empty());
        let mut second = ran(Promise::Attempts(1), 1, 2);
        second.runs.push(Run { attempt: 2, ..run(3) });
        assert_eq!(found([second]), ["attempts"]);
    }
}

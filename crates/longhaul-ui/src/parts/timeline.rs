//! The timeline of a task: its holders, their silences, and writes by replaced holders.

use crate::parts;
use crate::parts::table::RowCells;
use crate::parts::table::TableHead::{Number, Text};
use crate::parts::task_link;
use crate::shown::{Outside, ShownInstant, length, line};
use longhaul_api::history::{HistoryBody, HistoryEntryBody, SilenceBody};
use longhaul_api::task::WorkerBody;
use maud::{Markup, html};
use std::borrow::Cow;

/// The most entries listed: the last ones.
const LISTED_MAX: usize = 500;

/// The width of the drawing in its own units, without the names on the left.
const WIDTH: u64 = 1000;
const NAMES_WIDTH: u64 = 130;
const ROW_HEIGHT: u64 = 26;

/// The most holders drawn: the last ones.
const DRAWN_MAX: usize = 50;

/// A period in which a worker held the task.
#[derive(Debug, PartialEq, Eq)]
struct TaskHold {
    epoch: u32,
    attempt: Option<u32>,
    worker: Option<WorkerBody>,
    from: u64,
    to: u64,
    end: HoldEnd,
    /// The times of checkpoints.
    marks: Vec<u64>,
    /// The times of this holder's ignored entries: it had been replaced, or was late.
    ignored: Vec<u64>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldEnd {
    /// The worker holds the task now.
    Open,
    Completed,
    Failed,
    /// The worker released or snoozed the task.
    Released,
    /// Another worker took the task over from a silent one.
    TakenOver,
    /// The task ended in another way: cancelled, expired, or by an operator.
    Ended,
}

impl HoldEnd {
    const fn word(self) -> &'static str {
        match self {
            Self::Open => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::TakenOver => "taken-over",
            Self::Ended => "ended",
        }
    }

    fn of(entry: &HistoryEntryBody) -> Option<Self> {
        match &*entry.event {
            "completed" => Some(Self::Completed),
            "failed" => Some(Self::Failed),
            "released" | "parked" => Some(Self::Released),
            "ended" | "closed" => match entry.outcome.as_deref() {
                Some("failed") => Some(Self::Failed),
                _ => Some(Self::Ended),
            },
            _ => None,
        }
    }
}

/// The holders of the task, in the order of epochs. `until` is when the last one still held it.
fn holds(entries: &[HistoryEntryBody], until: u64) -> Vec<TaskHold> {
    let mut holds: Vec<TaskHold> = Vec::new();
    for entry in entries {
        let of_epoch =
            |holds: &[TaskHold]| holds.iter().rposition(|hold| Some(hold.epoch) == entry.epoch);
        if entry.ignored.is_some() {
            if let Some(hold) = of_epoch(&holds).and_then(|at| holds.get_mut(at)) {
                hold.ignored.push(entry.at);
            }
            continue;
        }
        if matches!(&*entry.event, "claimed" | "leased" | "closed") {
            if let Some(last) = holds.last_mut().filter(|last| last.end == HoldEnd::Open) {
                (last.to, last.end) = (entry.at.max(last.from), HoldEnd::TakenOver);
            }
            let Some(epoch) = entry.epoch else { continue };
            let (worker, end) = (entry.worker.clone(), HoldEnd::of(entry).unwrap_or(HoldEnd::Open));
            let worker = entry
                .leased_to
                .as_ref()
                .map(|name| WorkerBody { name: name.clone(), ..WorkerBody::default() })
                .or(worker);
            holds.push(TaskHold {
                epoch,
                attempt: entry.attempt,
                worker,
                from: entry.at,
                to: entry.at,
                end,
                marks: Vec::new(),
                ignored: Vec::new(),
            });
            continue;
        }
        let Some(hold) = of_epoch(&holds).and_then(|at| holds.get_mut(at)) else { continue };
        match HoldEnd::of(entry) {
            // Another clock may have written it.
            Some(end) => (hold.to, hold.end) = (entry.at.max(hold.from), end),
            None if entry.event == "checkpoint" => hold.marks.push(entry.at),
            None => {}
        }
    }
    if let Some(last) = holds.last_mut().filter(|last| last.end == HoldEnd::Open) {
        last.to = until.max(last.from);
    }
    holds
}

/// The drawing of the task's holders.
pub(crate) fn timeline(history: &HistoryBody, submitted: Option<u64>) -> Markup {
    let holds = holds(&history.entries, history.now);
    html! {
        @if !history.is_whole { p.notice { "Its first entries were compacted away." } }
        (drawing(&holds, submitted, history))
    }
}

fn drawing(holds: &[TaskHold], submitted: Option<u64>, history: &HistoryBody) -> Markup {
    let drawn = holds.get(holds.len().saturating_sub(DRAWN_MAX)..).unwrap_or(holds);
    let Some(first) = drawn.first() else {
        return html! { p.empty { "No worker has claimed the task yet." } };
    };
    let from =
        submitted.filter(|at| drawn.len() == holds.len() && *at < first.from).unwrap_or(first.from);
    let ignored = drawn.iter().flat_map(|hold| hold.ignored.iter().copied());
    let to =
        drawn.iter().map(|hold| hold.to).chain(ignored).max().unwrap_or(history.now).max(from + 1);
    let x = |at: u64| NAMES_WIDTH + at.saturating_sub(from).min(to - from) * WIDTH / (to - from);
    let height = ROW_HEIGHT * (drawn.len() as u64 + 1);
    html! {
        svg.timeline role="img" viewBox={ "0 0 " (NAMES_WIDTH + WIDTH + 10) " " (height) } aria-label={ "Workers that held the task over " (length(to - from)) } {
            @for (row, hold) in drawn.iter().enumerate() {
                @let y = ROW_HEIGHT * row as u64;
                text x="0" y=(y + 17) { (name(hold)) }
                rect class={ "hold " (hold.end.word()) } x=(x(hold.from)) y=(y + 5) height="16" rx="3" width=((x(hold.to) - x(hold.from)).max(4)) {
                    title { (line(&sentence(hold))) }
                }
                @for silence in history.silences.iter().filter(|it| it.epoch == hold.epoch) {
                    @let end = x(silence.until.unwrap_or(history.now).min(hold.to));
                    rect.silent x=(x(silence.since)) y=(y + 9) height="8" width=((end.saturating_sub(x(silence.since))).max(4)) {
                        title { (silent(silence, history.now)) }
                    }
                }
                @for &at in &hold.marks {
                    circle.checkpoint cx=(x(at)) cy=(y + 13) r="4" { title { "checkpoint" } }
                }
                @for &at in &hold.ignored {
                    circle.ignored cx=(x(at)) cy=(y + 13) r="5" { title { "written by a replaced worker: ignored" } }
                }
            }
            text.axis x=(NAMES_WIDTH) y=(height - 8) { (if submitted == Some(from) { "submitted" } else { "claimed" }) }
            text.axis.end x=(NAMES_WIDTH + WIDTH) y=(height - 8) { "+" (length(to - from)) }
        }
        @if drawn.len() < holds.len() { p { "Only the last " (DRAWN_MAX) " of " (holds.len()) " holders are drawn." } }
    }
}

fn name(hold: &TaskHold) -> String {
    match hold.attempt {
        Some(attempt) => format!("epoch {} · attempt {attempt}", hold.epoch),
        None => format!("epoch {}", hold.epoch),
    }
}

fn sentence(hold: &TaskHold) -> String {
    let who = hold.worker.as_ref().map_or_else(|| "somebody".to_owned(), WorkerBody::title);
    let end = match hold.end {
        HoldEnd::Open => "holds it",
        HoldEnd::Completed => "completed it",
        HoldEnd::Failed => "failed",
        HoldEnd::Released => "gave it back",
        HoldEnd::TakenOver => "fell silent and was replaced",
        HoldEnd::Ended => "held it when it ended",
    };
    format!("{}: {who} {end} after {}", name(hold), length(hold.to - hold.from))
}

fn silent(silence: &SilenceBody, now_ms: u64) -> String {
    let until = silence.until.unwrap_or(now_ms).saturating_sub(silence.since);
    let so_far = if silence.until.is_none() { " so far" } else { "" };
    let every = length(silence.every.ms());
    format!("no heartbeat for {}{so_far}, due every {every}", length(until))
}

/// An event as text.
fn words(entry: &HistoryEntryBody) -> String {
    let text = |value: &Option<Cow<'static, str>>| value.clone().unwrap_or_default();
    match &*entry.event {
        "claimed" => format!("claimed for attempt {}", entry.attempt.unwrap_or(0)),
        "leased" => format!(
            "leased to {} for attempt {}",
            entry.leased_to.as_deref().unwrap_or_default(),
            entry.attempt.unwrap_or(0)
        ),
        "renewed" => "the lease was renewed".to_owned(),
        "closed" => format!("closed without a run: {}", text(&entry.outcome)),
        "ended" => format!("ended: {}", text(&entry.outcome)),
        "parked" => "waits for others".to_owned(),
        "checkpoint" => format!("checkpoint of {}", crate::shown::bytes(entry.bytes.unwrap_or(0))),
        "cancel_requested" => "a cancel was requested".to_owned(),
        "sealed" => "sealed: nothing can change its end any more".to_owned(),
        "shown" => format!("shown as {}", text(&entry.state)),
        "evicted" => "no longer shown".to_owned(),
        other => other.to_owned(),
    }
}

/// Why an entry changes nothing.
fn ignored(word: &str) -> &str {
    match word {
        "not_next" | "replaced" => "by a replaced worker",
        "attempt_not_above" => "its attempt is not above the last one",
        "task_ended" => "the task had ended",
        "not_running" => "the task was not running",
        "sealed" => "the task was sealed",
        "late" => "it came too late",
        other => other,
    }
}

/// Which entries are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListedEntries {
    /// Updates of one kind in a row are one.
    #[default]
    Runs,
    /// Each.
    All,
}

/// Whether two entries only say that the task is still as it was.
fn is_update(former: &HistoryEntryBody, entry: &HistoryEntryBody) -> bool {
    matches!(&*entry.event, "shown" | "renewed")
        && entry.ignored.is_none()
        && former.ignored.is_none()
        && (&former.event, &former.state, former.epoch, &former.worker)
            == (&entry.event, &entry.state, entry.epoch, &entry.worker)
}

/// The list of entries, the newest first.
pub(crate) fn list(queue: &str, history: &HistoryBody, asked: ListedEntries) -> Markup {
    let entries = &history.entries;
    let is_silent_between = |former: &HistoryEntryBody, entry: &HistoryEntryBody| {
        history.silences.iter().any(|it| (former.at..entry.at).contains(&it.since))
    };
    let runs = entries.chunk_by(|former, entry| {
        let is_one = asked == ListedEntries::Runs && is_update(former, entry);
        is_one && !is_silent_between(former, entry)
    });
    let runs: Vec<&[HistoryEntryBody]> = runs.collect();
    let listed = runs.get(runs.len().saturating_sub(LISTED_MAX)..).unwrap_or(&runs);
    let first = entries.first().map_or(0, |entry| entry.at);
    let mut rows: Vec<(u64, RowCells)> = Vec::new();
    for run in listed {
        let Some(newest) = run.last() else { continue };
        rows.push((newest.at, row(queue, newest, run.len(), first, history.now)));
    }
    for silence in &history.silences {
        // After the entry at which the silence began, if that is listed.
        if let Some(at) = rows.iter().rposition(|(at, _)| *at <= silence.since) {
            rows.insert(at + 1, (silence.since, silence_row(silence, first, history.now)));
        }
    }
    let rows: Vec<RowCells> = rows.into_iter().rev().map(|(_, row)| row).collect();
    let heads = [Text("When"), Number("After"), Number("Epoch"), Text("What"), Text("By")];
    html! {
        (parts::table::table("history", "Entries about the task", &heads, &rows, &html! { "No entries." }))
        @if listed.len() < runs.len() { p { "Only the last " (LISTED_MAX) " of " (runs.len()) " are listed." } }
    }
}

fn row(queue: &str, entry: &HistoryEntryBody, updates: usize, first: u64, now_ms: u64) -> RowCells {
    vec![
        html! { (ShownInstant { at_ms: entry.at, now_ms }) },
        html! { "+" (length(entry.at.saturating_sub(first))) },
        html! { @if let Some(epoch) = entry.epoch { (epoch) } },
        html! {
            @if let Some(why) = &entry.ignored {
                span.tag.zombie { "ignored" } " " s { (Outside(&words(entry))) } " – " (Outside(ignored(why)))
            } @else {
                (Outside(&words(entry)))
                @if updates > 1 { ", " (updates) " updates" }
            }
            @if let Some(reason) = &entry.reason { ": " (Outside(reason)) }
            @if let Some(at_ms) = entry.next_attempt_at { ", next attempt " (ShownInstant { at_ms, now_ms }) }
            @for task in &entry.waits_for { " " (task_link(queue, task)) }
        },
        html! {
            @if let Some(operator) = &entry.operator { (Outside(operator)) }
            @else if let Some(name) = &entry.leased_to { (Outside(name)) }
            @else if let Some(worker) = &entry.worker { (parts::worker(worker)) }
        },
    ]
}

fn silence_row(silence: &SilenceBody, first: u64, now_ms: u64) -> RowCells {
    vec![
        html! { (ShownInstant { at_ms: silence.since, now_ms }) },
        html! { "+" (length(silence.since.saturating_sub(first))) },
        html! { (silence.epoch) },
        html! { span.tag.silent { "silent" } " " (silent(silence, now_ms)) },
        html! { @if let Some(worker) = &silence.worker { (parts::worker(worker)) } },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_api::values::Length;
    use std::time::Duration;

    fn entry(at: u64, event: &str, epoch: u32) -> HistoryEntryBody {
        let attempt = (event == "claimed").then_some(epoch);
        HistoryEntryBody {
            at,
            event: event.to_owned().into(),
            epoch: Some(epoch),
            attempt,
            ..HistoryEntryBody::default()
        }
    }

    fn shown(history: &HistoryBody, submitted: Option<u64>) -> String {
        let list = list("q", history, ListedEntries::Runs).into_string();
        timeline(history, submitted).into_string() + &list
    }

    fn ends(entries: &[HistoryEntryBody]) -> Vec<(u32, u64, u64, HoldEnd)> {
        holds(entries, 100).iter().map(|hold| (hold.epoch, hold.from, hold.to, hold.end)).collect()
    }

    #[test]
    fn attempts_follow_one_another() {
        let entries = [
            entry(1, "claimed", 1),
            entry(4, "failed", 1),
            entry(4, "shown", 1),
            entry(9, "claimed", 2),
            entry(12, "completed", 2),
        ];
        assert_eq!(ends(&entries), [(1, 1, 4, HoldEnd::Failed), (2, 9, 12, HoldEnd::Completed)]);
    }

    /// A release by a gateway whose clock was 20 ms behind came after 213503982334 days.
    #[test]
    fn an_end_by_another_clock_is_not_before_its_beginning() {
        let entries = [
            entry(50, "claimed", 1),
            entry(30, "claimed", 2),
            entry(10, "released", 2),
            entry(5, "checkpoint", 2),
        ];
        let expected = [(1, 50, 50, HoldEnd::TakenOver), (2, 30, 30, HoldEnd::Released)];
        assert_eq!(ends(&entries), expected);
        let page =
            shown(&HistoryBody { entries: entries.into(), ..HistoryBody::default() }, Some(60));
        assert!(!page.contains("2135039"), "{page}");
    }

    #[test]
    fn who_holds_it_now_holds_it_until_now() {
        assert_eq!(ends(&[entry(7, "claimed", 1)]), [(1, 7, 100, HoldEnd::Open)]);
        assert_eq!(ends(&[]), []);
    }

    #[test]
    fn a_holder_without_an_end_was_taken_over_and_what_it_writes_later_is_marked_as_ignored() {
        let late =
            HistoryEntryBody { ignored: Some("replaced".into()), ..entry(80, "completed", 1) };
        let entries = [
            entry(1, "claimed", 1),
            entry(30, "checkpoint", 1),
            entry(50, "claimed", 2),
            late,
            entry(90, "completed", 2),
        ];
        assert_eq!(
            ends(&entries),
            [(1, 1, 50, HoldEnd::TakenOver), (2, 50, 90, HoldEnd::Completed)]
        );
        let found = holds(&entries, 100);
        let zombie = found.first().unwrap();
        assert_eq!((zombie.marks.as_slice(), zombie.ignored.as_slice()), (&[30][..], &[80][..]));
        let (entries, silences) = (entries.to_vec(), Vec::new());
        let history =
            HistoryBody { is_whole: true, entries, silences, now: 100, ..HistoryBody::default() };
        let page = shown(&history, Some(0));
        assert!(
            page.contains("ignored")
                && page.contains("by a replaced worker")
                && page.contains("hold taken-over"),
            "{page}"
        );
    }

    #[test]
    fn silences_are_drawn_upon_their_holder_and_listed_where_they_began() {
        let entries = vec![entry(1, "claimed", 1), entry(50_000, "claimed", 2)];
        let silence = |epoch, since, until, missed| SilenceBody {
            epoch,
            since,
            until,
            missed,
            every: Length(Duration::from_secs(10)),
            worker: None,
        };
        let silences = vec![silence(1, 11_000, Some(50_000), 3), silence(2, 60_000, None, 4)];
        let history = HistoryBody {
            is_whole: true,
            entries,
            silences,
            now: 100_000,
            ..HistoryBody::default()
        };
        let page = shown(&history, None);
        assert_eq!(page.matches("rect class=\"silent\"").count(), 2, "{page}");
        let (first, second) = (
            "no heartbeat for 39 s, due every 10 s",
            "no heartbeat for 40 s so far, due every 10 s",
        );
        let places: Vec<_> = ["claimed for attempt 1", first, "claimed for attempt 2", second]
            .map(|text| page.rfind(text))
            .to_vec();
        let newest_first = places.iter().rev().is_sorted();
        assert!(places.iter().all(Option::is_some) && newest_first, "{places:?} in {page}");
    }

    /// Each report of progress was a row of its own: after a minute of work the page was 10,000
    /// pixels long on a phone.
    #[test]
    fn updates_of_one_kind_are_one_row() {
        let shown = |at, epoch| HistoryEntryBody {
            state: Some("running".into()),
            ..entry(at, "shown", epoch)
        };
        let mut entries = vec![entry(1, "claimed", 1)];
        entries.extend((2..60).map(|at| shown(at, 1)));
        entries.push(HistoryEntryBody { ignored: Some("late".into()), ..shown(60, 1) });
        entries.extend([entry(61, "claimed", 2), shown(62, 2), entry(63, "completed", 2)]);
        let history = HistoryBody { entries, now: 70, ..HistoryBody::default() };
        let rows = |asked| list("q", &history, asked).into_string().matches("<tr>").count() - 1;
        assert_eq!((rows(ListedEntries::Runs), rows(ListedEntries::All)), (6, 63));
        let page = list("q", &history, ListedEntries::Runs).into_string();
        assert!(page.contains("running</bdi>, 58 updates"), "{page}");
        // A silence in the middle stays there.
        let silence = SilenceBody {
            epoch: 1,
            since: 30,
            until: Some(31),
            missed: 1,
            every: Length(Duration::from_secs(1)),
            worker: None,
        };
        let history = HistoryBody { silences: vec![silence], ..history };
        let page = list("q", &history, ListedEntries::Runs).into_string();
        let places = ["29 updates", "no heartbeat", "claimed for attempt 1"];
        let places = places.map(|text| page.find(text));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {page}");
    }

    #[test]
    fn a_claim_that_closes_holds_nothing_afterwards() {
        let closed =
            HistoryEntryBody { outcome: Some("cancelled".into()), ..entry(5, "closed", 1) };
        assert_eq!(ends(&[closed]), [(1, 5, 5, HoldEnd::Ended)]);
    }

    #[test]
    fn a_long_history_is_drawn_and_listed_in_part() {
        let entries: Vec<HistoryEntryBody> = (0..2000)
            .flat_map(|epoch| {
                [
                    entry(u64::from(epoch) * 2, "claimed", epoch),
                    entry(u64::from(epoch) * 2 + 1, "failed", epoch),
                ]
            })
            .collect();
        let history = HistoryBody { entries, now: 9000, ..HistoryBody::default() };
        let page = shown(&history, None);
        assert_eq!(
            (page.matches("<rect").count(), page.matches("<tr>").count()),
            (DRAWN_MAX, LISTED_MAX + 1)
        );
        assert!(page.contains("compacted away"));
    }
}

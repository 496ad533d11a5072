mod carried;
mod files;
mod going_on;

use super::*;
use crate::ops::{DeadLetterFilter, TaskFilter, TaskStatus};
use crate::testing::TestEngine;
use crate::{
    AfterFailed, TaskContext, TaskError, TaskProcessor, TaskRef, Text, WorkerBuilder, WorkerHandle,
    processor_fn,
};
use longhaul_core::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const FROM: &str = "here";
const TO: &str = "there";

/// The runs of both queues' processors: payload → (queue, attempt, checkpoint).
type Runs = Arc<Mutex<BTreeMap<String, Vec<(String, u32, Option<String>)>>>>;

/// Two queues of one broker; a move treats them like queues of two clusters.
struct Stage {
    engine: TestEngine,
    runs: Runs,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let (engine, runs) = (TestEngine::new(), Runs::default());
        Self { engine, runs, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("export.jsonl")
    }

    fn worker(&self, queue: &'static str) -> WorkerHandle {
        self.engine.start(self.builder(queue))
    }

    fn builder(&self, queue: &'static str) -> WorkerBuilder<impl TaskProcessor + use<>> {
        let runs = Arc::clone(&self.runs);
        let process = move |task: Text, context: TaskContext| {
            let runs = Arc::clone(&runs);
            async move { process(queue, &task.0, &context, &runs).await }
        };
        self.engine.worker(queue, processor_fn(process)).max_attempts(3)
    }

    fn submit(&self, text: &str) -> TaskRef {
        self.engine.submit(FROM, &Text(text.to_owned()))
    }

    /// One round of a move, dropped after this many polls. `None` if it was interrupted.
    fn round(&self, polls: usize) -> Option<(Exported, Imported, Closed)> {
        let moving = self.moving();
        let mut left = polls;
        self.engine.run(async move {
            let mut moving = pin!(moving);
            std::future::poll_fn(move |context| {
                let Some(next) = left.checked_sub(1) else { return Poll::Ready(None) };
                left = next;
                moving.as_mut().poll(context).map(Some)
            })
            .await
        })
    }

    async fn moving(&self) -> (Exported, Imported, Closed) {
        let client = self.engine.client();
        let mut export = client.queue(FROM).export().await.unwrap();
        assert_eq!(export.until_idle(Duration::from_secs(60)).await.unwrap(), 0);
        let exported = write(&mut export, &self.file()).await;
        let imported = client.queue(TO).import(&self.file()).await.unwrap();
        let closed = client.queue(FROM).close_moved(&client.queue(TO)).await.unwrap();
        (exported, imported, closed)
    }

    fn here(&self, old: &TaskRef) -> TaskRef {
        let here = self.engine.run(self.engine.client().queue(TO).moved(old.id)).unwrap();
        assert_eq!(here.len(), 1, "{old}: {here:?}");
        here[0].clone()
    }

    fn marks(&self) -> marks::MovedMarks {
        self.engine.run(self.read_marks())
    }

    async fn read_marks(&self) -> marks::MovedMarks {
        let client = self.engine.client();
        let [from, to] = [FROM, TO].map(|queue| client.names(queue).unwrap());
        let source = client.register_of(&from).await.unwrap().start_stamp().unwrap();
        marks::MovedMarks::read(&client.logs(), &to, source).await.unwrap()
    }

    fn statuses(&self, queue: &str) -> BTreeMap<TaskId, TaskStatus> {
        let view = self.engine.run(self.engine.client().queue(queue).tasks()).unwrap();
        let page = view.list(&TaskFilter::new(), None, 1_000).unwrap();
        page.tasks.iter().map(|task| (task.id, task.status)).collect()
    }

    fn resume(&self, queue: &str) {
        self.engine.run(self.engine.client().queue(queue).resume()).unwrap();
    }

    fn runs_of(&self, text: &str) -> Vec<(String, u32, Option<String>)> {
        self.runs.lock().unwrap().get(text).cloned().unwrap_or_default()
    }
}

/// Runs a test with a move that is dropped after 1 poll, `1 + step` polls and so on, until the test
/// returns that the move was done by then.
fn for_each_interruption(step: usize, mut is_done: impl FnMut(usize) -> bool) {
    let polls = (1..).step_by(step).find(|polls| is_done(*polls)).unwrap();
    assert!(polls > 50, "the move has few steps: {polls}");
}

async fn write(export: &mut Export, path: &Path) -> Exported {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let put = |record: ExportRecord| {
        serde_json::to_writer(&mut file, &record)?;
        file.write_all(b"\n")
    };
    let exported = export.records(put).await.unwrap();
    file.flush().unwrap();
    exported
}

async fn process(
    queue: &str,
    text: &str,
    context: &TaskContext,
    runs: &Runs,
) -> Result<Text, TaskError> {
    let checkpoint = context.last_checkpoint().map(|it| String::from_utf8_lossy(it).into_owned());
    let run = (queue.to_owned(), context.attempt(), checkpoint);
    runs.lock().unwrap().entry(text.to_owned()).or_default().push(run);
    if text.starts_with("fails once") && context.attempt() == 1 {
        context.checkpoint("half way").await?;
        return Err(TaskError::retry_after(Duration::from_secs(3600), "not yet"));
    }
    if text.starts_with("slow") && context.attempt() == 1 {
        context.checkpoint("half way").await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    if text.starts_with("fails") && !text.starts_with("fails once") {
        return Err(TaskError::fatal("never"));
    }
    Ok(Text(format!("{text}: done")))
}

/// Submits tasks and brings them into every state that a task has when it does not run.
fn fill(stage: &Stage) -> BTreeMap<&'static str, TaskRef> {
    let (engine, client) = (&stage.engine, stage.engine.client());
    let worker = stage.worker(FROM);
    let mut tasks = BTreeMap::new();
    for text in ["a", "fails", "fails and is purged", "fails once"] {
        tasks.insert(text, stage.submit(text));
    }
    let keyed = client.submission(FROM, &Text("keyed".to_owned())).idempotency_key("order-1");
    tasks.insert("keyed", engine.run(keyed.send()).unwrap());
    engine.advance(Duration::from_secs(60));
    let letters = engine.run(client.queue(FROM).dead_letters()).unwrap();
    engine.run(letters.purge_one(&tasks["fails and is purged"], "known")).unwrap();
    engine.run(client.queue(FROM).pause()).unwrap();
    engine.run(worker.drain(Duration::from_secs(5))).unwrap();
    for text in ["new", "dropped"] {
        tasks.insert(text, stage.submit(text));
    }
    let waiting = client.submission(FROM, &Text("waits".to_owned()));
    let waiting = waiting.after([&tasks["new"], &tasks["a"]]).after_failed(AfterFailed::Fail);
    tasks.insert("waits", engine.run(waiting.send()).unwrap());
    let keyed =
        client.submission(FROM, &Text("keyed and new".to_owned())).idempotency_key("order-2");
    tasks.insert("keyed and new", engine.run(keyed.send()).unwrap());
    let deduped = client.submission(FROM, &Text("deduped".to_owned())).dedupe_key("document");
    tasks.insert("deduped", engine.run(deduped.send()).unwrap());
    let later = client.submission(FROM, &Text("later".to_owned())).delay(Duration::from_secs(600));
    tasks.insert("later", engine.run(later.send()).unwrap());
    engine
        .run(client.queue(&tasks["dropped"].topic).delete(tasks["dropped"].id, "not wanted"))
        .unwrap();
    tasks
}

/// Checks the result of a finished move, however often it was begun.
fn judge(stage: &Stage, tasks: &BTreeMap<&'static str, TaskRef>) {
    let (engine, client) = (&stage.engine, stage.engine.client());
    let here = |text: &str| stage.here(&tasks[text]);
    // Nothing is left to run at the source, and each task is at the target once.
    assert!(stage.statuses(FROM).values().all(|status| status.is_terminal()));
    let copies: BTreeSet<TaskId> = tasks.keys().map(|text| here(text).id).collect();
    assert_eq!(copies.len(), tasks.len());
    let statuses = stage.statuses(TO);
    for (text, status) in [
        ("a", TaskStatus::Completed),
        ("fails", TaskStatus::Failed),
        ("fails and is purged", TaskStatus::Failed),
        ("dropped", TaskStatus::Cancelled),
        ("fails once", TaskStatus::Retrying),
        ("later", TaskStatus::Scheduled),
    ] {
        assert_eq!(statuses[&here(text).id], status, "{text}");
    }
    let letters = engine.run(client.queue(TO).dead_letters()).unwrap();
    let letters = engine.run(letters.list(&DeadLetterFilter::new(), None, 10)).unwrap().letters;
    let letters: Vec<TaskId> = letters.iter().map(|letter| letter.task.id).collect();
    assert_eq!(letters, [here("fails").id]);
    let result: Text = engine.wait(&here("a")).unwrap();
    assert_eq!(result.0, "a: done");
    assert_eq!(stage.marks().open().count(), 0);

    let workers = [stage.worker(FROM), stage.worker(TO)];
    engine.run(client.queue(FROM).resume()).unwrap();
    engine.run(client.queue(TO).resume()).unwrap();
    for text in ["new", "waits", "keyed and new", "deduped", "fails once", "later"] {
        let result: Text = engine.wait(&here(text)).unwrap();
        assert_eq!(result.0, format!("{text}: done"));
    }
    // Messages that an interrupted move published without a bind are closed as duplicates of a
    // copy, or held back and expired.
    engine.advance(Duration::from_secs(60));
    for (id, status) in stage.statuses(TO) {
        let is_held_back = matches!(status, TaskStatus::Ready | TaskStatus::Scheduled);
        assert!(copies.contains(&id) || status.is_terminal() || is_held_back, "{id}: {status:?}");
    }
    for (text, key) in [("keyed", "order-1"), ("keyed and new", "order-2")] {
        let again = client.submission(TO, &Text(text.to_owned())).idempotency_key(key).strict();
        assert_eq!(engine.run(again.send()).unwrap(), here(text), "{text}");
    }
    // After the ledger has forgotten the ends, held-back messages are delivered, and none of them
    // runs.
    engine.advance(Duration::from_secs(30 * 3600));
    for (text, runs) in [
        ("a", vec![(FROM, 1, None)]),
        ("keyed", vec![(FROM, 1, None)]),
        ("fails", vec![(FROM, 1, None)]),
        ("fails and is purged", vec![(FROM, 1, None)]),
        ("dropped", vec![]),
        ("fails once", vec![(FROM, 1, None), (TO, 2, Some("half way"))]),
        ("new", vec![(TO, 1, None)]),
        ("waits", vec![(TO, 1, None)]),
        ("keyed and new", vec![(TO, 1, None)]),
        ("deduped", vec![(TO, 1, None)]),
        ("later", vec![(TO, 1, None)]),
    ] {
        let expected: Vec<_> = runs
            .into_iter()
            .map(|(queue, attempt, it)| (queue.to_owned(), attempt, it.map(str::to_owned)))
            .collect();
        assert_eq!(stage.runs_of(text), expected, "{text}");
    }
    assert!(stage.statuses(TO).values().all(|status| status.is_terminal()));
    let letters = engine.run(client.queue(TO).dead_letters()).unwrap();
    let letters = engine.run(letters.list(&DeadLetterFilter::new(), None, 10)).unwrap().letters;
    assert_eq!(letters.len(), 1, "{letters:?}");
    drop(workers);
}

#[test]
fn a_queue_is_moved_as_a_whole() {
    let stage = Stage::new();
    let tasks = fill(&stage);
    let (exported, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((exported.open, exported.over, exported.letters), (6, 5, 1));
    assert_eq!((imported.open, imported.over, imported.letters), (6, 5, 1));
    assert_eq!((imported.known, &*imported.unmoved), (0, &[][..]));
    assert_eq!(closed, Closed { closed: 6, ..Closed::default() });
    // A second round has nothing to do.
    let (_, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((imported.open, imported.over, imported.letters), (0, 0, 0));
    assert_eq!(closed, Closed::default());
    judge(&stage, &tasks);
}

/// The move is dropped after 1 poll, 8 polls and so on, and started again as a whole, by a client
/// whose only state is that of the brokers.
#[test]
fn a_move_that_is_interrupted_anywhere_is_done_by_the_next_one() {
    // Every step is hit, and some points between.
    for_each_interruption(7, |polls| {
        let stage = Stage::new();
        let tasks = fill(&stage);
        let done = stage.round(polls).is_some();
        stage.engine.advance(Duration::from_millis(100));
        stage.round(usize::MAX).unwrap();
        judge(&stage, &tasks);
        done
    });
}

/// Entries of one task must be ordered: with 128 tasks published together, an outcome came before
/// its claim.
#[test]
fn many_tasks_are_moved_at_once() {
    let stage = Stage::new();
    let worker = stage.worker(FROM);
    let over: Vec<_> = (0..300).map(|number| stage.submit(&format!("over {number}"))).collect();
    let last: Text = stage.engine.wait(&over[299]).unwrap();
    assert_eq!(last.0, "over 299: done");
    stage.engine.run(stage.engine.client().queue(FROM).pause()).unwrap();
    stage.engine.run(worker.drain(Duration::from_secs(5))).unwrap();
    let open: Vec<_> = (0..300).map(|number| stage.submit(&format!("open {number}"))).collect();
    let (exported, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((exported.open, exported.over, closed.closed), (300, 300, 300));
    assert_eq!((imported.open, imported.over), (300, 300));
    let statuses = stage.statuses(TO);
    for (tasks, status) in [(&over, TaskStatus::Completed), (&open, TaskStatus::Ready)] {
        for task in tasks.iter().step_by(50) {
            assert_eq!(statuses[&stage.here(task).id], status);
        }
    }
}

fn by_file(stage: &Stage, from: &str, to: &str) -> (Exported, Imported) {
    let client = stage.engine.client();
    stage.engine.run(async {
        let mut export = client.queue(from).export().await.unwrap();
        let exported = write(&mut export, &stage.file()).await;
        (exported, client.queue(to).import(&stage.file()).await.unwrap())
    })
}

/// The mark of imported copies differs from that of closed tasks; otherwise a further move would
/// leave copies out.
#[test]
fn copies_are_moved_on() {
    let stage = Stage::new();
    fill(&stage);
    stage.round(usize::MAX).unwrap();
    let (exported, imported) = by_file(&stage, TO, "further");
    assert_eq!((exported.open, exported.over, exported.letters), (6, 5, 1));
    assert_eq!((imported.open, imported.over, imported.letters), (6, 5, 1));
}

/// A task whose key belongs to a task that was moved away from here must not be merged with it: it
/// would be closed in the other place, too, and run nowhere.
#[test]
fn a_key_that_a_task_here_holds_keeps_a_task_out_that_would_be_lost() {
    let stage = Stage::new();
    let tasks = fill(&stage);
    stage.round(usize::MAX).unwrap();
    let (exported, back) = by_file(&stage, TO, FROM);
    assert_eq!((exported.open, back.open, back.over, back.merged), (6, 4, 4, 1), "{back:?}");
    // The dedupe key is not released: no worker has processed the end of its task.
    let mut unmoved: Vec<_> = back.unmoved.iter().map(|it| it.task.clone()).collect();
    let mut expected = ["keyed and new", "deduped"].map(|it| stage.here(&tasks[it]).id.to_string());
    unmoved.sort();
    expected.sort();
    assert_eq!(unmoved, expected);
    assert!(back.unmoved.iter().all(|it| it.cause.starts_with("its key belongs to task")));
    let client = stage.engine.client();
    let closed = stage.engine.run(client.queue(TO).close_moved(&client.queue(FROM))).unwrap();
    assert_eq!(closed.closed, 4);
}

/// A task with the same key was submitted at the target and started before the old task was
/// imported.
#[test]
fn a_task_whose_key_was_taken_first_makes_way() {
    let stage = Stage::new();
    let tasks = fill(&stage);
    let (engine, client) = (&stage.engine, stage.engine.client());
    let worker = stage.worker(TO);
    let first = client.submission(TO, &Text("keyed and new".to_owned())).idempotency_key("order-2");
    let first = engine.run(first.send()).unwrap();
    let _: Text = engine.wait(&first).unwrap();
    let (_, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((imported.open, imported.over, imported.merged), (5, 5, 1));
    assert_eq!((closed.closed, stage.here(&tasks["keyed and new"])), (6, first));
    engine.run(worker.drain(Duration::from_secs(5))).unwrap();
    assert_eq!(stage.runs_of("keyed and new").len(), 1);
}

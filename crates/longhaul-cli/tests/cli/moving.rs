//! A queue is moved between two embedded brokers while tasks are submitted and the moving program
//! is killed repeatedly.

mod broker_killed;

use crate::cli::stage::Stage;
use longhaul::ops::{DeadLetterFilter, TaskFilter, TaskStatus};
use longhaul::topics::TopicSettings;
use longhaul::{Client, TaskContext, TaskError, TaskRef, Text, WorkerHandle, processor_fn};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;

const QUEUE: &str = "tasks";

/// The times in ms after which the program is killed: within each of its steps, if the step takes
/// that long.
const KILLED_AFTER_MS: [u64; 14] =
    [150, 250, 320, 400, 480, 560, 640, 720, 800, 900, 1_000, 1_200, 1_500, 2_000];

/// The fewest tasks submitted, however slow the machine.
const TASKS_MIN: usize = 500;

/// The attempts of each task: place, number, checkpoint.
type Attempts = Arc<Mutex<BTreeMap<u64, Vec<(&'static str, u32, Option<String>)>>>>;

async fn process(
    place: &'static str,
    number: u64,
    context: &TaskContext,
    attempts: &Attempts,
) -> Result<Text, TaskError> {
    let checkpoint = context.last_checkpoint().map(|it| String::from_utf8_lossy(it).into_owned());
    let attempt = (place, context.attempt(), checkpoint);
    attempts.lock().unwrap().entry(number).or_default().push(attempt);
    match number % 10 {
        3 if context.attempt() == 1 => {
            context.checkpoint("half way").await?;
            Err(TaskError::retry_after(Duration::from_secs(3), "not yet"))
        }
        7 => Err(TaskError::fatal("never")),
        _ => Ok(Text(format!("{number} is done"))),
    }
}

async fn worker(client: &Client, place: &'static str, attempts: &Attempts) -> WorkerHandle {
    let attempts = Arc::clone(attempts);
    let process = move |number: u64, context: TaskContext| {
        let attempts = Arc::clone(&attempts);
        async move { process(place, number, &context, &attempts).await }
    };
    let worker = client.worker(QUEUE, processor_fn(process)).concurrency(8);
    let worker = worker.start().await.unwrap();
    worker.ready().await;
    worker
}

async fn client(stage: &Stage) -> Client {
    client_at(stage.broker.service_url(), &stage.broker.admin_url().unwrap()).await
}

async fn client_at(url: &str, admin: &str) -> Client {
    Client::builder(url).admin_url(admin).connect().await.unwrap()
}

fn key(number: u64) -> Option<String> {
    (number % 10 == 1).then(|| format!("order-{number}"))
}

async fn submit(client: &Client, number: u64) -> TaskRef {
    let submission = client.submission(QUEUE, &number);
    let submission = match key(number) {
        Some(key) => submission.idempotency_key(key),
        None => submission,
    };
    submission.send().await.unwrap()
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn migrate(from: &Stage, to: &Stage) -> Child {
    let mut command = migrate_to(to.broker.service_url(), &to.broker.admin_url().unwrap());
    command.envs(from.variables()).spawn().unwrap()
}

fn migrate_to(url: &str, admin: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["migrate", QUEUE, "--to-service-url", url]);
    command.args(["--to-admin-url", admin, "--setup"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An export to a device, such as `/dev/stdout`, replaced it by a file.
#[test]
fn an_export_to_a_pipe_leaves_the_pipe_there() {
    use std::os::unix::fs::FileTypeExt;
    let stage = Stage::with_queue("mails");
    stage.told(&["task", "submit", "mails", "text"]);
    let pipe = stage.folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    stage.told(&["export", "mails", pipe.to_str().unwrap()]);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let records = reading.join().unwrap();
    assert!(records.lines().count() > 1 && records.starts_with('{'), "{records}");
    stage.end();
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_a_move_is_killed_again_and_again() {
    let (here, there) = (Stage::new(), Stage::new());
    let attempts = Attempts::default();
    let runtime = Runtime::new().unwrap();
    let (source, target) = runtime.block_on(async { (client(&here).await, client(&there).await) });
    runtime.block_on(target.queue(QUEUE).setup_topics(TopicSettings::default())).unwrap();
    let workers = runtime.block_on(async {
        (worker(&source, "here", &attempts).await, worker(&target, "there", &attempts).await)
    });

    let stop = Arc::new(AtomicBool::new(false));
    let load = runtime.spawn({
        let (source, stop) = (source.clone(), Arc::clone(&stop));
        async move {
            let mut tasks = Vec::new();
            while !stop.load(Ordering::Relaxed) || tasks.len() < TASKS_MIN {
                let number = u64::try_from(tasks.len()).unwrap();
                tasks.push(submit(&source, number).await);
                pause(10).await;
            }
            tasks
        }
    });
    // Wait until tasks are in all states.
    runtime.block_on(pause(1_000));
    let mut killed = 0;
    for after_ms in KILLED_AFTER_MS {
        let mut moving = migrate(&here, &there);
        runtime.block_on(pause(after_ms));
        killed += u32::from(moving.try_wait().unwrap().is_none());
        moving.kill().unwrap();
        moving.wait().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let tasks = runtime.block_on(load).unwrap();
    let ended = migrate(&here, &there).wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{told}");
    assert!(killed >= 10, "{killed} kills");

    runtime.block_on(judge(&source, &target, &tasks, &attempts));
    runtime.block_on(async {
        workers.0.drain(Duration::from_secs(5)).await.unwrap();
        workers.1.drain(Duration::from_secs(5)).await.unwrap();
    });
}

/// The time limit for the remaining tasks.
const PATIENCE: Duration = Duration::from_secs(300);

async fn judge(source: &Client, target: &Client, tasks: &[TaskRef], attempts: &Attempts) {
    let judged = tokio::time::timeout(PATIENCE, recheck_all(source, target, tasks, attempts)).await;
    if judged.is_err() {
        let counts = target.queue(QUEUE).tasks().await.unwrap().counts();
        panic!("tasks are still to be run: {counts:?}");
    }
}

async fn recheck_all(source: &Client, target: &Client, tasks: &[TaskRef], attempts: &Attempts) {
    let mut copies = BTreeMap::new();
    for (number, task) in (0_u64..).zip(tasks) {
        let found = target.queue(QUEUE).moved(task.id).await.unwrap();
        assert_eq!(found.len(), 1, "task {number}, {task}");
        copies.insert(number, found[0].clone());
    }
    let (mut moved_open, mut moved_over) = (0, 0);
    for (number, copy) in &copies {
        let result = target.wait::<Text>(copy).await;
        match result {
            Ok(text) => assert_eq!(text.0, format!("{number} is done")),
            Err(error) => assert!(number % 10 == 7, "task {number}: {error}"),
        }
        let all = attempts.lock().unwrap()[number].clone();
        let places: Vec<_> = all.iter().map(|(place, attempt, _)| (*place, *attempt)).collect();
        if number % 10 == 3 {
            assert_eq!(places.len(), 2, "task {number}: {all:?}");
            assert_eq!(places.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(all[1].2.as_deref(), Some("half way"), "task {number}");
        } else {
            assert_eq!(places.len(), 1, "task {number}: {all:?}");
        }
        moved_over += u32::from(places.iter().all(|(place, _)| *place == "here"));
        moved_open += u32::from(places.iter().any(|(place, _)| *place == "there"));
        if let Some(key) = key(*number) {
            let again = target.submission(QUEUE, number).idempotency_key(key).strict();
            assert_eq!(again.send().await.unwrap(), *copy, "task {number}");
        }
    }
    assert!(moved_over >= 20 && moved_open >= 100, "{moved_over} over, {moved_open} open");
    let distinct: BTreeSet<_> = copies.values().map(|copy| copy.id).collect();
    assert_eq!(distinct.len(), tasks.len());
    let here = source.queue(QUEUE).tasks().await.unwrap();
    let left = here.list(&TaskFilter::new(), None, 10_000).unwrap().tasks;
    let left: Vec<_> = left.iter().filter(|task| !task.status.is_terminal()).collect();
    assert!(left.is_empty(), "{left:?}");
    let cancelled = here.counts().unwrap().of(TaskStatus::Cancelled);
    assert_eq!(cancelled, u64::from(moved_open));
    let letters = target.queue(QUEUE).dead_letters().await.unwrap();
    let letters = letters.list(&DeadLetterFilter::new(), None, 10_000).await.unwrap().letters;
    let fatal = copies.iter().filter(|(number, _)| *number % 10 == 7);
    let fatal: BTreeSet<_> = fatal.map(|(_, copy)| copy.id).collect();
    assert_eq!(letters.iter().map(|letter| letter.task.id).collect::<BTreeSet<_>>(), fatal);
    assert_eq!(letters.len(), fatal.len());
}

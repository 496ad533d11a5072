//! A queue is moved while its brokers are killed: each restarts on the same folder.
use super::super::dev::Service;
use super::*;
use std::path::Path;
use tempfile::TempDir;

/// The times in ms after which one of the brokers is killed, in turn: within each step of a move,
/// if the step takes that long.
const KILLED_AFTER_MS: [u64; 10] = [100, 300, 600, 800, 1_000, 1_200, 1_400, 1_700, 2_000, 2_500];

/// Tasks submitted before each of these moves.
const SUBMITTED_EACH: u64 = 20;

fn start(data: &str, folder: &Path) -> Service {
    Service::start(&["dev", "--data", data], folder)
}

async fn connect(service: &Service) -> Client {
    client_at(&service.broker, service.admin.as_ref().unwrap()).await
}

fn start_move(here: &Service, there: &Service, folder: &Path) -> Child {
    let mut command = migrate_to(&there.broker, there.admin.as_ref().unwrap());
    command.env("LONGHAUL_SERVICE_URL", &here.broker);
    command.env("LONGHAUL_ADMIN_URL", here.admin.as_ref().unwrap());
    command.env("LONGHAUL_CONFIG", folder.join("config.toml"));
    command.spawn().unwrap()
}

async fn end_some(here: &Service, attempts: &Attempts) -> Vec<TaskRef> {
    let source = connect(here).await;
    let worker = worker(&source, "here", attempts).await;
    let mut tasks = Vec::new();
    for number in 0..60 {
        tasks.push(submit(&source, number).await);
    }
    // The last task has ended at once, and so has every task that needs no second attempt.
    for task in tasks.iter().step_by(10) {
        let _: Text = source.wait(task).await.unwrap();
    }
    source.queue(QUEUE).pause().await.unwrap();
    worker.drain(Duration::from_secs(5)).await.unwrap();
    tasks
}

#[test]
fn nothing_is_lost_and_nothing_doubled_when_the_brokers_are_killed_again_and_again() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut services = [start("here", folder), start("there", folder)];
    let (attempts, runtime) = (Attempts::default(), Runtime::new().unwrap());
    let mut tasks = runtime.block_on(end_some(&services[0], &attempts));
    let mut interrupted = 0;
    for (turn, after_ms) in KILLED_AFTER_MS.into_iter().enumerate() {
        runtime.block_on(async {
            let source = connect(&services[0]).await;
            for _ in 0..SUBMITTED_EACH {
                let number = u64::try_from(tasks.len()).unwrap();
                tasks.push(submit(&source, number).await);
            }
        });
        let mut moving = start_move(&services[0], &services[1], folder);
        runtime.block_on(pause(after_ms));
        interrupted += u32::from(moving.try_wait().unwrap().is_none());
        let data = ["here", "there"][turn % 2];
        services[turn % 2].kill();
        // It now has another address, so that the move cannot continue.
        services[turn % 2] = start(data, folder);
        moving.kill().unwrap();
        moving.wait().unwrap();
    }
    let ended = start_move(&services[0], &services[1], folder).wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{told}");
    assert!(interrupted >= 5, "{interrupted}");

    runtime.block_on(async {
        let (source, target) = (connect(&services[0]).await, connect(&services[1]).await);
        let workers =
            [worker(&source, "here", &attempts).await, worker(&target, "there", &attempts).await];
        judge(&source, &target, &tasks, &attempts).await;
        for worker in workers {
            worker.drain(Duration::from_secs(5)).await.unwrap();
        }
    });
}

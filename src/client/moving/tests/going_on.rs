//! Tasks that continue at the source during a move.
use super::*;
use longhaul_core::protocol::register::{MovedMark, QueueTask};

/// A move is interrupted before it has closed anything, and the source is resumed. The next round
/// must update the copies: with outdated ones, a task would lose an attempt and a checkpoint, and
/// the copy of a completed task would be deleted.
#[test]
fn what_goes_on_between_two_moves_is_copied_again() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    let tasks = ["fails once", "has its result", "is new"].map(|text| stage.submit(text));
    let imported = by_file(&stage, FROM, TO).1;
    assert_eq!((imported.open, imported.over), (3, 0));
    let worker = stage.worker(FROM);
    let _: Text = engine.wait(&tasks[1]).unwrap();
    engine.advance(Duration::from_secs(1));
    engine.run(client.queue(FROM).pause()).unwrap();
    engine.run(worker.drain(Duration::from_secs(5))).unwrap();
    stage.round(usize::MAX).unwrap();
    let statuses = stage.statuses(TO);
    let status = |task: &TaskRef| statuses[&stage.here(task).id];
    assert_eq!(status(&tasks[0]), TaskStatus::Retrying);
    assert_eq!(status(&tasks[1]), TaskStatus::Completed);
    let result: Text = engine.wait(&stage.here(&tasks[1])).unwrap();
    assert_eq!(result.0, "has its result: done");
}

/// A worker that has not yet read the pause claims a task that was copied as new. Closing the task
/// while it runs would run it twice.
#[test]
fn a_task_that_begins_after_it_was_copied_is_left_alone_and_copied_again() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    let tasks = ["slow", "new"].map(|text| stage.submit(text));
    assert_eq!(by_file(&stage, FROM, TO).1.open, 2);
    let worker = stage.worker(FROM);
    engine.advance(Duration::from_secs(1));
    engine.run(client.queue(FROM).pause()).unwrap();

    let close = || stage.engine.run(client.queue(FROM).close_moved(&client.queue(TO))).unwrap();
    let left = tasks.iter().map(|task| task.id).collect();
    assert_eq!(close(), Closed { left, ..Closed::default() });
    assert_eq!(stage.statuses(FROM)[&tasks[0].id], TaskStatus::Running);
    // Ended tasks are copied, running ones are copied once they have ended, and neither kind is
    // closed.
    let imported = by_file(&stage, FROM, TO).1;
    assert_eq!((imported.known, imported.again), (2, 1));
    assert_eq!(close(), Closed { left: vec![tasks[0].id], ..Closed::default() });

    let result: Text = engine.wait(&tasks[0]).unwrap();
    assert_eq!(result.0, "slow: done");
    let (_, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((imported.again, closed), (1, Closed::default()));
    assert_eq!(close(), Closed::default());
    let worker_there = stage.worker(TO);
    engine.run(client.queue(TO).resume()).unwrap();
    engine.advance(Duration::from_secs(120));
    for (task, text) in tasks.iter().zip(["slow", "new"]) {
        assert_eq!(stage.statuses(TO)[&stage.here(task).id], TaskStatus::Completed);
        assert_eq!(stage.runs_of(text), [(FROM.to_owned(), 1, None)]);
    }
    drop((worker, worker_there));
}

#[test]
fn a_task_that_runs_is_taken_from_its_worker_and_goes_on_from_its_checkpoint() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    let tasks: Vec<_> = (0..3).map(|number| stage.submit(&format!("slow {number}"))).collect();
    let worker = stage.worker(FROM);
    engine.advance(Duration::from_secs(1));
    let (imported, closed) = engine.run(async {
        let mut export = client.queue(FROM).export_paused().await.unwrap();
        assert_eq!(export.running(), 3);
        assert_eq!(export.take_running().await.unwrap(), 3);
        assert_eq!(export.running(), 0);
        write(&mut export, &stage.file()).await;
        let imported = client.queue(TO).import(&stage.file()).await.unwrap();
        (imported, client.queue(FROM).close_moved(&client.queue(TO)).await.unwrap())
    });
    assert_eq!((imported.open, closed.closed, &*closed.left), (3, 3, &[][..]));
    let worker_there = stage.worker(TO);
    for queue in [TO, FROM] {
        engine.run(client.queue(queue).resume()).unwrap();
    }
    engine.advance(Duration::from_secs(300));
    for (number, task) in tasks.iter().enumerate() {
        let runs = stage.runs_of(&format!("slow {number}"));
        let half_way = Some("half way".to_owned());
        assert_eq!(runs, [(FROM.to_owned(), 1, None), (TO.to_owned(), 2, half_way)]);
        assert_eq!(stage.statuses(FROM)[&task.id], TaskStatus::Cancelled);
        assert_eq!(stage.statuses(TO)[&stage.here(task).id], TaskStatus::Completed);
    }
    drop((worker, worker_there));
}

/// A move is interrupted between closing a task and marking it as closed, and repeated after the
/// ledger has forgotten the task. Then only the cancellation is known of its end.
#[test]
fn a_task_that_was_closed_long_ago_is_not_taken_for_one_that_was_cancelled() {
    let stage = Stage::new();
    let (engine, client) = (&stage.engine, stage.engine.client());
    engine.run(client.queue(FROM).pause()).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let worker = engine.start(stage.builder(FROM).retention(30 * day));
    let task = stage.submit("new");
    assert_eq!(stage.round(usize::MAX).unwrap().2.closed, 1);
    let old = QueueTask { level: Priority::Normal, id: task.id };
    engine.run(async {
        let mut marks = stage.read_marks().await;
        let mark = MovedMark { closed: false, ..marks.mark(old).unwrap() };
        let register = client.register_of(&client.names(TO).unwrap()).await.unwrap();
        marks.put(client, &register, vec![(old, mark)]).await.unwrap();
    });
    let names = client.names(FROM).unwrap();
    let is_sealed = || {
        let ledger = Ledger::open(client, partition(names.ledger.clone(), -1));
        engine.run(ledger).unwrap().sealed.get(task.id.entry_id()).is_some()
    };
    let hours =
        (0..60).take_while(|_| !is_sealed()).map(|_| engine.advance(Duration::from_secs(3600)));
    assert!(hours.count() < 60, "nobody has sealed it");
    engine.run(worker.drain(Duration::from_secs(5))).unwrap();

    let (exported, imported, closed) = stage.round(usize::MAX).unwrap();
    assert_eq!((exported.over, imported.again, closed), (0, 0, Closed::default()));
    assert_eq!(stage.marks().open().count(), 0);
    assert_eq!(stage.statuses(TO)[&stage.here(&task).id], TaskStatus::Ready);
}

/// A move was interrupted between the publishing of a copy and the bind of its dedupe key. The next
/// one published another copy, and both ran: a dedupe key is free as soon as its task is over.
#[test]
fn a_copy_that_was_not_bound_to_its_dedupe_key_is_found_by_the_next_move() {
    for_each_interruption(1, |polls| {
        let stage = Stage::new();
        let (engine, client) = (&stage.engine, stage.engine.client());
        let texts = ["of a", "of b"];
        for text in texts {
            let task = client.submission(FROM, &Text(text.to_owned())).dedupe_key(text);
            engine.run(task.send()).unwrap();
        }
        engine.run(client.queue(FROM).pause()).unwrap();
        let done = stage.round(polls).is_some();
        engine.advance(Duration::from_millis(100));
        stage.round(usize::MAX).unwrap();
        let _workers = [stage.worker(FROM), stage.worker(TO)];
        stage.resume(FROM);
        stage.resume(TO);
        engine.advance(Duration::from_secs(60));
        for text in texts {
            assert_eq!(stage.runs_of(text), [(TO.to_owned(), 1, None)], "{text}, {polls} polls");
        }
        done
    });
}

/// As above, and before the next move the task ends where it was, or its copy does where it is to
/// go: either of them is then the task.
#[test]
fn a_copy_that_was_not_bound_does_not_run_if_its_task_has_ended() {
    for ends_at in [FROM, TO] {
        for_each_interruption(1, |polls| {
            let stage = Stage::new();
            let (engine, client) = (&stage.engine, stage.engine.client());
            let task = client.submission(FROM, &Text("of a".to_owned())).dedupe_key("a");
            engine.run(task.send()).unwrap();
            engine.run(client.queue(FROM).pause()).unwrap();
            let done = stage.round(polls).is_some();
            engine.advance(Duration::from_millis(100));
            let worker = stage.worker(ends_at);
            stage.resume(ends_at);
            engine.advance(Duration::from_secs(20));
            engine.run(client.queue(ends_at).pause()).unwrap();
            engine.run(worker.drain(Duration::from_secs(5))).unwrap();
            stage.round(usize::MAX).unwrap();
            let _workers = [stage.worker(FROM), stage.worker(TO)];
            stage.resume(FROM);
            stage.resume(TO);
            engine.advance(Duration::from_secs(60));
            assert_eq!(stage.runs_of("of a").len(), 1, "ended at {ends_at}, {polls} polls");
            done
        });
    }
}

//! A worker whose machine requests a wrong step: the step is not performed but counted, and another
//! worker goes on with the task.

use super::*;
use longhaul_core::machine::Action;
use longhaul_core::protocol::entry::{Done, Outcome};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::OwnerId;
use longhaul_memory::Happening;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// Counts processors that are gone.
struct Gone(Arc<AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Astray {
    bench: Bench,
    task: TaskId,
    started: Diary,
    gone: Arc<AtomicUsize>,
}

impl Astray {
    /// A worker with one slot that runs a task without end. Tasks submitted later end at once.
    async fn new() -> Self {
        let (started, gone) = (Diary::default(), Arc::new(AtomicUsize::new(0)));
        let (notes, dropped) = (started.clone(), Arc::clone(&gone));
        let config = WorkerConfig { concurrency: 1, ..brisk() };
        let mut bench = Bench::new(config, None, move |context: TaskContext| {
            let first = notes.lines().is_empty();
            notes.note(context.task_id().to_string());
            let gone = Gone(Arc::clone(&dropped));
            async move {
                if first {
                    futures::future::pending::<()>().await;
                }
                drop(gone);
                Ok(Text("done".to_owned()))
            }
        });
        let task = bench.submit(&[]);
        bench.run_for(5 * SECOND).await;
        assert_eq!(started.lines().len(), 1, "it runs");
        Self { bench, task, started, gone }
    }

    /// Makes the machine request this, although no rule has led to it.
    fn ask_for(&mut self, action: Action) {
        self.bench.driver.lanes.get_mut(&LANE).unwrap().core.ask_for(action);
    }

    fn fold(&self) -> TaskFold {
        let mut fold = TaskFold::default();
        for message in self.bench.broker.full_log(&self.bench.ledger()) {
            let entry = ledger::read(&message).unwrap();
            if entry.task() == Some(self.task) {
                fold.apply(&entry);
            }
        }
        fold
    }

    /// Checks that the step was counted and not performed. The processor is gone and its slot free;
    /// the epoch was given back, and nothing was shown or acknowledged. The worker goes on with
    /// other tasks, and another worker with this one.
    async fn ends_with_others(mut self) {
        self.bench.run_for(30 * SECOND).await;
        let stats = self.bench.driver.stats.read();
        assert_eq!((stats.violations, stats.fenced, stats.started), (1, 0, 1), "{stats:?}");
        assert_eq!(self.gone.load(Ordering::Relaxed), 1);
        assert_eq!(self.bench.driver.slots.free(), 1);
        let TaskFold { phase, epoch, attempt, .. } = self.fold();
        assert_eq!((phase, epoch, attempt), (Phase::Retry, Epoch(1), 0));
        assert!(!self.bench.is_acked(self.task));
        let shown = self.bench.shown();
        assert!(shown.iter().all(|(_, metadata)| !metadata.is_terminal()), "{shown:?}");

        let other = self.bench.submit(&[]);
        self.bench.run_for(5 * SECOND).await;
        assert_eq!(self.started.lines()[1..], [other.to_string()]);

        let broker = self.bench.broker.clone();
        let mut second = Bench::on(broker, "second", brisk(), None, |_| async {
            Ok(Text("done by the second".to_owned()))
        });
        for _ in 0..60 {
            second.run_for(SECOND).await;
            self.bench.run_for(SECOND).await;
        }
        assert_eq!(self.fold().phase, Phase::Completed);
        assert!(self.bench.is_acked(self.task));
        assert_eq!(self.bench.driver.stats.read().violations, 1);
        assert_eq!(self.started.lines().len(), 2, "it was not started here again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_start_of_an_epoch_does_not_leave() {
    let mut astray = Astray::new().await;
    let task = astray.task;
    astray.ask_for(Action::Start { task, epoch: Epoch(1), attempt: 1 });
    astray.ends_with_others().await;
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_another_epoch_does_not_leave() {
    let mut astray = Astray::new().await;
    let owner = astray.bench.driver.lanes[-1].core.machine().owner();
    let key = OnceKey { task: astray.task, epoch: Epoch(2), owner, serial: 1_000 };
    let done = Done { key, attempt: 1, outcome: Outcome::Completed, writer: None };
    astray.ask_for(Action::Publish(Entry::Done(done)));
    astray.ends_with_others().await;

    let mut astray = Astray::new().await;
    let key = OnceKey { epoch: Epoch(1), owner: OwnerId(5), ..key };
    astray.ask_for(Action::Publish(Entry::Done(Done { key, ..done })));
    astray.ends_with_others().await;
}

#[tokio::test(start_paused = true)]
async fn the_ack_of_a_running_task_does_not_leave() {
    let mut astray = Astray::new().await;
    astray.ask_for(Action::Ack(astray.task.entry_id()));
    astray.ends_with_others().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_running_task_is_not_shown() {
    let mut astray = Astray::new().await;
    astray.ask_for(Action::ShowOutcome(astray.task));
    astray.ends_with_others().await;
}

/// The driver builds the entry from its own data, so its agreement with the ledger is checked at
/// the end.
#[tokio::test(start_paused = true)]
async fn an_entry_with_another_end_is_not_shown() {
    let mut astray = Astray::new().await;
    let lane = astray.bench.driver.lanes.get_mut(&LANE).unwrap();
    assert!(!lane.core.may_show(astray.task, Phase::Completed));
    astray.ends_with_others().await;
}

/// Without another worker, the delivery of a task set aside comes back again and again. It is
/// handed back at most once per heartbeat interval.
#[tokio::test(start_paused = true)]
async fn a_delivery_that_comes_back_is_handed_back_at_leisure() {
    let mut astray = Astray::new().await;
    astray.ask_for(Action::Ack(astray.task.entry_id()));
    astray.bench.run_for(100 * SECOND).await;
    let topic = astray.bench.at(&astray.bench.names.task, -1);
    let name = topic.to_string();
    let received = astray.bench.broker.with_history(|history| {
        let of_task = |what: &Happening| {
            matches!(what, Happening::Received { partition, position, subscription: Some(_), .. }
                if **partition == *name && position.entry_id() == astray.task.entry_id())
        };
        let events = history.events().iter();
        events.fold(0, |count, event| count + usize::from(of_task(&event.what)))
    });
    let heartbeats = 100;
    assert_eq!(brisk().heartbeat, SECOND);
    assert!((2..=heartbeats + 2).contains(&received), "{received} of {heartbeats}");
}

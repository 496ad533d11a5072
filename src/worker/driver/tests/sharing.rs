//! Distributing the slots of a worker over several topics.

use super::*;
use longhaul_core::protocol::fold::Phase;

/// The start of each task, with the name of its topic.
type Starts = Arc<Mutex<Vec<(Duration, String, TaskId)>>>;

/// A worker with this number of slots that notes each start. `takes` gives the duration of a
/// topic's tasks.
fn noting(
    concurrency: usize,
    takes: impl Fn(&str) -> Duration + Send + Sync + 'static,
) -> (Bench, Starts) {
    let starts = Starts::default();
    let notes = Arc::clone(&starts);
    let config = WorkerConfig { concurrency, ..WorkerConfig::default() };
    let clock = longhaul_memory::simulated_clock(0);
    let begin = clock.now();
    let bench = Bench::new(config, None, move |context| {
        let topic = context.topic().rsplit_once('/').map_or("", |(_, topic)| topic).to_owned();
        let takes = takes(&topic);
        notes.lock().unwrap().push((clock.now().since(begin), topic, context.task_id()));
        end_after(takes)
    });
    (bench, starts)
}

/// The time the broker needs for a delivery, with room to spare.
const DELIVERED: Duration = Duration::from_millis(100);

/// Regression: tasks of a topic of higher precedence were delivered with the others, and got a slot
/// only in their turn.
#[tokio::test(start_paused = true)]
async fn no_task_starts_while_one_of_a_higher_precedence_waits() {
    let (short, long) = (SECOND / 2, 7 * SECOND);
    for (concurrency, low, low_takes) in [
        (1, 700, short),
        (4, 700, short),
        (3, 40, short),
        (1, 5, short),
        (16, 1500, short),
        // Tasks that wait for longer than a second go back to the broker and come again.
        (1, 40, long),
        (2, 40, long),
    ] {
        let takes = move |topic: &str| match topic {
            "tasks-high" => SECOND / 4,
            "tasks" => low_takes,
            _ => unreachable!("{topic}"),
        };
        let (mut bench, starts) = noting(concurrency, takes);
        let high = bench.add_topic("tasks-high", Share::default().precedence(1), Some(2));
        let begin = bench.broker.clock().now();
        for _ in 0..low {
            bench.submit_to(&bench.names.task, -1, &[]);
        }
        let mut submitted = Vec::new();
        for round in 0..12 {
            bench.run_for(Duration::from_millis(1700 + 130 * round)).await;
            for number in 0..1 + 3 * i32::try_from(round).unwrap() {
                let task = bench.submit_to(&high.task, number % 2, &[]);
                submitted.push((bench.broker.clock().now().since(begin), task));
            }
        }
        bench.run_for(120 * SECOND).await;
        bench.turns = 0;
        let starts = starts.lock().unwrap().clone();
        for (at, task) in &submitted {
            let of_task =
                |(_, topic, id): &&(Duration, String, TaskId)| topic == "tasks-high" && id == task;
            let (begun, ..) = starts.iter().find(of_task).unwrap();
            let passed_over = starts.iter().filter(|(other, topic, _)| {
                topic == "tasks" && *other > *at + DELIVERED && other < begun
            });
            let passed_over = passed_over.count();
            assert_eq!(
                passed_over, 0,
                "{task} of {at:?} began at {begun:?}, with {concurrency} slots"
            );
        }
        let others = starts.iter().filter(|(_, topic, _)| topic == "tasks").count();
        assert!(others > 3 * concurrency || others == low, "{others}");
    }
}

/// Topics that share by weight: each gets its share, and the one with the smallest keeps going all
/// the time.
#[tokio::test(start_paused = true)]
async fn starts_follow_the_weights_and_none_is_starved() {
    for concurrency in [1, 2, 8] {
        let (mut bench, starts) = noting(concurrency, |_| SECOND / 5);
        bench.driver.shares = Shares::new(concurrency);
        bench.driver.shares.add(Share::weight(6));
        bench.driver.shares.add_lane(0);
        let others = [("half", 3), ("least", 1)];
        let others =
            others.map(|(name, weight)| bench.add_topic(name, Share::weight(weight), None));
        let tasks = bench.names.task.clone();
        for topic in [&tasks, &others[0].task, &others[1].task] {
            for _ in 0..80 * concurrency {
                bench.submit_to(topic, -1, &[]);
            }
        }
        bench.run_for(20 * SECOND).await;
        let starts = starts.lock().unwrap().clone();
        let of = |name: &str| starts.iter().filter(|(_, topic, _)| topic == name).count();
        let counts = ["tasks", "half", "least"].map(of);
        let tenth = counts.iter().sum::<usize>() as f64 / 10.0;
        assert!(tenth > 8.0 * concurrency as f64, "the slots are used: {counts:?}");
        for (count, part) in counts.iter().zip([6.0, 3.0, 1.0]) {
            let error = (*count as f64 / tenth / part - 1.0).abs();
            assert!(error < 0.15, "{counts:?} with {concurrency} slots");
        }
        let mut last = Duration::ZERO;
        for (at, ..) in starts.iter().filter(|(_, topic, _)| topic == "least") {
            let bound = SECOND / 5 * 14 / u32::try_from(concurrency).unwrap() + SECOND;
            assert!(*at - last <= bound, "{:?} without one, with {concurrency} slots", *at - last);
            last = *at;
        }
    }
}

/// Two workers with four slots each, and a batch of this number of tasks of two seconds, delivered
/// to one of them. Each notes which tasks it begins.
async fn two_on_a_batch(count: usize) -> ([Bench; 2], [Diary; 2], Vec<TaskId>) {
    let config = WorkerConfig { concurrency: 4, ..WorkerConfig::default() };
    let notes = [Diary::default(), Diary::default()];
    let body = |notes: &Diary| {
        let notes = notes.clone();
        move |context: TaskContext| {
            notes.note(context.task_id().to_string());
            end_after(2 * SECOND)
        }
    };
    let mut first = Bench::new(config.clone(), None, body(&notes[0]));
    let mut second = Bench::on(first.broker.clone(), "second", config, None, body(&notes[1]));
    tokio::join!(first.run_for(20 * SECOND), second.run_for(20 * SECOND));
    let message = Outgoing { payload: "task".into(), ..Outgoing::default() };
    let positions =
        first.broker.publish_batch(&first.at(&first.names.task, -1), vec![message; count]);
    let tasks = positions.into_iter().map(|position| TaskId::new(position, -1)).collect();
    ([first, second], notes, tasks)
}

/// Regression: a Java producer sends tasks that are submitted at once as one message. Of two idle
/// workers with four slots each, the one with the delivery ran all 32 tasks of two seconds, in 16
/// seconds instead of 8.
#[tokio::test(start_paused = true)]
async fn idle_workers_take_what_waits_of_a_batch() {
    let ([mut first, mut second], notes, tasks) = two_on_a_batch(32).await;
    tokio::join!(first.run_for(11 * SECOND), second.run_for(11 * SECOND));
    let ran = notes.each_ref().map(|notes| notes.lines().len());
    assert_eq!(ran.iter().sum::<usize>(), 32, "{ran:?}");
    assert!(ran.iter().all(|ran| *ran >= 12), "{ran:?}");
    assert!(first.is_acked(tasks[0]));
}

/// The worker that has offered the rest of its batch dies. The batch is delivered again, and each
/// offered task runs once.
#[tokio::test(start_paused = true)]
async fn what_is_offered_of_a_batch_outlives_the_worker_that_holds_it() {
    let (mut both, notes, tasks) = two_on_a_batch(40).await;
    let [first, second] = &mut both;
    tokio::join!(first.run_for(3 * SECOND), second.run_for(3 * SECOND));
    let begun = notes.each_ref().map(|notes| notes.lines().len());
    assert!(begun.iter().all(|begun| *begun >= 4), "both work on it: {begun:?}");
    let holder = usize::from(begun[1] > begun[0]);
    let [first, second] = both;
    let mut left = if holder == 0 { second } else { first };
    left.run_for(120 * SECOND).await;
    let machine = left.driver.lanes[-1].core.machine();
    let open = tasks.iter().filter(|task| machine.fold(**task).phase != Phase::Completed);
    assert_eq!(open.collect::<Vec<_>>(), [&tasks[0]; 0]);
    assert!(left.is_acked(tasks[0]));
    let mut ran = notes[1 - holder].lines();
    ran.sort();
    let starts = ran.len();
    ran.dedup();
    assert_eq!(starts, ran.len(), "none runs twice at the worker that is left");
}

/// Regression: a full worker handed a task back after a second, and the broker redelivered it to
/// the same worker, because that had requested one more delivery meanwhile. This went on as long as
/// the worker was full, while another one idled.
#[tokio::test(start_paused = true)]
async fn a_task_that_a_full_worker_hands_back_goes_to_an_idle_one() {
    let config = WorkerConfig { concurrency: 1, ..WorkerConfig::default() };
    let diary = Diary::default();
    let body = |notes: &Diary| {
        let notes = notes.clone();
        move |context: TaskContext| {
            let takes = context.properties().get("takes").map_or(0, |takes| takes.parse().unwrap());
            notes.note(context.task_id().to_string());
            end_after(takes * SECOND)
        }
    };
    let mut first = Bench::new(config.clone(), None, body(&diary));
    // Like the session with Pulsar, which requests each delivery.
    first.broker.set_faults(Faults { prefetch: 0, ..Faults::quiet() });
    let mut second = Bench::on(first.broker.clone(), "second", config, None, body(&diary));
    tokio::join!(first.run_for(SECOND), second.run_for(SECOND));
    for takes in ["5", "100"] {
        first.submit(&[("takes", takes)]);
    }
    tokio::join!(first.run_for(SECOND), second.run_for(SECOND));
    assert_eq!(diary.lines().len(), 2, "both are full");
    for _ in 0..4 {
        first.submit(&[]);
    }
    tokio::join!(first.run_for(6 * SECOND), second.run_for(6 * SECOND));
    assert_eq!(diary.lines().len(), 6);
}

/// A topic of higher precedence that cannot be worked on, for example because its ledger is
/// unavailable, must not delay others.
#[tokio::test(start_paused = true)]
async fn a_topic_above_that_cannot_be_worked_on_holds_up_none() {
    let (mut bench, starts) = noting(2, |_| SECOND / 10);
    let high = bench.add_topic("tasks-high", Share::default().precedence(1), None);
    bench.run_for(2 * SECOND).await;
    bench.broker.stall_publishes(&bench.at(&high.ledger, -1), 60 * SECOND);
    bench.run_for(15 * SECOND).await;
    for _ in 0..10 {
        bench.submit_to(&high.task, -1, &[]);
        bench.submit_to(&bench.names.task, -1, &[]);
    }
    bench.run_for(30 * SECOND).await;
    let starts = starts.lock().unwrap().clone();
    let of = |name: &str| starts.iter().filter(|(_, topic, _)| topic == name).count();
    assert_eq!((of("tasks"), of("tasks-high")), (10, 0));
}

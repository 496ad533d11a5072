//! Which request gets which task.

use super::*;
use crate::client::TaskRef;
use crate::lease::LeaseToken;
use bytes::Bytes;
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::task::EntryId;
use std::time::SystemTime;
use tokio::sync::oneshot;

struct Bench {
    desk: LeaseQueue,
    replies: BTreeMap<LeaseRequestId, oneshot::Receiver<Result<Vec<Lease>, LeaseError>>>,
}

const fn task(entry: u64) -> LaneTask {
    let EntryId { ledger, entry } = EntryId { ledger: 1, entry };
    (LaneId::new(0, -1), TaskId { ledger, entry, partition: -1, batch_index: None })
}

fn of(name: &str) -> Option<TaskType> {
    Some(TaskType::of(Some(name)))
}

impl Bench {
    /// Requests, in this order, for a number of tasks of these types, or of any type if there are
    /// none.
    fn of(wishes: &[(usize, &[&str])]) -> Self {
        let mut bench = Self { desk: LeaseQueue::default(), replies: BTreeMap::new() };
        for (id, (count, types)) in (1..).zip(wishes) {
            let request = LeaseRequest::of(format!("w{id}")).count(*count);
            let request =
                if types.is_empty() { request } else { request.types(types.iter().copied()) };
            let (reply, granted) = oneshot::channel();
            bench.desk.ask(LeaseRequestId(id), request, reply);
            bench.replies.insert(LeaseRequestId(id), granted);
        }
        bench
    }

    /// The request that gets a task of this type.
    fn bind(&mut self, entry: u64, task_type: Option<TaskType>) -> Option<u64> {
        self.desk.bind(task(entry), task_type, 1).map(|bound| bound.wish.0)
    }

    /// Claims and grants a task, and returns what its attendant is told.
    fn grant(&mut self, entry: u64) -> mpsc::Receiver<LeaseNotice> {
        let (attendant, told) = mpsc::channel(1);
        let (lane, task) = task(entry);
        self.desk.attendants.insert((lane, task, Epoch(1)), attendant);
        self.desk.grant((lane, task), lease(task));
        told
    }

    fn wanted(&self, name: &str) -> usize {
        of(name).map_or(0, |name| self.desk.wanted.of(name))
    }
}

fn lease(task: TaskId) -> Lease {
    Lease {
        token: LeaseToken { task, epoch: Epoch(1), owner: OwnerId(1) },
        task: TaskRef { topic: "tasks".to_owned(), id: task },
        payload: Bytes::new(),
        properties: BTreeMap::new(),
        attempt: 1,
        max_attempts: 3,
        lease_time: Duration::from_secs(30),
        expires_at: SystemTime::UNIX_EPOCH,
        budget: None,
        checkpoint: None,
    }
}

fn is_given_back(told: &mut mpsc::Receiver<LeaseNotice>) -> bool {
    matches!(told.try_recv(), Ok(LeaseNotice::Unwanted))
}

/// A request for several tasks that was given up while its last claim was in flight kept the leases
/// that it had got: their tasks ran with nobody for the whole lease time, and lost an attempt.
#[test]
fn leases_of_a_request_that_gets_no_answer_are_given_back() {
    type End = fn(&mut Bench);
    let gone: End = |bench| bench.desk.gone(LeaseRequestId(1));
    let deaf: End = |bench| bench.replies.clear();
    for end in [gone, deaf] {
        let mut bench = Bench::of(&[(3, &[])]);
        assert_eq!([1, 2, 3].map(|entry| bench.bind(entry, None)), [Some(1); 3]);
        let mut first = bench.grant(1);
        assert!(!is_given_back(&mut first), "it waits for the others");
        end(&mut bench);
        let mut second = bench.grant(2);
        bench.desk.unbind(task(3));
        assert!(is_given_back(&mut first) && is_given_back(&mut second));
        assert!(bench.desk.attendants.is_empty(), "no report on them is taken");
    }
}

/// The worker was told to drain while it waited: what it has got already is its own.
#[test]
fn who_drains_gets_what_was_granted_and_nothing_more() {
    let mut bench = Bench::of(&[(2, &[])]);
    bench.desk.wishes.get_mut(&LeaseRequestId(1)).unwrap().worker =
        Some(WorkerIdentity::lessee("ann".to_owned(), "1".to_owned()));
    assert_eq!([1, 2].map(|entry| bench.bind(entry, None)), [Some(1); 2]);
    let mut first = bench.grant(1);
    bench.desk.refuse_drained(|_| true);
    let answer = bench.replies.get_mut(&LeaseRequestId(1)).unwrap().try_recv().unwrap();
    assert_eq!(answer.unwrap().len(), 1);
    let mut second = bench.grant(2);
    assert!(!is_given_back(&mut first) && is_given_back(&mut second));
}

/// The answer with 16 large tasks was longer than any client reads.
#[test]
fn tasks_that_do_not_fit_into_an_answer_go_to_the_next_request() {
    let mut bench = Bench { desk: LeaseQueue::default(), replies: BTreeMap::new() };
    for id in [1, 2] {
        let request = LeaseRequest::of("w").count(4).bytes(10);
        let (reply, granted) = oneshot::channel();
        bench.desk.ask(LeaseRequestId(id), request, reply);
        bench.replies.insert(LeaseRequestId(id), granted);
    }
    let mut bind = |entry, bytes| bench.desk.bind(task(entry), None, bytes).map(|it| it.wish.0);
    assert_eq!(
        [bind(1, 6), bind(2, 4), bind(3, 1), bind(4, 50)],
        [Some(1), Some(1), Some(2), None]
    );
    assert_eq!(bench.desk.free(), 0, "neither has room");
    bench.desk.unbind(task(2));
    assert_eq!(bench.desk.free(), 1, "the claim had no effect");
    drop(bench.grant(1));
    let answer = bench.replies.get_mut(&LeaseRequestId(1)).unwrap().try_recv().unwrap();
    assert_eq!(answer.unwrap().len(), 1);
    // One that is too large for any answer is granted alone.
    let mut alone = Bench::of(&[(4, &[])]);
    alone.desk.wishes.get_mut(&LeaseRequestId(1)).unwrap().room = 10;
    assert!(alone.desk.bind(task(5), None, 50).is_some());
    assert!(alone.desk.bind(task(6), None, 0).is_some());
    assert!(alone.desk.bind(task(7), None, 1).is_none());
}

#[test]
fn who_has_waited_longest_of_those_that_want_it_gets_a_task() {
    let mut bench = Bench::of(&[(1, &["a"]), (2, &["a", "b"]), (1, &[]), (1, &["b"])]);
    assert_eq!((bench.desk.free(), bench.wanted("a"), bench.wanted("b")), (5, 4, 4));
    let got: Vec<_> = [of("b"), of("c"), of("a"), of("b"), of("b"), of("a")]
        .into_iter()
        .zip(0..)
        .map(|(task_type, entry)| bench.bind(entry, task_type))
        .collect();
    assert_eq!(got, [Some(2), Some(3), Some(1), Some(2), Some(4), None]);
    assert_eq!((bench.desk.free(), bench.desk.wanted()), (0, None));
}

#[test]
fn a_task_without_a_type_is_for_whoever_takes_any() {
    let mut bench = Bench::of(&[(1, &["a"]), (1, &[])]);
    assert_eq!(bench.bind(1, Some(TaskType::of(None))), Some(2));
    assert_eq!(bench.bind(2, Some(TaskType::of(None))), None);
    // Without a request for types, none is looked for.
    assert_eq!(Bench::of(&[(1, &[])]).bind(1, None), Some(1));
}

#[test]
fn what_came_to_nothing_is_asked_for_again_and_by_the_same_types() {
    let mut bench = Bench::of(&[(1, &["a", "b"])]);
    assert_eq!(bench.bind(1, of("a")), Some(1));
    assert_eq!((bench.wanted("a"), bench.wanted("b"), bench.desk.free()), (0, 0, 0));
    bench.desk.unbind(task(1));
    assert_eq!((bench.wanted("a"), bench.wanted("b"), bench.desk.free()), (1, 1, 1));
    assert_eq!(bench.bind(2, of("b")), Some(1));
}

#[test]
fn a_request_that_is_given_up_asks_for_nothing() {
    let mut bench = Bench::of(&[(2, &["a", "b"]), (1, &["a"])]);
    assert_eq!(bench.bind(1, of("a")), Some(1));
    bench.desk.gone(LeaseRequestId(1));
    assert_eq!((bench.wanted("a"), bench.wanted("b"), bench.desk.free()), (1, 0, 1));
    bench.desk.unbind(task(1));
    bench.desk.gone(LeaseRequestId(2));
    assert_eq!((bench.desk.free(), bench.desk.wanted(), bench.desk.typed.len()), (0, None, 0));
}

/// A repeated name counts once.
#[test]
fn a_type_that_is_named_twice_counts_once() {
    let bench = Bench::of(&[(1, &["a", "a"])]);
    assert_eq!(bench.wanted("a"), 1);
}

/// Regression: a request that does not wait was forgotten while the claim for it was in flight. The
/// task was given back, so such requests never got a task.
#[test]
fn who_may_wait_no_longer_waits_for_what_is_on_its_way_and_for_nothing_else() {
    let mut bench = Bench::of(&[(3, &["a"]), (1, &[])]);
    assert_eq!((bench.bind(1, of("a")), bench.bind(2, of("a"))), (Some(1), Some(1)));
    for wish in [LeaseRequestId(1), LeaseRequestId(2)] {
        bench.desk.last(wish);
    }
    assert_eq!((bench.desk.free(), bench.desk.wanted()), (0, None));
    let mut answer = |id| bench.replies.get_mut(&LeaseRequestId(id)).unwrap().try_recv();
    assert!(answer(1).is_err(), "two are on their way");
    assert!(answer(2).unwrap().unwrap().is_empty());
    bench.desk.unbind(task(1));
    assert_eq!((bench.desk.free(), bench.bind(3, of("a"))), (0, None), "it asks for no other");
    bench.desk.unbind(task(2));
    assert!(
        bench.replies.get_mut(&LeaseRequestId(1)).unwrap().try_recv().unwrap().unwrap().is_empty()
    );
    bench.desk.last(LeaseRequestId(1));
}

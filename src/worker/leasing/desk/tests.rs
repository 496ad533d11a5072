//! Which request gets which task.

use super::*;
use longhaul_core::task::EntryId;
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
        self.desk.bind(task(entry), task_type).map(|bound| bound.wish.0)
    }

    fn wanted(&self, name: &str) -> usize {
        of(name).map_or(0, |name| self.desk.wanted.of(name))
    }
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

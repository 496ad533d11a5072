use super::*;
use crate::driver::ConsumerDelivery;
use crate::fake_driver::{FakeDriver, large, message, soon};
use crate::machine::UNTOLD_BYTES_MAX;
use futures::FutureExt;
use tokio::sync::mpsc;

fn after(entry: u64, batch_index: Option<u32>) -> Position {
    message(entry, batch_index).position
}

/// A follower, its driver, and the sink of its deliveries.
struct Bench {
    driver: FakeDriver,
    sink: mpsc::UnboundedSender<ConsumerDelivery>,
    follower: SessionFollower,
}

async fn bench() -> Bench {
    let mut driver = FakeDriver::new();
    let follow = Follow { start: Start::Earliest, compacted: false };
    let opening = SessionFollower::open(Arc::clone(&driver.link), "t".to_owned(), follow);
    let (follower, (_, sink)) = tokio::join!(opening, driver.open_consumer(7));
    Bench { driver, sink, follower: follower.unwrap() }
}

#[tokio::test(start_paused = true)]
async fn a_follower_begins_where_it_is_told_to() {
    for (start, place) in [
        (Start::Earliest, StartPlace::Earliest),
        (Start::Latest, StartPlace::Latest),
        (Start::After(after(3, Some(1))), StartPlace::After(after(3, Some(1)))),
    ] {
        let mut driver = FakeDriver::new();
        let follow = Follow { start, compacted: true };
        let opening = SessionFollower::open(Arc::clone(&driver.link), "t".to_owned(), follow);
        let (_follower, (options, _sink)) = tokio::join!(opening, driver.open_consumer(7));
        assert_eq!(options.topic, "t");
        let SubscriptionSpec::Reader { start, compacted: true, window: WINDOW, .. } =
            options.subscription
        else {
            panic!("{:?}", options.subscription)
        };
        assert_eq!(start, place);
    }
}

/// Deliveries that came before the end stay valid: otherwise a reader that continues after its last
/// message would read them twice.
#[tokio::test(start_paused = true)]
async fn a_follower_passes_on_what_came_and_then_says_why_it_ends() {
    let Bench { mut driver, sink, mut follower } = bench().await;
    sink.send(ConsumerDelivery::Entry(vec![message(1, Some(0)), message(1, Some(1))])).unwrap();
    sink.send(ConsumerDelivery::Over(error::unreachable("here", "moved"))).unwrap();
    drop(sink);
    for index in 0..2 {
        assert_eq!(soon(follower.next()).await.unwrap(), message(1, Some(index)));
    }
    for _ in 0..2 {
        assert_eq!(soon(follower.next()).await.unwrap_err().cause, "moved");
    }
    let asking = follower.last_position().now_or_never().expect("nobody is asked");
    assert_eq!(asking.unwrap_err().cause, "moved");
    assert!(driver.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_follower_whose_connection_ends_says_why() {
    let Bench { driver, sink, mut follower } = bench().await;
    driver.end(error::unreachable("here", "gone"));
    drop(sink);
    assert_eq!(soon(follower.next()).await.unwrap_err().cause, "gone");
}

#[tokio::test(start_paused = true)]
async fn a_follower_tells_what_it_has_taken_and_is_closed_with_its_user() {
    let Bench { mut driver, sink, mut follower } = bench().await;
    sink.send(ConsumerDelivery::Entry(vec![large(1, UNTOLD_BYTES_MAX)])).unwrap();
    soon(follower.next()).await.unwrap();
    let taken = format!("Taken {{ consumer: 7, count: 1, bytes: {UNTOLD_BYTES_MAX} }}");
    assert_eq!(driver.called(), [taken]);
    drop(follower);
    assert_eq!(driver.called(), ["CloseConsumer(7)"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_position_is_what_the_broker_says() {
    let Bench { mut driver, mut follower, sink: _sink } = bench().await;
    for last in [Some(after(4, None)), None] {
        let (found, question) =
            tokio::join!(follower.last_position(), driver.answer(BrokerResponse::Last(last)));
        assert_eq!(found.unwrap(), last);
        assert!(matches!(question, BrokerRequest::Last { consumer: 7 }));
    }
    let (odd, _) = tokio::join!(follower.last_position(), driver.answer(BrokerResponse::Done));
    assert!(odd.unwrap_err().cause.contains("unexpected"));
}

/// A topic's log or compacted view in a fetch: its end, and the entry that arrives.
struct Shown {
    last: Option<u64>,
    entry: Vec<Message>,
}

/// Fetches a message from such a topic. Other views must not be read.
async fn fetched(at: Position, views: Vec<Shown>) -> Option<Message> {
    let mut driver = FakeDriver::new();
    let fetching = fetch(Arc::clone(&driver.link), "t", at);
    let broker = async {
        let mut sinks = Vec::new();
        for ((id, compacted), shown) in (1..).zip([false, true]).zip(views) {
            let (options, sink) = driver.open_consumer(id).await;
            let entry = StartPlace::At(Position { batch_index: None, ..at });
            let name = match options.subscription {
                SubscriptionSpec::Reader { ref name, .. } => name.clone(),
                SubscriptionSpec::Shared { .. } | SubscriptionSpec::KeyShared { .. } => {
                    String::new()
                }
            };
            let reader = SubscriptionSpec::Reader { name, start: entry, compacted, window: 0 };
            assert_eq!(options.subscription, reader);
            let last = BrokerResponse::Last(shown.last.map(|entry| after(entry, None)));
            driver.answer(last).await;
            if !shown.entry.is_empty() {
                let request = driver.next().await;
                let expected = format!("Request {{ consumer: {id}, count: 1 }}");
                assert_eq!(format!("{request:?}"), expected);
                sink.send(ConsumerDelivery::Entry(shown.entry)).unwrap();
            }
            sinks.push(sink);
            let closed = driver.next().await;
            assert_eq!(format!("{closed:?}"), format!("CloseConsumer({id})"));
        }
    };
    let (found, ()) = tokio::join!(soon(fetching), broker);
    assert!(driver.called().is_empty());
    found.unwrap()
}

/// Trimming may have left a message only in the compacted view, and compaction only in the log. A
/// task whose payload is not found never runs.
#[tokio::test(start_paused = true)]
async fn a_message_is_fetched_from_the_log_or_else_from_its_compacted_view() {
    let entry = || (0..3).map(|index| message(5, Some(index))).collect::<Vec<_>>();
    let (at, wanted) = (after(5, Some(1)), message(5, Some(1)));
    let is_last = || Shown { last: Some(5), entry: entry() };
    let behind = || Shown { last: Some(4), entry: Vec::new() };
    let empty = || Shown { last: None, entry: Vec::new() };
    let other = || Shown { last: Some(9), entry: vec![message(6, None)] };
    assert_eq!(fetched(at, vec![is_last()]).await, Some(wanted.clone()));
    for missing in [behind(), empty(), other()] {
        assert_eq!(fetched(at, vec![missing, is_last()]).await, Some(wanted.clone()));
    }
    assert_eq!(fetched(at, vec![behind(), empty()]).await, None);
    assert_eq!(fetched(after(5, Some(3)), vec![is_last(), other()]).await, None);
    let alone = Shown { last: Some(9), entry: vec![message(5, None)] };
    assert_eq!(fetched(after(5, None), vec![alone]).await, Some(message(5, None)));
}

/// Opens the reader of one view with entry 5 as its last, and lets the time for its delivery pass
/// unless it is given.
async fn view_of_five(driver: &mut FakeDriver, id: u64, here: Option<Message>) {
    let (_, sink) = driver.open_consumer(id).await;
    driver.answer(BrokerResponse::Last(Some(after(5, None)))).await;
    driver.next().await;
    if let Some(message) = here {
        sink.send(ConsumerDelivery::Entry(vec![message])).unwrap();
    }
    // The follower waits until its reader is closed.
    let closed = driver.next().await;
    assert_eq!(format!("{closed:?}"), format!("CloseConsumer({id})"));
}

/// A quiet topic whose log was trimmed to its end delivers nothing, so the first pass ended in an
/// error: an entry that only existed in the compacted view was never found.
#[tokio::test(start_paused = true)]
async fn an_entry_is_looked_for_in_the_compacted_view_also_if_nothing_comes_of_the_log() {
    let (mut driver, wanted) = (FakeDriver::new(), message(5, None));
    let fetching = fetch(Arc::clone(&driver.link), "t", wanted.position);
    let broker = async {
        view_of_five(&mut driver, 1, None).await;
        view_of_five(&mut driver, 2, Some(wanted.clone())).await;
    };
    let (found, ()) = tokio::join!(soon(fetching), broker);
    assert_eq!(found.unwrap(), Some(wanted));
}

/// A timeout of one view does not prove that the message is gone, whatever the other view returns.
#[tokio::test(start_paused = true)]
async fn an_entry_that_does_not_come_is_waited_for_a_limited_time() {
    for other in [None, Some(message(6, None))] {
        let mut driver = FakeDriver::new();
        let fetching = fetch(Arc::clone(&driver.link), "t", after(5, None));
        let broker = async {
            view_of_five(&mut driver, 1, None).await;
            view_of_five(&mut driver, 2, other).await;
        };
        let (found, ()) = tokio::join!(soon(fetching), broker);
        assert_eq!(found.unwrap_err().cause, "no message came in time");
    }
}

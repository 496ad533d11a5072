use super::*;
use crate::fake_driver::{FakeDriver, soon};
use crate::{Batching, error};
use futures::FutureExt;

/// Size limit of messages.
const BYTES_MAX: usize = 1_000;

/// A publisher, its driver, and the end of the producer as the driver holds it.
async fn bench() -> (FakeDriver, EndSignal, SessionPublisher) {
    let mut driver = FakeDriver::new();
    let (topic, batching) = ("t".to_owned(), Batching::Off);
    let options = ProducerOptions { topic, batching, schema: None };
    let opening = SessionPublisher::open(Arc::clone(&driver.link), options);
    let (publisher, (_, end)) = tokio::join!(opening, driver.open_producer(7, BYTES_MAX));
    (driver, end, publisher.unwrap())
}

fn outgoing(bytes: usize) -> Outgoing {
    Outgoing { payload: vec![b'x'; bytes].into(), ..Outgoing::default() }
}

/// Largest body that fits, in bytes.
fn body_max() -> usize {
    BYTES_MAX - weight(&outgoing(0))
}

#[tokio::test(start_paused = true)]
async fn a_message_is_handed_over_and_its_receipt_comes_back() {
    let (mut driver, _end, mut publisher) = bench().await;
    let receipt = publisher.send(outgoing(body_max())).await.unwrap();
    let ConnectionCall::Publish { producer: 7, publication, token } = driver.next().await else {
        panic!("not published")
    };
    assert_eq!(publication.message, outgoing(body_max()));
    let stored = longhaul_types::Position { ledger: 1, entry: 2, batch_index: None };
    token.on_receipt.tell(Ok(stored));
    assert_eq!(soon(receipt).await.unwrap(), stored);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_refused_and_takes_no_room() {
    let (mut driver, _end, mut publisher) = bench().await;
    let receipt = soon(publisher.send(outgoing(body_max() + 1))).await.unwrap();
    assert!(matches!(soon(receipt).await, Err(PublishError::TooLarge { .. })));
    assert!(driver.called().is_empty());
}

/// A message that was not handed over was never stored, and may be published again. A message of
/// unknown fate may have been stored.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_handed_over_is_known_not_to_be_stored() {
    let (driver, end, mut publisher) = bench().await;
    driver.end(error::unreachable("here", "gone"));
    let Err(error) = publisher.send(outgoing(1)).await else { panic!("handed over") };
    assert_eq!(error.cause, "gone");
    drop(end);

    let (mut driver, end, mut publisher) = bench().await;
    assert!(publisher.ended().now_or_never().is_none(), "it has not ended");
    end.set(error::unreachable("here", "moved"));
    let Err(error) = publisher.send(outgoing(1)).await else { panic!("handed over") };
    assert_eq!(error.cause, "moved");
    assert_eq!(soon(publisher.ended()).await.cause, "moved");
    assert!(driver.called().is_empty());
}

/// A driver that goes down with its runtime leaves no caller without an answer.
#[tokio::test(start_paused = true)]
async fn a_receipt_that_nobody_will_give_is_of_unknown_fate() {
    let (driver, _end, mut publisher) = bench().await;
    let receipt = publisher.send(outgoing(1)).await.unwrap();
    drop(driver);
    assert!(matches!(soon(receipt).await, Err(PublishError::Unknown(_))));
}

/// A publisher that is faster than the broker waits, and learns of the end while it waits.
#[tokio::test(start_paused = true)]
async fn who_waits_for_room_learns_of_the_end() {
    let (mut driver, end, mut publisher) = bench().await;
    publisher.message_bytes_max = usize::MAX;
    let first = publisher.send(outgoing(ROOM_BYTES)).await.unwrap();
    assert!(publisher.send(outgoing(1)).now_or_never().is_none(), "there is room");
    let over = async { end.set(error::unreachable("here", "moved")) };
    let (Err(error), ()) = tokio::join!(soon(publisher.send(outgoing(1))), over) else {
        panic!("handed over")
    };
    assert_eq!(error.cause, "moved");
    assert_eq!(driver.called().len(), 1);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_is_dropped_is_closed() {
    let (mut driver, _end, publisher) = bench().await;
    drop(publisher);
    assert_eq!(driver.called(), ["CloseProducer(7)"]);
}

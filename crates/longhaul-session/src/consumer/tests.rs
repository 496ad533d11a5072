use super::*;
use crate::driver::{ConsumerDelivery, ResponseChannel};
use crate::error;
use crate::fake_driver::{FakeDriver, large, message, soon};
use crate::machine::UNTOLD_BYTES_MAX;
use crate::machine::call::SubscriptionSpec;
use futures::FutureExt;
use tokio::sync::mpsc;

const ENTRY: EntryId = EntryId { ledger: 1, entry: 1 };

/// A consumer, its driver, and the sink of its deliveries.
struct Bench {
    driver: FakeDriver,
    sink: mpsc::UnboundedSender<ConsumerDelivery>,
    consumer: SessionConsumer,
}

async fn bench() -> Bench {
    let mut driver = FakeDriver::new();
    let subscription = SubscriptionSpec::Shared { name: "group".to_owned() };
    let options = ConsumerOptions { topic: "tasks".to_owned(), subscription };
    let opening = SessionConsumer::open(Arc::clone(&driver.link), options);
    let (consumer, (_, sink)) = tokio::join!(opening, driver.open_consumer(7));
    Bench { driver, sink, consumer: consumer.unwrap() }
}

fn batch(entry: u64, size: u32) -> Vec<Message> {
    (0..size).map(|index| message(entry, Some(index))).collect()
}

fn request(count: u32) -> String {
    format!("Request {{ consumer: 7, count: {count} }}")
}

/// A broker delivers whole batches. Messages beyond a request count towards the next one; otherwise
/// the session would request less than the consumer has room for, and in the end nothing.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_batch_counts_for_what_is_asked_for_next() {
    let Bench { mut driver, sink, mut consumer } = bench().await;
    consumer.request(2);
    sink.send(ConsumerDelivery::Entry(batch(1, 3))).unwrap();
    for delivered in batch(1, 3) {
        assert_eq!(soon(consumer.next()).await.unwrap(), delivered);
    }
    assert_eq!(driver.called(), [request(2), request(1)]);
    assert!(consumer.next().now_or_never().is_none());
    assert!(consumer.next().now_or_never().is_none());
    assert_eq!(driver.called(), [request(1)], "whoever waits has asked once");
}

/// Delivering the rest of a batch after the consumer's end would run tasks that other consumers
/// have received.
#[tokio::test(start_paused = true)]
async fn nothing_is_delivered_when_the_consumer_is_over_and_its_cause_is_told() {
    for told in [true, false] {
        let Bench { mut driver, sink, mut consumer } = bench().await;
        consumer.request(2);
        sink.send(ConsumerDelivery::Entry(batch(1, 2))).unwrap();
        assert_eq!(soon(consumer.next()).await.unwrap(), message(1, Some(0)));
        assert_eq!(driver.called(), [request(2)]);
        let cause = error::unreachable("here", "moved");
        sink.send(ConsumerDelivery::Entry(batch(2, 2))).unwrap();
        if told {
            sink.send(ConsumerDelivery::Over(cause)).unwrap();
        } else {
            driver.end(cause);
        }
        drop(sink);
        for _ in 0..2 {
            assert_eq!(soon(consumer.next()).await.unwrap_err().cause, "moved");
        }
        assert_eq!(consumer.hand_back(ENTRY).await.unwrap_err().cause, "moved");
        let asking = consumer.backlog().now_or_never().expect("nobody is asked");
        assert_eq!(asking.unwrap_err().cause, "moved");
    }
}

/// The consumer ends while a caller waits for a delivery.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_delivery_learns_of_the_end() {
    let Bench { driver, sink, mut consumer } = bench().await;
    let over = async {
        sink.send(ConsumerDelivery::Over(error::unreachable("here", "moved"))).unwrap();
        std::future::pending::<()>().await;
    };
    let error = tokio::select! { biased;
        delivery = consumer.next() => delivery.unwrap_err(),
        () = over => unreachable!("it waits for ever"),
    };
    assert_eq!(error.cause, "moved");
    drop(driver);
}

/// Messages that are returned unseen make room and are requested again. Otherwise each returned
/// batch would reduce the consumer's later deliveries.
#[tokio::test(start_paused = true)]
async fn what_is_handed_back_unseen_is_asked_for_again() {
    let Bench { mut driver, sink, mut consumer } = bench().await;
    consumer.request(4);
    sink.send(ConsumerDelivery::Entry(batch(1, 3))).unwrap();
    sink.send(ConsumerDelivery::Entry(vec![message(2, None)])).unwrap();
    assert_eq!(soon(consumer.next()).await.unwrap(), message(1, Some(0)));
    driver.called();
    let handed_back = |entry| format!("HandBack {{ consumer: 7, entry: {entry:?} }}");
    consumer.hand_back(ENTRY).await.unwrap();
    assert_eq!(driver.called(), [request(2), handed_back(ENTRY)]);
    assert_eq!(soon(consumer.next()).await.unwrap(), message(2, None));
    // No message of the entry waits in the consumer.
    let seen = EntryId { entry: 2, ..ENTRY };
    consumer.hand_back(seen).await.unwrap();
    assert_eq!(driver.called(), [handed_back(seen)]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_an_entry_that_is_handed_back_stays() {
    let Bench { sink, mut consumer, driver: _driver } = bench().await;
    consumer.request(4);
    // One message is taken, so that the others wait in the consumer.
    sink.send(ConsumerDelivery::Entry([batch(1, 2), batch(2, 2)].concat())).unwrap();
    soon(consumer.next()).await.unwrap();
    consumer.hand_back(ENTRY).await.unwrap();
    for index in 0..2 {
        assert_eq!(soon(consumer.next()).await.unwrap(), message(2, Some(index)));
    }
}

/// The machine counts the messages that wait here, and grants no permits when they are many: it
/// must be told of messages that were taken or handed back.
#[tokio::test(start_paused = true)]
async fn much_that_was_taken_is_told() {
    let Bench { mut driver, sink, mut consumer } = bench().await;
    consumer.request(3);
    let taken = |count, bytes| format!("Taken {{ consumer: 7, count: {count}, bytes: {bytes} }}");
    let entry = vec![large(1, UNTOLD_BYTES_MAX), large(1, UNTOLD_BYTES_MAX)];
    sink.send(ConsumerDelivery::Entry(entry)).unwrap();
    soon(consumer.next()).await.unwrap();
    assert_eq!(driver.called(), [request(3), taken(1, UNTOLD_BYTES_MAX)]);
    consumer.hand_back(ENTRY).await.unwrap();
    assert_eq!(driver.called()[..2], [taken(1, UNTOLD_BYTES_MAX), request(1)]);
}

#[tokio::test(start_paused = true)]
async fn an_ack_is_confirmed_by_the_broker_or_fails_with_the_connection() {
    let Bench { mut driver, mut consumer, sink: _sink } = bench().await;
    let receipts = [consumer.ack(ENTRY), consumer.ack(ENTRY)];
    for is_confirmed in [true, false] {
        let ConnectionCall::Ack { consumer: 7, entry: ENTRY, token: ResponseChannel::Ack(ack) } =
            driver.next().await
        else {
            panic!("no ack")
        };
        if is_confirmed {
            ack.tell(Ok(()));
        }
    }
    driver.end(error::unreachable("here", "gone"));
    let [first, second] = receipts;
    soon(first).await.unwrap();
    assert!(soon(second).await.is_err(), "nobody will answer");
    assert_eq!(soon(consumer.ack(ENTRY)).await.unwrap_err().cause, "gone");
}

#[tokio::test(start_paused = true)]
async fn the_backlog_is_what_the_broker_says() {
    let Bench { mut driver, mut consumer, sink: _sink } = bench().await;
    let backlog = Backlog { entries: 8, permits: 3, blocked: true };
    let (found, question) =
        tokio::join!(consumer.backlog(), driver.answer(BrokerResponse::Stats(backlog)));
    assert_eq!(found.unwrap(), backlog);
    assert!(matches!(question, BrokerRequest::Stats { consumer: 7 }));
    let (odd, _) = tokio::join!(consumer.backlog(), driver.answer(BrokerResponse::Done));
    assert!(odd.unwrap_err().cause.contains("unexpected"));
}

/// The broker withholds the messages of a consumer from others until that consumer is closed.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_dropped_is_closed() {
    let Bench { mut driver, consumer, sink: _sink } = bench().await;
    drop(consumer);
    assert_eq!(driver.called(), ["CloseConsumer(7)"]);
}

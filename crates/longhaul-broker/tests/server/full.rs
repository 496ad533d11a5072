//! Effects of a full disk on clients over real sockets.

use crate::client::{Client, PATIENCE, ask};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_wire::messages::{Command, CommandProducer, MessageIdData, ServerError};
use tokio::time::timeout;

const HELD: usize = 20;
const MIB: usize = 1024 * 1024;

/// A client's experience on a full disk.
#[derive(Debug, Default, PartialEq, Eq)]
struct Met {
    connections_given_up: u32,
    redelivered: u32,
    refused: u32,
}

/// A broker with a small disk.
fn small() -> Broker {
    let config = BrokerConfig {
        admin: Some(([127, 0, 0, 1], 0).into()),
        disk_bytes_max: Some(256 * 1024 * 1024),
        ..BrokerConfig::default()
    };
    Broker::start(config).unwrap()
}

/// A connection with a consumer of the topic `works`.
async fn consumer(broker: &Broker) -> Client {
    Client::consumer(broker.address(), "works", "s", 1000).await.unwrap()
}

async fn ask_for_producer(client: &mut Client) {
    let request_id = client.request_id();
    let producer = CommandProducer {
        topic: "big".to_owned(),
        producer_id: 2,
        request_id,
        ..CommandProducer::default()
    };
    client.send(producer).await.unwrap();
}

/// Publishes until this many refusals, as the C++ client does with a consumer beside it. After an
/// error for a message it closes the whole connection and reconnects. After a closed producer it
/// opens another one. A message without a receipt is sent again with its next producer.
async fn fill(broker: &Broker, client: &mut Client, times: u32) -> Met {
    let (mut met, mut sequence) = (Met::default(), 0);
    let body = vec![7; MIB];
    ask_for_producer(client).await;
    while met.refused < times {
        match client.answer().await.unwrap().command {
            Command::ProducerSuccess(_) => {
                client.publish(2, sequence, &body).await.unwrap();
            }
            Command::SendReceipt(_) => {
                sequence += 1;
                client.publish(2, sequence, &body).await.unwrap();
            }
            Command::SendError(_) => {
                met.refused += 1;
                met.connections_given_up += 1;
                *client = consumer(broker).await;
                ask_for_producer(client).await;
            }
            Command::Error(error) => {
                assert_eq!(error.error, ServerError::ProducerBlockedQuotaExceededError as i32);
                assert!(error.message.contains("raise the limit"), "{error:?}");
                met.refused += 1;
                ask_for_producer(client).await;
            }
            Command::CloseProducer(_) => ask_for_producer(client).await,
            Command::Message(_) => met.redelivered += 1,
            other => panic!("{other:?}"),
        }
    }
    met
}

/// A C++ or Python client that published on a full disk got an error for its message, closed its
/// connection with all consumers on it, and came back 10 times a second. Messages held by those
/// consumers were delivered again and again, and no send ever timed out.
#[tokio::test]
async fn a_full_disk_leaves_consumers_what_they_hold() {
    let broker = small();
    let mut client = consumer(&broker).await;
    let mut other = Client::producer(broker.address(), "works").await.unwrap();
    for sequence in 0..HELD as u64 {
        other.publish_one(1, sequence, b"work").await.unwrap();
    }
    let held: Vec<MessageIdData> = client.messages(HELD).await.unwrap();

    let met = fill(&broker, &mut client, 50).await;
    assert_eq!(met, Met { refused: 50, ..Met::default() });
    let metrics = ask(&broker, "GET", "/metrics");
    for line in ["longhaul_broker_disk_full 1", "longhaul_broker_disk_full_in_seconds 0"] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}: {metrics}");
    }

    // Consumers continue.
    for (request_id, id) in (1000..).zip(&held) {
        client.ack(1, id.clone(), request_id).await.unwrap();
    }
    let mut acked = 0;
    while acked < HELD {
        match client.answer().await.unwrap().command {
            Command::AckResponse(answer) => {
                assert_eq!(answer.error, None, "{answer:?}");
                acked += 1;
            }
            // The last requested producer.
            Command::Error(_) => {}
            other => panic!("{other:?}"),
        }
    }

    ask(&broker, "DELETE", "/admin/v2/persistent/public/default/big?force=true");
    let published = async {
        while client.produce("big", 3).await.is_err() {}
        client.publish_one(3, 0, b"again").await.unwrap();
    };
    timeout(PATIENCE, published).await.expect("there is room again");
    broker.shutdown().unwrap();
}

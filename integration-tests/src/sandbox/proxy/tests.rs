//! The forwarder in front of a plain listener: raw bytes are enough to see its effects.

use super::*;
use crate::wait::{stopwatch, until};
use bytes::BytesMut;
use longhaul_wire::frame::encode;
use longhaul_wire::messages::CommandPing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LIMIT: Duration = Duration::from_secs(10);
/// Long enough to show that nothing arrives.
const QUIET: Duration = Duration::from_millis(200);
const HELD: Way =
    Way { latency: Duration::ZERO, jitter: Duration::ZERO, bytes_per_second: None, held: true };

/// The forwarder, and both ends of a connection through it.
struct Stage {
    proxy: Proxy,
    client: TcpStream,
    broker: TcpStream,
}

impl Stage {
    async fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("pulsar://{}", listener.local_addr().unwrap());
        let proxy = Proxy::start(&url, 1).await.unwrap();
        let client = TcpStream::connect(proxy.address()).await.unwrap();
        let (broker, _) = listener.accept().await.unwrap();
        until("the connection", LIMIT, async || Ok((proxy.open() == 1).then_some(())))
            .await
            .unwrap();
        Self { proxy, client, broker }
    }
}

fn frame() -> BytesMut {
    let mut frame = BytesMut::new();
    encode(CommandPing {}, &mut frame);
    frame
}

async fn expect(from: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    timeout(LIMIT, from.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, bytes);
}

async fn silent(from: &mut TcpStream) -> bool {
    timeout(QUIET, from.read_u8()).await.is_err()
}

#[tokio::test]
async fn both_ways_are_open_and_a_close_passes() {
    let Stage { proxy, mut client, mut broker } = Stage::new().await;
    client.write_all(b"anything").await.unwrap();
    expect(&mut broker, b"anything").await;
    broker.write_all(&frame()).await.unwrap();
    expect(&mut client, &frame()).await;
    drop(client);
    assert_eq!(timeout(LIMIT, broker.read(&mut [0])).await.unwrap().unwrap(), 0);
    until("the end", LIMIT, async || Ok((proxy.open() == 0).then_some(()))).await.unwrap();
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test]
async fn held_bytes_go_on_in_order_when_the_weather_clears() {
    let Stage { proxy, mut client, mut broker } = Stage::new().await;
    proxy.set(Scope::All, Weather { to_broker: HELD, ..Weather::default() });
    client.write_all(b"one").await.unwrap();
    assert!(silent(&mut broker).await);
    broker.write_all(&frame()).await.unwrap();
    expect(&mut client, &frame()).await;
    client.write_all(b"two").await.unwrap();
    proxy.set(Scope::All, Weather::default());
    expect(&mut broker, b"onetwo").await;
}

#[tokio::test]
async fn latency_and_a_narrow_way_take_their_time() {
    let Stage { proxy, mut client, mut broker } = Stage::new().await;
    let bytes_per_second = NonZeroU32::new(10_000);
    let latency = Duration::from_millis(100);
    let to_broker = Way { latency, bytes_per_second, ..Way::default() };
    proxy.set(Scope::One(5), Weather { to_broker, ..Weather::default() });
    let elapsed = stopwatch();
    client.write_all(&[7; 3_000]).await.unwrap();
    expect(&mut broker, &[7; 3_000]).await;
    assert!(elapsed() > Duration::from_millis(300), "{:?}", elapsed());
}

#[tokio::test]
async fn a_cut_falls_into_the_middle_of_a_frame() {
    let Stage { proxy, mut client, mut broker } = Stage::new().await;
    let cut = Cut { reset: true, after_bytes: 5, ..Cut::default() };
    assert_eq!((proxy.cut(Scope::All, cut), proxy.cut(Scope::All, cut)), (1, 0));
    client.write_all(b"0123456789").await.unwrap();
    expect(&mut broker, b"01234").await;
    let [of_client, of_broker] =
        [&mut client, &mut broker].map(|end| timeout(LIMIT, end.read_u8()));
    assert_eq!(of_client.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(of_broker.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn the_broker_may_learn_of_a_cut_later_than_of_what_was_sent_before() {
    let Stage { proxy, mut client, mut broker } = Stage::new().await;
    proxy.set(Scope::All, Weather { to_broker: HELD, to_client: HELD });
    client.write_all(b"late").await.unwrap();
    assert!(silent(&mut broker).await);
    proxy.cut(Scope::All, Cut { broker_later: Some(2 * QUIET), ..Cut::default() });
    assert_eq!(timeout(LIMIT, client.read(&mut [0])).await.unwrap().unwrap(), 0);
    assert!(silent(&mut broker).await);
    expect(&mut broker, b"late").await;
    assert_eq!(timeout(LIMIT, broker.read(&mut [0])).await.unwrap().unwrap(), 0);
}

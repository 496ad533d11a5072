//! One connection through the forwarder.
//!
//! Each direction has two loops: one reads into a queue, the other writes from it. Faults are in
//! the writing loop, so the sender's side continues undisturbed.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::future::{join, pending};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Sleep, sleep, timeout};

use super::lookup::Rewriter;
use super::{Cut, Way, Weather};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// The most chunks queued per direction; then reading stops, and the sender's buffers fill.
const CHUNKS_MAX: usize = 1024;
/// Bytes written at a time under a rate limit.
const DROP_BYTES: usize = 512;
/// The latest time of a cut that waits for bytes.
const CUT_LATEST: Duration = Duration::from_millis(500);
/// The time limit for delivering the rest to the broker after the client is gone.
const LEFT_LIMIT: Duration = Duration::from_secs(5);

/// Bytes in transit.
struct Chunk {
    bytes: Bytes,
    /// Relative to when they were read.
    arrival: Pin<Box<Sleep>>,
}

/// The number of bytes that may still pass, in both directions together.
struct Allowance {
    left: watch::Sender<usize>,
    /// Notified when a writer has more bytes than that.
    spent: Notify,
}

/// A connection to the client and one to the broker.
pub(super) struct Line {
    client: Arc<TcpStream>,
    broker: Arc<TcpStream>,
    weather: watch::Sender<Weather>,
    rng: fastrand::Rng,
    rewriter: Rewriter,
}

impl Line {
    pub(super) fn new(
        client: TcpStream,
        broker: TcpStream,
        weather: watch::Sender<Weather>,
        rng: fastrand::Rng,
        service_url: &str,
    ) -> io::Result<Self> {
        client.set_nodelay(true)?;
        broker.set_nodelay(true)?;
        let (client, broker) = (Arc::new(client), Arc::new(broker));
        Ok(Self { client, broker, weather, rng, rewriter: Rewriter::new(service_url) })
    }

    /// Forwards until one side has closed and the other has everything, or until the cut.
    pub(super) async fn serve(self, cut: oneshot::Receiver<Cut>) {
        let Self { client, broker, weather, mut rng, mut rewriter } = self;
        let allowance = Allowance { left: watch::Sender::new(usize::MAX), spent: Notify::new() };
        let (up, up_queue) = mpsc::channel(CHUNKS_MAX);
        let (down, down_queue) = mpsc::channel(CHUNKS_MAX);
        let sky = || weather.subscribe();
        let reading_up = Reading { way: to_broker, sky: sky(), rng: rng.fork() };
        let reading_down = Reading { way: to_client, sky: sky(), rng: rng.fork() };
        let mut client_side = Box::pin(until_second(
            reading_up.run(Arc::clone(&client), None, up),
            write(down_queue, Arc::clone(&client), to_client, sky(), &allowance),
        ));
        let mut broker_side = Box::pin(until_second(
            reading_down.run(Arc::clone(&broker), Some(&mut rewriter), down),
            write(up_queue, Arc::clone(&broker), to_broker, sky(), &allowance),
        ));
        let cut = tokio::select! {
            biased;
            Ok(cut) = cut => cut,
            () = &mut client_side => return,
            () = &mut broker_side => return,
        };
        if cut.after_bytes > 0 {
            allowance.leave(cut.after_bytes);
            tokio::select! {
                biased;
                () = allowance.spent.notified() => {}
                // Nothing is left to cut.
                () = &mut client_side => return,
                () = &mut broker_side => return,
                // After the wait the cut falls between two frames.
                () = sleep(CUT_LATEST) => {}
            }
            allowance.leave(usize::MAX);
        }
        if cut.reset {
            // Without it a close sends FIN. A socket that cannot be set is closed all the same.
            client.set_zero_linger().ok();
            broker.set_zero_linger().ok();
        }
        drop(client_side);
        drop(client);
        if let Some(later) = cut.broker_later {
            let release = async {
                sleep(later).await;
                weather.send_replace(Weather::default());
            };
            join(release, timeout(later + LEFT_LIMIT, broker_side)).await.1.ok();
        }
    }
}

fn to_broker(weather: &Weather) -> Way {
    weather.to_broker
}

fn to_client(weather: &Weather) -> Way {
    weather.to_client
}

/// Runs both until the second has ended: after the reader ends, its queue is still written.
async fn until_second(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    let first = async {
        first.await;
        pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = first => {}
        () = second => {}
    }
}

/// The state of a direction's reading loop.
struct Reading<F> {
    way: F,
    sky: watch::Receiver<Weather>,
    rng: fastrand::Rng,
}

impl<F: Fn(&Weather) -> Way> Reading<F> {
    /// Reads until the end of the stream or an error.
    async fn run(
        mut self,
        from: Arc<TcpStream>,
        mut rewriter: Option<&mut Rewriter>,
        queue: mpsc::Sender<Chunk>,
    ) {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = read(&from, &mut buffer).await {
            let read = buffer.get(..count).unwrap_or_default();
            let bytes = match &mut rewriter {
                None => Bytes::copy_from_slice(read),
                Some(rewriter) => match rewriter.take(read) {
                    Ok(frames) => frames,
                    Err(_) => return,
                },
            };
            let way = (self.way)(&self.sky.borrow());
            let arrival = Box::pin(sleep(way.latency + way.jitter.mul_f64(self.rng.f64())));
            if !bytes.is_empty() && queue.send(Chunk { bytes, arrival }).await.is_err() {
                return;
            }
        }
    }
}

async fn read(from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        from.readable().await?;
        match from.try_read(buffer) {
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// Writes the queue's bytes as the weather allows. Ends with the queue, or when the receiver is
/// gone.
async fn write(
    mut queue: mpsc::Receiver<Chunk>,
    to: Arc<TcpStream>,
    way: impl Fn(&Weather) -> Way,
    mut sky: watch::Receiver<Weather>,
    allowance: &Allowance,
) {
    while let Some(Chunk { mut bytes, arrival }) = queue.recv().await {
        arrival.await;
        while !bytes.is_empty() {
            // The sender is gone only with the connection.
            if sky.wait_for(|weather| !way(weather).held).await.is_err() {
                return;
            }
            let rate = way(&sky.borrow()).bytes_per_second;
            let count = bytes.len().min(rate.map_or(usize::MAX, |_| DROP_BYTES));
            let count = allowance.take(count).await;
            let Ok(written) = write_some(&to, bytes.get(..count).unwrap_or_default()).await else {
                return;
            };
            bytes.advance(written);
            if let Some(rate) = rate {
                sleep(Duration::from_secs_f64(written as f64 / f64::from(rate.get()))).await;
            }
        }
    }
}

async fn write_some(to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        to.writable().await?;
        match to.try_write(bytes) {
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

impl Allowance {
    /// Takes up to `count` bytes, at least one, waiting for the first.
    async fn take(&self, count: usize) -> usize {
        let mut changes = self.left.subscribe();
        loop {
            let mut taken = 0;
            self.left.send_if_modified(|left| {
                taken = count.min(*left);
                let counted = *left != usize::MAX;
                *left -= if counted { taken } else { 0 };
                false
            });
            if taken > 0 {
                return taken;
            }
            self.spent.notify_one();
            // The sender is alive here.
            changes.wait_for(|left| *left > 0).await.ok();
        }
    }

    fn leave(&self, bytes: usize) {
        self.left.send_replace(bytes);
    }
}

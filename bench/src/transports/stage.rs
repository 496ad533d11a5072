//! What the scenarios have in common: publishers that many tasks share, entries that come back, a
//! number of tasks under way.

use super::peer::{Entry, Follower, Peer, Publisher};
use super::plan::Plan;
use crate::meter::Times;
use anyhow::Result;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use integration_tests::stopwatch;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Body of all that has one.
static BODY: [u8; 100] = [b'x'; 100];
/// As long as ours.
const OWNER: &str = "0123456789abcdef0123456789abcdef";

/// A publisher that tasks use in turn.
pub(super) struct Shared<P>(tokio::sync::Mutex<P>);

impl<P: Publisher> Shared<P> {
    pub(super) fn new(publisher: P) -> Self {
        Self(tokio::sync::Mutex::new(publisher))
    }

    /// Hands a message over.
    pub(super) async fn send(&self, entry: Entry) -> Result<P::Receipt> {
        self.0.lock().await.send(entry).await
    }

    /// Publishes a message.
    pub(super) async fn publish(&self, entry: Entry) -> Result<()> {
        P::stored(self.send(entry).await?).await
    }
}

/// Tells who waits for an entry that it has come back.
#[derive(Default)]
pub(super) struct Echo(Mutex<HashMap<String, oneshot::Sender<()>>>);

impl Echo {
    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asked for before the entry is published.
    pub(super) fn of(&self, key: &str) -> oneshot::Receiver<()> {
        let (told, come) = oneshot::channel();
        self.waiting().insert(key.to_owned(), told);
        come
    }

    /// Reads for ever.
    pub(super) async fn listen<F: Follower>(&self, follower: &mut F) -> Result<Infallible> {
        loop {
            let key = follower.next().await?;
            if let Some(told) = self.waiting().remove(&key) {
                told.send(()).ok();
            }
        }
    }
}

/// The ledger, with what it takes to read back what was published.
pub(super) struct Ledger<P: Peer> {
    publisher: Shared<P::Publisher>,
    pub(super) echo: Echo,
}

impl<P: Peer> Ledger<P> {
    pub(super) async fn open(peer: &P, plan: &Plan) -> Result<(Self, P::Follower)> {
        let publisher = peer.publisher(&plan.topics.ledger, plan.side.ledger_batched).await?;
        let follower = peer.follower(&plan.topics.ledger).await?;
        Ok((Self { publisher: Shared::new(publisher), echo: Echo::default() }, follower))
    }

    /// Publishes an entry and waits until it is read back. Its receipt says nothing more, so nobody
    /// waits for it.
    pub(super) async fn write(&self, entry: Entry) -> Result<()> {
        let come = self.echo.of(&entry.key);
        self.publisher.send(entry).await?;
        Ok(come.await?)
    }
}

/// An entry of C, with the properties of ours.
pub(super) fn ledger_entry(kind: &'static str, task: &str) -> Entry {
    let (state, body) =
        if kind == "claim" { ("RUN", &BODY[..0]) } else { ("COMPLETED", &BODY[..]) };
    Entry {
        key: format!("{task}/1/{OWNER}/{kind}"),
        properties: vec![
            ("k", kind.to_owned()),
            ("t", task.to_owned()),
            ("e", "1".to_owned()),
            ("a", "1".to_owned()),
            ("o", OWNER.to_owned()),
            ("s", state.to_owned()),
        ],
        body: Bytes::from_static(body),
    }
}

/// An entry of M.
pub(super) fn view_entry(task: &str) -> Entry {
    let properties = vec![("epoch", "1".to_owned()), ("owner", OWNER.to_owned())];
    Entry { key: task.to_owned(), properties, body: Bytes::from_static(&BODY) }
}

/// A message of 100 bytes and nothing else.
pub(super) fn plain_entry(key: String) -> Entry {
    Entry { key, properties: Vec::new(), body: Bytes::from_static(&BODY) }
}

/// Does something so many times, so often at once, and says how long each took.
pub(super) async fn many<F>(
    count: usize,
    in_flight: usize,
    task: impl Fn(usize) -> F,
) -> Result<Times>
where
    F: Future<Output = Result<()>>,
{
    let mut times = Times::new()?;
    let (mut running, mut numbers) = (FuturesUnordered::new(), 0..count);
    loop {
        while running.len() < in_flight
            && let Some(number) = numbers.next()
        {
            running.push(timed(task(number)));
        }
        match running.try_next().await? {
            Some((took, ())) => times.record(took)?,
            None => return Ok(times),
        }
    }
}

/// How long something took.
pub(super) async fn timed<T>(task: impl Future<Output = Result<T>>) -> Result<(Duration, T)> {
    let elapsed = stopwatch();
    let done = task.await?;
    Ok((elapsed(), done))
}

/// Does something while a follower is read.
pub(super) async fn beside<T, F: Follower>(
    echo: &Echo,
    follower: &mut F,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        ended = echo.listen(follower) => match ended? {},
    }
}

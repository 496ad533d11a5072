//! Views of the metadata topic, one per partition, shared by all waits and lookups: a thousand
//! waits cost one follower.
//!
//! A service follows the partition and owns the follower. The view is under a lock that is never
//! held across an await. The view stores the position of each task's last entry and whether it is
//! the end. The content is fetched on demand, so the client's memory does not grow with payloads
//! and results. After an outage the service continues behind the last entry read.
//!
//! The service starts with the first question and ends with the client. While the broker is away it
//! retries for ever: a task may take hours, and the caller limits its wait. A permanent error, such
//! as a missing permission, ends the service and every wait.

use super::logs::Logs;
use super::service::BackgroundTasks;
use super::view::{ShownTask, ShownTasks, ViewChange};
use super::watch::WatchEvent;
use crate::supervise::{Backoff, KeptFollower, no_answer, persistently};
use crate::transport::{Message, TopicPartition, TransportError, TransportErrorKind};
use longhaul_core::task::{Position, TaskId, TaskMetadata};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The most questions queued for the follower; further callers wait for room.
const QUESTIONS_MAX: usize = 256;
/// The time limit of a lookup, including the first read of the topic.
const LOOK_TIME_MAX: Duration = Duration::from_secs(60);

/// The views of a client.
#[derive(Debug)]
pub(super) struct SharedViews {
    logs: Logs,
    views: Mutex<HashMap<TopicPartition, ViewHandle>>,
    tasks: BackgroundTasks,
}

/// The end of a task; `None` if its entry was already evicted. An error if the topic cannot be
/// followed.
type End = Result<Option<Arc<TaskMetadata>>, TransportError>;
type TaskLookupResult = Result<Option<ShownTask>, TransportError>;

#[derive(Clone, Debug)]
struct ViewHandle {
    shared: Arc<SharedView>,
    questions: mpsc::Sender<TaskLookup>,
}

#[derive(Debug)]
struct SharedView(Mutex<SharedViewState>);

#[derive(Debug, Default)]
struct SharedViewState {
    tasks: ShownTasks,
    /// The waits for the end of a task, each under its own number.
    waiters: HashMap<TaskId, HashMap<u64, oneshot::Sender<End>>>,
    next_waiter: u64,
    /// Why the service has ended. Later waits get this error: no service would answer them.
    broken: Option<TransportError>,
}

/// A question for the state of a task, answered once the topic's current entries are read.
#[derive(Debug)]
struct TaskLookup {
    id: TaskId,
    answer: oneshot::Sender<TaskLookupResult>,
}

impl SharedViews {
    pub(super) fn new(logs: Logs) -> Self {
        Self { logs, views: Mutex::default(), tasks: BackgroundTasks::default() }
    }

    /// Waits for the end of a task, without a time limit.
    pub(super) async fn end(&self, topic: &TopicPartition, id: TaskId) -> End {
        let mut backoff = Backoff::new(fastrand::Rng::new());
        loop {
            let ended = match self.wait(topic, id)? {
                EndWait::Ended(at) => at,
                EndWait::Until(waiter, end) => {
                    let end = end.await;
                    drop(waiter);
                    return end.unwrap_or_else(|_| Err(no_answer(&topic.topic)));
                }
            };
            match self.fetch(topic, id, ended).await {
                Ok(Some(metadata)) => return Ok(Some(Arc::new(metadata))),
                // The entry was evicted or replaced by another; the topic tells which.
                Ok(None) => match self.look(topic, id).await {
                    Ok(Some(shown)) if shown.at != ended => {}
                    Ok(_) => {
                        self.view(topic).shared.lock().tasks.forget(id, ended);
                        return Ok(None);
                    }
                    Err(error) if error.kind.is_permanent() => return Err(error),
                    Err(_) => backoff.wait().await,
                },
                Err(error) if error.kind.is_permanent() => return Err(error),
                Err(_) => backoff.wait().await,
            }
        }
    }

    /// The current entry of a task.
    pub(super) async fn get(
        &self,
        topic: &TopicPartition,
        id: TaskId,
    ) -> Result<Option<TaskMetadata>, TransportError> {
        let reading = async {
            let mut gone = None;
            // An entry that is gone was replaced if the next lookup shows another position.
            while let Some(shown) =
                self.look(topic, id).await?.filter(|shown| gone != Some(shown.at))
            {
                if let Some(metadata) = self.fetch(topic, id, shown.at).await? {
                    return Ok(Some(metadata));
                }
                gone = Some(shown.at);
            }
            Ok(None)
        };
        let read = timeout(LOOK_TIME_MAX, reading).await;
        read.unwrap_or_else(|_| Err(no_answer(&topic.topic)))
    }

    /// The position of a task's current entry.
    pub(super) async fn look(&self, topic: &TopicPartition, id: TaskId) -> TaskLookupResult {
        let ViewHandle { questions, .. } = self.view(topic);
        let asking = async {
            let (answer, told) = oneshot::channel();
            questions.send(TaskLookup { id, answer }).await.ok()?;
            told.await.ok()
        };
        let told = timeout(LOOK_TIME_MAX, asking).await.ok().flatten();
        told.unwrap_or_else(|| Err(no_answer(&topic.topic)))
    }

    /// Fetches the entry of a task; `None` if it is gone.
    async fn fetch(
        &self,
        topic: &TopicPartition,
        id: TaskId,
        at: Position,
    ) -> Result<Option<TaskMetadata>, TransportError> {
        let fetching = persistently(&topic.topic, || {
            let (transport, topic) = (Arc::clone(&self.logs.transport), topic.clone());
            async move { transport.fetch(&topic, at).await }
        });
        // If the topic was recreated, this position may hold an entry of another task.
        let Some(message) = fetching.await? else { return Ok(None) };
        let WatchEvent::Updated { id: shown, metadata, .. } = WatchEvent::read(&message) else {
            return Ok(None);
        };
        Ok((shown == id).then_some(metadata))
    }

    /// Begins to wait for the end of a task. An error if the service has ended: the topic is not
    /// followed any more.
    fn wait(&self, topic: &TopicPartition, id: TaskId) -> Result<EndWait, TransportError> {
        let ViewHandle { shared, .. } = self.view(topic);
        let mut state = shared.lock();
        if let Some(shown) = state.tasks.get(id).filter(|shown| shown.ended) {
            return Ok(EndWait::Ended(shown.at));
        }
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        // Enlists under the lock under which the service reads entries, so that none is missed.
        let (waiter, end) = state.enlist(&shared, id);
        Ok(EndWait::Until(waiter, end))
    }

    fn view(&self, topic: &TopicPartition) -> ViewHandle {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(topic).filter(|view| !view.questions.is_closed()) {
            return view.clone();
        }
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let shared = Arc::new(SharedView(Mutex::default()));
        let reader = ViewReader {
            follower: self.logs.whole(topic),
            topic: topic.clone(),
            shared: Arc::clone(&shared),
            asked,
            open: Vec::new(),
        };
        self.tasks.spawn(reader.run());
        let view = ViewHandle { shared, questions };
        views.insert(topic.clone(), view.clone());
        view
    }
}

impl SharedView {
    fn lock(&self) -> MutexGuard<'_, SharedViewState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedViewState {
    fn enlist(
        &mut self,
        shared: &Arc<SharedView>,
        id: TaskId,
    ) -> (WaiterGuard, oneshot::Receiver<End>) {
        let (sender, end) = oneshot::channel();
        let number = self.next_waiter;
        self.next_waiter += 1;
        self.waiters.entry(id).or_default().insert(number, sender);
        (WaiterGuard { shared: Arc::clone(shared), id, number }, end)
    }

    fn tell(&mut self, id: TaskId, end: &End) {
        for waiter in self.waiters.remove(&id).unwrap_or_default().into_values() {
            // The receiver may be gone; that is no error.
            drop(waiter.send(end.clone()));
        }
    }
}

/// The initial state of a wait.
enum EndWait {
    /// The task has ended, by the entry at this position.
    Ended(Position),
    /// The end will be sent to the receiver.
    Until(WaiterGuard, oneshot::Receiver<End>),
}

/// A place among the waiters, given up on drop.
struct WaiterGuard {
    shared: Arc<SharedView>,
    id: TaskId,
    number: u64,
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(waiters) = state.waiters.get_mut(&self.id) {
            waiters.remove(&self.number);
            if waiters.is_empty() {
                state.waiters.remove(&self.id);
            }
        }
    }
}

/// Reads the partition for all waits and lookups.
struct ViewReader {
    follower: KeptFollower,
    topic: TopicPartition,
    shared: Arc<SharedView>,
    asked: mpsc::Receiver<TaskLookup>,
    /// Questions to answer once the follower has reached the end that the topic had when they were
    /// received.
    open: Vec<TaskLookup>,
}

impl ViewReader {
    async fn run(mut self) {
        let mut opened = self.follower.open_persistently().await.map(drop);
        let mut has_followed = false;
        loop {
            match opened {
                Ok(()) => {
                    has_followed = true;
                    self.read().await;
                }
                Err(error) if has_followed && error.kind == TransportErrorKind::Unreachable => {
                    self.refuse(&error);
                }
                Err(error) => return self.end(&error),
            }
            opened = self.follower.open().await.map(drop);
        }
    }

    /// Reads until the first error.
    async fn read(&mut self) -> TransportError {
        let mut until = None;
        if !self.open.is_empty() {
            match self.follower.last_position().await {
                Ok(last) => until = last,
                Err(error) => return error,
            }
        }
        loop {
            self.answer(until);
            let is_asked = !self.open.is_empty();
            // New questions wait until the open ones are answered, so that a stream of questions
            // cannot keep the follower from reading.
            tokio::select! {
                asked = self.asked.recv_many(&mut self.open, QUESTIONS_MAX), if !is_asked => {
                    if asked == 0 {
                        // The client is gone and will end this task.
                        return std::future::pending().await;
                    }
                    match self.follower.last_position().await {
                        Ok(last) => until = last,
                        Err(error) => return error,
                    }
                }
                message = self.follower.next_up_to(is_asked.then_some(&mut until)) => match message {
                    Ok(Some(message)) => self.take(&message),
                    Ok(None) => {}
                    Err(error) => return error,
                }
            }
        }
    }

    fn take(&self, message: &Message) {
        let mut state = self.shared.lock();
        match state.tasks.read(message) {
            ViewChange::Nothing => {}
            ViewChange::Ended(id, metadata) => state.tell(id, &Ok(Some(Arc::from(metadata)))),
            ViewChange::Evicted(id) => state.tell(id, &Ok(None)),
        }
    }

    fn answer(&mut self, until: Option<Position>) {
        if self.open.is_empty() {
            return;
        }
        let state = self.shared.lock();
        if state.tasks.has_read(until) {
            for TaskLookup { id, answer } in self.open.drain(..) {
                drop(answer.send(Ok(state.tasks.get(id))));
            }
        }
    }

    /// Answers all questions with the error: the topic cannot be read now.
    fn refuse(&mut self, error: &TransportError) {
        while let Ok(question) = self.asked.try_recv() {
            self.open.push(question);
        }
        for question in self.open.drain(..) {
            drop(question.answer.send(Err(error.clone())));
        }
    }

    /// Ends all waits and questions: the topic cannot be followed.
    fn end(mut self, error: &TransportError) {
        // All waits get the error, so the log line is only for debugging.
        tracing::debug!(topic = %self.topic, %error, "cannot follow");
        // Close the channel first: later callers then start another service.
        self.asked.close();
        self.refuse(error);
        let mut state = self.shared.lock();
        state.broken = Some(error.clone());
        let waiting: Vec<TaskId> = state.waiters.keys().copied().collect();
        for id in waiting {
            state.tell(id, &Err(error.clone()));
        }
    }
}

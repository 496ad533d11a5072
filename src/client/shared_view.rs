//! Views of the metadata topic, one per partition, shared by all who wait or look: a thousand waits
//! cost one follower.
//!
//! A service follows the partition and owns the follower; the view itself lies under a lock that is
//! never held across a wait. The view knows where the last entry of a task lies and whether it is
//! the end; what it says is fetched when somebody asks, so that the memory of a client does not
//! grow with payloads and results. After an outage the service goes on behind what it has read.
//!
//! It starts with the first question and ends with the client. While the broker is away it tries
//! again without end: a task may take hours, and a wait has the time limit that its caller gives
//! it. What is no matter of time, such as missing rights, ends the service and every wait.

use super::service::BackgroundTasks;
use super::view::{ShownTask, ShownTasks, ViewChange};
use super::watch::WatchEvent;
use crate::supervise::{
    Backoff, Connections, KeptFollower, SessionSupervisor, no_answer, persistently,
};
use crate::transport::{
    Follow, Message, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::task::{Position, TaskId, TaskMetadata};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Questions that wait for the follower; the callers of further ones wait for a place.
const QUESTIONS_MAX: usize = 256;
/// How long a look may take, reading the topic for the first time included.
const LOOK_TIME_MAX: Duration = Duration::from_secs(60);

/// The views of a client.
#[derive(Debug)]
pub(super) struct SharedViews {
    transport: Arc<dyn Transport>,
    connections: Arc<Connections>,
    views: Mutex<HashMap<TopicPartition, ViewHandle>>,
    tasks: BackgroundTasks,
    java_attempts: Option<u32>,
}

/// Why a task's end was not seen.
#[derive(Clone, Debug)]
pub(super) enum Unseen {
    /// The entry was evicted before.
    Evicted,
    /// The topic cannot be followed.
    Broken(TransportError),
}

type End = Result<Arc<TaskMetadata>, Unseen>;
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
    /// Who waits for the end of a task, each under a number of its own.
    waiters: HashMap<TaskId, HashMap<u64, oneshot::Sender<End>>>,
    next_waiter: u64,
    /// Why the service has ended: nobody would tell a waiter that comes later.
    broken: Option<TransportError>,
}

/// What is shown of a task once everything is read that the topic holds now.
#[derive(Debug)]
struct TaskLookup {
    id: TaskId,
    answer: oneshot::Sender<TaskLookupResult>,
}

impl SharedViews {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        connections: Arc<Connections>,
        java_attempts: Option<u32>,
    ) -> Self {
        let (views, tasks) = (Mutex::default(), BackgroundTasks::default());
        Self { transport, connections, views, tasks, java_attempts }
    }

    /// Waits for the end of a task, without a limit.
    pub(super) async fn end(&self, topic: &TopicPartition, id: TaskId) -> End {
        let mut backoff = Backoff::new(fastrand::Rng::new());
        loop {
            let ended = match self.wait(topic, id) {
                EndWait::Ended(at) => at,
                EndWait::Until(waiter, end) => {
                    let end = end.await;
                    drop(waiter);
                    return end.unwrap_or_else(|_| Err(Unseen::Broken(no_answer(&topic.topic))));
                }
                EndWait::Broken(error) => return Err(Unseen::Broken(error)),
            };
            match self.fetch(topic, id, ended).await {
                Ok(Some(metadata)) => return Ok(Arc::new(metadata)),
                // Either it was evicted, or another entry has taken its place: the topic says which
                // of the two.
                Ok(None) => match self.look(topic, id).await {
                    Ok(Some(shown)) if shown.at != ended => {}
                    Ok(_) => {
                        self.view(topic).shared.lock().tasks.forget(id, ended);
                        return Err(Unseen::Evicted);
                    }
                    Err(error) if error.kind.is_permanent() => return Err(Unseen::Broken(error)),
                    Err(_) => backoff.wait().await,
                },
                Err(error) if error.kind.is_permanent() => return Err(Unseen::Broken(error)),
                Err(_) => backoff.wait().await,
            }
        }
    }

    /// What the topic shows of a task now.
    pub(super) async fn get(
        &self,
        topic: &TopicPartition,
        id: TaskId,
    ) -> Result<Option<TaskMetadata>, TransportError> {
        let reading = async {
            let mut gone = None;
            // An entry that is not there any more has gone for another one, if the next look shows
            // that.
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

    /// Where the topic shows a task now.
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

    /// What an entry says of a task; `None` if it is not there any more.
    async fn fetch(
        &self,
        topic: &TopicPartition,
        id: TaskId,
        at: Position,
    ) -> Result<Option<TaskMetadata>, TransportError> {
        let fetching = persistently(&topic.topic, || {
            let (transport, topic) = (Arc::clone(&self.transport), topic.clone());
            async move { transport.fetch(&topic, at).await }
        });
        // A topic that has taken the place of the one that was read may have an entry of another
        // task there.
        let Some(message) = fetching.await? else { return Ok(None) };
        let WatchEvent::Updated { id: shown, metadata, .. } = WatchEvent::read(&message) else {
            return Ok(None);
        };
        Ok((shown == id).then_some(metadata))
    }

    fn wait(&self, topic: &TopicPartition, id: TaskId) -> EndWait {
        let ViewHandle { shared, .. } = self.view(topic);
        let mut state = shared.lock();
        if let Some(shown) = state.tasks.get(id).filter(|shown| shown.ended) {
            return EndWait::Ended(shown.at);
        }
        if let Some(error) = &state.broken {
            return EndWait::Broken(error.clone());
        }
        // Under the lock that the service takes entries in, so that none is missed.
        let (waiter, end) = state.enlist(&shared, id);
        EndWait::Until(waiter, end)
    }

    fn view(&self, topic: &TopicPartition) -> ViewHandle {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(topic).filter(|view| !view.questions.is_closed()) {
            return view.clone();
        }
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let tasks = ShownTasks::with_java_attempts(self.java_attempts);
        let shared = Arc::new(SharedView(Mutex::new(SharedViewState {
            tasks,
            ..SharedViewState::default()
        })));
        let service = SessionSupervisor::of_client(&self.transport, topic, &self.connections);
        let from_start = Follow { start: Start::Earliest, compacted: true };
        let reader = ViewReader {
            follower: KeptFollower::new(service, from_start),
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
            // A caller that is gone needs no end.
            drop(waiter.send(end.clone()));
        }
    }
}

/// What a wait begins with.
enum EndWait {
    /// The task has ended: this entry says so.
    Ended(Position),
    /// The end will be told.
    Until(WaiterGuard, oneshot::Receiver<End>),
    /// Nobody follows the topic any more.
    Broken(TransportError),
}

/// A place among the waiters, given up when dropped.
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

/// Reads the partition for all who wait and look.
struct ViewReader {
    follower: KeptFollower,
    topic: TopicPartition,
    shared: Arc<SharedView>,
    asked: mpsc::Receiver<TaskLookup>,
    /// Questions that are answered when the follower has come to the end that the topic had when
    /// they were taken up.
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
            // New questions wait until the open ones are answered, so that many of them cannot keep
            // the follower from reading.
            tokio::select! {
                asked = self.asked.recv_many(&mut self.open, QUESTIONS_MAX), if !is_asked => {
                    if asked == 0 {
                        // The client has gone, and ends this task.
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
            ViewChange::Ended(id, metadata) => state.tell(id, &Ok(Arc::from(metadata))),
            ViewChange::Evicted(id) => state.tell(id, &Err(Unseen::Evicted)),
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

    /// Tells who looks that the topic cannot be read now.
    fn refuse(&mut self, error: &TransportError) {
        while let Ok(question) = self.asked.try_recv() {
            self.open.push(question);
        }
        for question in self.open.drain(..) {
            drop(question.answer.send(Err(error.clone())));
        }
    }

    /// Tells everyone that the topic cannot be followed.
    fn end(mut self, error: &TransportError) {
        // Everyone who waits is told.
        tracing::debug!(topic = %self.topic, %error, "cannot follow");
        // Closed first: who comes from now on starts another service.
        self.asked.close();
        self.refuse(error);
        let mut state = self.shared.lock();
        state.broken = Some(error.clone());
        let waiting: Vec<TaskId> = state.waiters.keys().copied().collect();
        for id in waiting {
            state.tell(id, &Err(Unseen::Broken(error.clone())));
        }
    }
}

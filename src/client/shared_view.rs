//! Views of the metadata topic, one per partition, shared by all who wait or look: a thousand waits cost one follower.
//!
//! A service follows the partition and owns the follower; the view itself lies under a lock that is never held across a wait.
//! It starts with the first question and ends with the client. While the broker is away it tries again without end: a task may
//! take hours, and a wait has the time limit that its caller gives it. What is no matter of time, such as missing rights, ends
//! the service and every wait.

use super::service::{Tasks, no_answer, persistently};
use super::view::{Change, TaskView};
use crate::task::{Position, TaskId, TaskMetadata};
use crate::transport::{
    Follow, Follower, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use crate::worker::{Backoff, Connections, Monitor};
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
pub(super) struct Views {
    transport: Arc<dyn Transport>,
    connections: Arc<Connections>,
    views: Mutex<HashMap<TopicPartition, View>>,
    tasks: Tasks,
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
type Look = Result<Option<Arc<TaskMetadata>>, TransportError>;

#[derive(Clone, Debug)]
struct View {
    shared: Arc<Shared>,
    questions: mpsc::Sender<Question>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tasks: TaskView,
    /// Who waits for the end of a task, each under a number of its own.
    waiters: HashMap<TaskId, HashMap<u64, oneshot::Sender<End>>>,
    next_waiter: u64,
    /// Why the service has ended: nobody would tell a waiter that comes later.
    broken: Option<TransportError>,
}

/// What is shown of a task once everything is read that the topic holds now.
#[derive(Debug)]
struct Question {
    id: TaskId,
    answer: oneshot::Sender<Look>,
}

impl Views {
    pub(super) fn new(transport: Arc<dyn Transport>, connections: Arc<Connections>) -> Self {
        Self { transport, connections, views: Mutex::default(), tasks: Tasks::default() }
    }

    /// Waits for the end of a task, without a limit.
    pub(super) async fn end(&self, topic: &TopicPartition, id: TaskId) -> End {
        let View { shared, .. } = self.view(topic);
        let (waiter, end) = {
            let mut state = shared.lock();
            let ended = state.tasks.get(id).filter(|metadata| metadata.is_terminal());
            if let Some(metadata) = ended {
                return Ok(metadata);
            }
            if let Some(error) = &state.broken {
                return Err(Unseen::Broken(error.clone()));
            }
            // Under the lock that the service takes entries in, so that none is missed.
            state.enlist(&shared, id)
        };
        let end = end.await.unwrap_or_else(|_| Err(Unseen::Broken(no_answer(&topic.topic))));
        drop(waiter);
        end
    }

    /// What the topic shows of a task now.
    pub(super) async fn look(&self, topic: &TopicPartition, id: TaskId) -> Look {
        let View { questions, .. } = self.view(topic);
        let asking = async {
            let (answer, told) = oneshot::channel();
            questions.send(Question { id, answer }).await.ok()?;
            told.await.ok()
        };
        let told = timeout(LOOK_TIME_MAX, asking).await.ok().flatten();
        told.unwrap_or_else(|| Err(no_answer(&topic.topic)))
    }

    fn view(&self, topic: &TopicPartition) -> View {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(topic).filter(|view| !view.questions.is_closed()) {
            return view.clone();
        }
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let shared = Arc::<Shared>::default();
        let service = Service {
            transport: Arc::clone(&self.transport),
            topic: topic.clone(),
            monitor: Monitor::new(&self.connections),
            shared: Arc::clone(&shared),
            asked,
            open: Vec::new(),
        };
        self.tasks.spawn(service.run());
        let view = View { shared, questions };
        views.insert(topic.clone(), view.clone());
        view
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enlist(&mut self, shared: &Arc<Shared>, id: TaskId) -> (Waiter, oneshot::Receiver<End>) {
        let (sender, end) = oneshot::channel();
        let number = self.next_waiter;
        self.next_waiter += 1;
        self.waiters.entry(id).or_default().insert(number, sender);
        (Waiter { shared: Arc::clone(shared), id, number }, end)
    }

    fn tell(&mut self, id: TaskId, end: &End) {
        for waiter in self.waiters.remove(&id).unwrap_or_default().into_values() {
            // A caller that is gone needs no end.
            drop(waiter.send(end.clone()));
        }
    }
}

/// A place among the waiters, given up when dropped.
struct Waiter {
    shared: Arc<Shared>,
    id: TaskId,
    number: u64,
}

impl Drop for Waiter {
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

struct Service {
    transport: Arc<dyn Transport>,
    topic: TopicPartition,
    monitor: Monitor,
    shared: Arc<Shared>,
    asked: mpsc::Receiver<Question>,
    /// Questions that are answered when the follower has come to the end that the topic had when they were taken up.
    open: Vec<Question>,
}

impl Service {
    async fn run(mut self) {
        let (transport, topic) = (Arc::clone(&self.transport), self.topic.clone());
        let open = || follow(Arc::clone(&transport), topic.clone());
        let mut backoff = Backoff::new(fastrand::Rng::new());
        let mut opened = persistently(&topic.topic, || Box::pin(open())).await;
        let mut has_followed = false;
        loop {
            match opened {
                Ok(follower) => {
                    has_followed = true;
                    self.monitor.opened();
                    let error = self.session(follower, &mut backoff).await;
                    tracing::debug!(%topic, %error, "follower lost");
                    self.monitor.failed(&error);
                }
                Err(error) if has_followed && error.kind == TransportErrorKind::Unreachable => {
                    self.monitor.failed(&error);
                    self.refuse(&error);
                }
                Err(error) => return self.end(&error),
            }
            backoff.wait().await;
            opened = open().await;
        }
    }

    /// Follows until the first error.
    async fn session(
        &mut self,
        mut follower: Box<dyn Follower>,
        backoff: &mut Backoff,
    ) -> TransportError {
        self.shared.lock().tasks.restart();
        let mut until = None;
        if !self.open.is_empty() {
            match follower.last_position().await {
                Ok(last) => until = last,
                Err(error) => return error,
            }
        }
        loop {
            self.answer(until);
            // New questions wait until the open ones are answered, so that many of them cannot keep the follower from reading.
            tokio::select! {
                asked = self.asked.recv_many(&mut self.open, QUESTIONS_MAX), if self.open.is_empty() => {
                    if asked == 0 {
                        return no_answer(&self.topic.topic);
                    }
                    match follower.last_position().await {
                        Ok(last) => until = last,
                        Err(error) => return error,
                    }
                }
                message = follower.next() => match message {
                    Ok(message) => {
                        backoff.reset();
                        self.take(&message);
                    }
                    Err(error) => return error,
                }
            }
        }
    }

    fn take(&self, message: &crate::transport::Message) {
        let mut state = self.shared.lock();
        match state.tasks.read(message) {
            Change::Nothing => {}
            Change::Ended(id, metadata) => state.tell(id, &Ok(metadata)),
            Change::Evicted(id) => state.tell(id, &Err(Unseen::Evicted)),
        }
    }

    fn answer(&mut self, until: Option<Position>) {
        if self.open.is_empty() {
            return;
        }
        let state = self.shared.lock();
        if state.tasks.has_read(until) {
            for Question { id, answer } in self.open.drain(..) {
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

async fn follow(
    transport: Arc<dyn Transport>,
    topic: TopicPartition,
) -> Result<Box<dyn Follower>, TransportError> {
    let follow = Follow { start: Start::Earliest, compacted: true };
    transport.follower(&topic, follow).await
}

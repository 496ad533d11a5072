//! Views of queues' tasks: opened on first use, kept up to date while used, and closed after some
//! idle time.

use crate::clock::{self, Stopwatch};
use futures::future::{BoxFuture, FutureExt, Shared};
use longhaul::ops::TaskView;
use longhaul::{Client, ReadError};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The most open views; beyond that the one unused for longest is closed.
const OPEN_MAX: usize = 256;

/// The idle time after which a view is closed.
const IDLE_MAX: Duration = Duration::from_secs(600);

type ViewOpening = Shared<BoxFuture<'static, Result<TaskView, ReadError>>>;

struct ViewSlot {
    opening: ViewOpening,
    asked: Stopwatch,
}

/// The views, by task topic.
pub(super) struct TaskViews {
    client: Client,
    open: Mutex<HashMap<String, ViewSlot>>,
    tasks: TaskTracker,
}

impl fmt::Debug for TaskViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskViews").finish_non_exhaustive()
    }
}

impl TaskViews {
    pub(super) fn new(client: Client) -> Self {
        Self { client, open: Mutex::default(), tasks: TaskTracker::new() }
    }

    /// The view of a task topic. The first caller waits until it is read; if that caller gives up,
    /// reading continues for the next one.
    pub(super) async fn of(&self, topic: &str) -> Result<TaskView, ReadError> {
        let opening = self.opening(topic);
        let view = opening.clone().await;
        if view.is_err() {
            self.forget(topic, &opening);
        }
        view
    }

    /// Closes a view that does not work any more; the next caller opens it again.
    pub(super) fn close(&self, topic: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    /// The open views.
    pub(super) fn open(&self) -> Vec<TaskView> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().filter_map(|slot| slot.opening.peek()?.as_ref().ok().cloned()).collect()
    }

    fn opening(&self, topic: &str) -> ViewOpening {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = open.get_mut(topic) {
            slot.asked = clock::stopwatch();
            return slot.opening.clone();
        }
        open.retain(|_, slot| slot.asked.read() < IDLE_MAX);
        while open.len() >= OPEN_MAX {
            let oldest = open.iter().max_by_key(|(_, slot)| slot.asked.read());
            let Some(oldest) = oldest.map(|(topic, _)| topic.clone()) else { break };
            open.remove(&oldest);
        }
        let (client, of) = (self.client.clone(), topic.to_owned());
        let opening = async move { client.queue(&of).tasks().await }.boxed().shared();
        self.tasks.spawn(opening.clone().map(drop));
        let slot = ViewSlot { opening: opening.clone(), asked: clock::stopwatch() };
        open.insert(topic.to_owned(), slot);
        opening
    }

    fn forget(&self, topic: &str, opening: &ViewOpening) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(topic).is_some_and(|slot| slot.opening.ptr_eq(opening)) {
            open.remove(topic);
        }
    }
}

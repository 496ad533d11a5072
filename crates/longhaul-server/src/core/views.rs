//! Views of queues' tasks: opened on first use, kept up to date while used, and closed after some
//! idle time.

use crate::clock::{self, Stopwatch};
use futures::future::{BoxFuture, FutureExt, Shared};
use longhaul::ops::{PastInstant, TaskView};
use longhaul::{Client, ReadError};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// The most open views; beyond that the one unused for longest is closed.
const OPEN_MAX: usize = 512;

/// The most open views of the past: each instant has one of its own.
const PAST_MAX: usize = 8;

/// The idle time after which a view is closed.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// The tasks that a view has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ViewedTasks {
    /// All of them. This reads the task topic, too.
    All,
    /// Those that were claimed, which is enough to look one up.
    Claimed,
    /// Those that were claimed, as they were then, in ms since the epoch.
    Past(u64),
}

impl ViewedTasks {
    const fn is_past(self) -> bool {
        matches!(self, Self::Past(_))
    }
}

type ViewOpening = Shared<BoxFuture<'static, Result<TaskView, ReadError>>>;

#[derive(Debug)]
struct ViewSlot {
    opening: ViewOpening,
    asked: Stopwatch,
}

/// The views, by task topic and scope.
#[derive(Debug)]
pub(super) struct TaskViews {
    client: Client,
    open: Mutex<HashMap<(String, ViewedTasks), ViewSlot>>,
    tasks: TaskTracker,
}

impl TaskViews {
    pub(super) fn new(client: Client) -> Self {
        Self { client, open: Mutex::default(), tasks: TaskTracker::new() }
    }

    /// The view of a task topic. The first caller waits until it is read; if that caller gives up,
    /// reading continues for the next one.
    pub(super) async fn of(&self, topic: &str, scope: ViewedTasks) -> Result<TaskView, ReadError> {
        let opening = self.opening(topic, scope);
        let view = opening.clone().await;
        if view.is_err() {
            self.forget(&opening);
        }
        view
    }

    /// Closes the views of a topic, which do not work any more; the next caller opens one again.
    pub(super) fn close(&self, topic: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(of, _), _| of != topic);
    }

    fn opening(&self, topic: &str, scope: ViewedTasks) -> ViewOpening {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A view of all tasks has the claimed ones as well.
        let all = (topic.to_owned(), ViewedTasks::All);
        let has_all = scope == ViewedTasks::Claimed && open.contains_key(&all);
        let key = if has_all { all } else { (topic.to_owned(), scope) };
        if let Some(slot) = open.get_mut(&key) {
            slot.asked = clock::stopwatch();
            return slot.opening.clone();
        }
        open.retain(|_, slot| slot.asked.read() < IDLE_MAX);
        let max = if scope.is_past() { PAST_MAX } else { OPEN_MAX };
        let alike = open.iter().filter(|((_, tasks), _)| tasks.is_past() == scope.is_past());
        if alike.clone().count() >= max
            && let Some((oldest, _)) = alike.max_by_key(|(_, slot)| slot.asked.read())
        {
            let oldest = oldest.clone();
            open.remove(&oldest);
        }
        let queue = self.client.queue(topic);
        let opening = async move {
            match scope {
                ViewedTasks::All => queue.tasks().await,
                ViewedTasks::Claimed => queue.claimed_tasks().await,
                ViewedTasks::Past(ms) => queue.tasks_at(PastInstant::Time(ms)).await,
            }
        };
        let opening = opening.boxed().shared();
        self.tasks.spawn(opening.clone().map(drop));
        let slot = ViewSlot { opening: opening.clone(), asked: clock::stopwatch() };
        open.insert(key, slot);
        opening
    }

    fn forget(&self, opening: &ViewOpening) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, slot| !slot.opening.ptr_eq(opening));
    }
}

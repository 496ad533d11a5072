//! Serializes the submits of one client with the same key: the second one finds the first one's
//! bind, and publishes nothing. Submits of different clients may both publish a message before
//! either is bound; all but one of those are closed without running.

use longhaul_core::protocol::register::KeyName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// The longest wait for a turn. After it, a submit publishes its own message, as another client
/// would.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The most keys with turns at the same time. Submits with further keys take no turn.
const KEYS_MAX: usize = 10_000;

/// The name of a register, and a key on it.
type KeyLocation = (String, KeyName);

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The turns by key, only for keys that are being submitted.
#[derive(Debug, Default)]
pub(in crate::client) struct Turns(Mutex<HashMap<KeyLocation, SubmittedKey>>);

/// A key that is being submitted.
#[derive(Debug, Default)]
struct SubmittedKey {
    lock: Lock,
    /// The number of submits that have a turn or wait for it.
    turns: usize,
}

/// The turn of a submit; ends on drop.
#[derive(Debug)]
pub(super) struct SubmitTurn<'a> {
    of: &'a Turns,
    place: KeyLocation,
    lock: Lock,
    /// `None` while it waits, and after the wait timed out.
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits until no other submit of this key runs. `None` when too many keys are being submitted.
    pub(super) async fn take(&self, register: &str, name: &KeyName) -> Option<SubmitTurn<'_>> {
        let mut turn = self.queue_up((register.to_owned(), name.clone()))?;
        let held = tokio::time::timeout(WAIT_MAX, Arc::clone(&turn.lock).lock_owned());
        turn.held = held.await.ok();
        Some(turn)
    }

    fn queue_up(&self, place: KeyLocation) -> Option<SubmitTurn<'_>> {
        let mut keys = self.keys();
        if keys.len() >= KEYS_MAX && !keys.contains_key(&place) {
            return None;
        }
        let key = keys.entry(place.clone()).or_default();
        key.turns += 1;
        let lock = Arc::clone(&key.lock);
        Some(SubmitTurn { of: self, place, lock, held: None })
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<KeyLocation, SubmittedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SubmitTurn<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut keys = self.of.keys();
        let Some(key) = keys.get_mut(&self.place) else { return };
        key.turns = key.turns.saturating_sub(1);
        if key.turns == 0 {
            keys.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use longhaul_core::protocol::register::KeyKind;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn name(text: &str) -> KeyName {
        KeyName::new(KeyKind::Idempotency, text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn submits_of_one_key_take_turns_and_nothing_is_left_of_them() {
        let turns = Turns::default();
        let first = turns.take("r", &name("a")).await.unwrap();
        assert!(turns.take("r", &name("b")).now_or_never().is_some());
        assert!(turns.take("s", &name("a")).now_or_never().is_some());
        let key = name("a");
        let mut second = Box::pin(turns.take("r", &key));
        assert!((&mut second).now_or_never().is_none());
        {
            let mut given_up = Box::pin(turns.take("r", &key));
            assert!((&mut given_up).now_or_never().is_none());
        }
        drop(first);
        assert!(second.await.unwrap().held.is_some());
        assert!(turns.keys().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let turns = Turns::default();
        let _first = turns.take("r", &name("a")).await.unwrap();
        let (key, moment) = (name("a"), Duration::from_millis(1));
        let mut second = Box::pin(turns.take("r", &key));
        assert!(tokio::time::timeout(WAIT_MAX - moment, &mut second).await.is_err());
        let given_up = tokio::time::timeout(2 * moment, second).await.unwrap();
        assert!(given_up.unwrap().held.is_none());
    }

    /// When two turns of a key ended at once, each saw the other and neither removed the key, until
    /// no new keys fitted.
    #[test]
    fn nothing_is_left_of_turns_that_end_at_the_same_time() {
        let turns = Turns::default();
        let all = || -> Vec<SubmitTurn<'_>> {
            let place = |number: usize| ("r".to_owned(), name(&number.to_string()));
            (0..KEYS_MAX).map(|number| turns.queue_up(place(number)).unwrap()).collect()
        };
        let both = [all(), all()];
        let arrived = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for these in both {
                let arrived = &arrived;
                threads.spawn(move || {
                    for (turn, all) in these.into_iter().zip((2..).step_by(2)) {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        while arrived.load(Ordering::SeqCst) < all {
                            std::thread::yield_now();
                        }
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(turns.keys().len(), 0);
    }

    #[tokio::test]
    async fn the_keys_that_have_turns_are_bounded() {
        let turns = Turns::default();
        let mut all = Vec::new();
        for number in 0..KEYS_MAX {
            all.push(turns.take("r", &name(&number.to_string())).await.unwrap());
        }
        assert!(turns.take("r", &name("more")).await.is_none());
        drop(all);
        assert!(turns.take("r", &name("more")).await.is_some() && turns.keys().is_empty());
    }
}

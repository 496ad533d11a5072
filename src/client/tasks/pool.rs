//! The tags, types and lease holders of a partition's tasks, each stored once and shared by rows.
//! Unused ones are dropped once there are a thousand values, and twice as many as after the last
//! cleanup. Pure.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// The minimum number of values before unused ones are dropped.
const FEW: usize = 1_000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ValuePool<T: ?Sized> {
    known: HashSet<Arc<T>>,
    /// The number of values left after the last cleanup.
    kept: usize,
}

impl<T: ?Sized> Default for ValuePool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), kept: 0 }
    }
}

impl<T: Eq + Hash + ?Sized> ValuePool<T> {
    pub(super) fn share(&mut self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(known) = self.known.get(Borrow::<T>::borrow(&value)) {
            return Arc::clone(known);
        }
        // Clean up only when the number has doubled: each new value costs checking two others.
        if self.known.len() >= FEW.max(2 * self.kept) {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.kept = self.known.len();
        }
        let value: Arc<T> = value.into();
        self.known.insert(Arc::clone(&value));
        value
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_nobody_has_goes_and_one_in_use_is_shared() {
        let mut words = ValuePool::<str>::default();
        let used: Vec<_> = (0..FEW).map(|number| words.share(format!("used {number}"))).collect();
        for number in 0..20 * FEW {
            words.share(format!("over {number}"));
            assert!(words.known.len() <= 2 * FEW);
        }
        for word in used {
            assert!(Arc::ptr_eq(&word, &words.share(&*word)));
        }
        for number in 0..4 * FEW {
            words.share(format!("more {number}"));
        }
        assert!(words.known.len() <= FEW, "those in use have gone, too");
    }
}

//! The switch of the woven mutants. This file is part of the copy of each crate that has mutants,
//! never of this program.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One more than the highest number of a mutant.
const COUNT: usize = 0;

const UNREAD: u32 = u32::MAX;
const RECORDS: u32 = u32::MAX - 1;

/// The mutant that is switched on, 0 for none.
static SELECTED: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
static RECORD: OnceLock<Option<File>> = OnceLock::new();

/// Whether this mutant is switched on.
#[inline]
pub(crate) fn is_on(number: u32) -> bool {
    let selected = SELECTED.load(Ordering::Relaxed);
    if selected < RECORDS { selected == number } else { ask(number, selected) }
}

#[cold]
fn ask(number: u32, selected: u32) -> bool {
    if selected == RECORDS {
        record(number);
        return false;
    }
    let selected = if std::env::var_os("LONGHAUL_MUTANTS_RECORD").is_some() {
        RECORDS
    } else {
        let number = std::env::var("LONGHAUL_MUTANT").ok();
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    SELECTED.store(selected, Ordering::Relaxed);
    is_on(number)
}

/// Appends the number of a mutant that is reached for the first time to the record.
#[cold]
fn record(number: u32) {
    let Some(reached) = REACHED.get(number as usize) else { return };
    if reached.swap(true, Ordering::Relaxed) {
        return;
    }
    let file = RECORD.get_or_init(|| {
        let path = std::env::var_os("LONGHAUL_MUTANTS_RECORD")?;
        File::options().create(true).append(true).open(path).ok()
    });
    if let Some(mut file) = file.as_ref() {
        let _ = file.write_all(&number.to_le_bytes());
    }
}

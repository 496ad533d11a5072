//! Captures the events logged during an action.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type Fields = Vec<(String, String)>;

#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<Fields>>>);

struct Reading(Fields);

impl Visit for Reading {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }
}

impl Subscriber for Logged {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut reading = Reading(Vec::new());
        event.record(&mut reading);
        self.0.lock().unwrap().push(reading.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The named events, each with its fields.
pub(super) fn logged(done: impl FnOnce()) -> Vec<BTreeMap<String, String>> {
    let logged = Logged::default();
    // With a single subscriber in the process, tracing asks the subscriber of the test that reaches
    // a log line first, and that test has none: events were missing in two of seven runs.
    let _other = tracing::Dispatch::new(Logged::default());
    tracing::subscriber::with_default(logged.clone(), done);
    let events = std::mem::take(&mut *logged.0.lock().unwrap());
    let events = events.into_iter().map(BTreeMap::from_iter);
    events.filter(|fields: &BTreeMap<_, _>| fields.contains_key("event")).collect()
}

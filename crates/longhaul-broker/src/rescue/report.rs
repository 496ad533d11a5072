//! The report of a check or a salvage.

use super::reading::{SalvageReading, entry_of};
use super::views::Damaged;
use crate::log::{Cost, LogFinding};
use crate::state::BrokerState;
use crate::state::entries::EntryPosition;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Findings and id ranges that are listed individually.
const SHOWN_MAX: usize = 1000;

/// The result of checking a data directory, as text for people.
#[derive(Clone, Debug, Serialize)]
pub struct RescueReport {
    directory: PathBuf,
    /// Number of readable topics.
    topics: usize,
    /// Number of readable messages.
    messages: u64,
    damage: Vec<String>,
    /// The damaged files of the log, with the offsets, in the directory that was read.
    #[serde(skip)]
    pub places: Vec<(PathBuf, u64)>,
    /// By topic.
    lost: Vec<Lost>,
    notes: Vec<String>,
    /// Why a start would refuse the directory, if nothing else was found.
    pub(super) refusal: Option<String>,
    /// The new directory, if one was created.
    pub(super) made: Option<PathBuf>,
}

/// Losses of a topic.
#[derive(Clone, Debug, Serialize)]
struct Lost {
    topic: String,
    messages: u64,
    /// Ranges of ids, such as `7:0-9`.
    ids: Vec<String>,
}

impl RescueReport {
    pub(super) fn new(directory: &Path, read: &SalvageReading, views: &[Damaged]) -> Self {
        let state = &read.state;
        let here = |topic: &crate::state::BrokerTopic| topic.entries.iter().count() as u64;
        let mut damage: Vec<String> =
            read.findings.iter().map(|finding| line(state, finding)).collect();
        damage.extend(views.iter().map(|view| view_line(state, view)));
        if read.findings.is_empty() && read.unapplied.0 > 0 {
            damage.push(format!(
                "{} changes of state contradict what was recorded before them; the first: {}",
                read.unapplied.0, read.unapplied.1
            ));
        }
        let places =
            read.findings.iter().map(|finding| (finding.file.clone().into(), finding.offset));
        let lost = state.topics().filter_map(|(_, topic)| {
            let ids = read.lost(topic);
            let messages = ids.iter().map(|(from, to)| to.entry - from.entry + 1).sum();
            let topic = topic.name.as_str().to_owned();
            let ids: Vec<_> = ids.iter().map(range).collect();
            (!ids.is_empty()).then_some(Lost { topic, messages, ids })
        });
        let (lost, notes) = (lost.collect(), notes(read));
        Self {
            directory: directory.to_owned(),
            topics: state.topics().count(),
            messages: state.topics().map(|(_, topic)| here(topic)).sum(),
            damage,
            places: places.collect(),
            lost,
            notes,
            refusal: None,
            made: None,
        }
    }

    /// Whether nothing is damaged.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.refusal.is_none()
    }

    /// Names the files of one directory as those of another one.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let (from, to) = (from.display().to_string(), to.display().to_string());
        for line in self.damage.iter_mut().chain(&mut self.notes).chain(&mut self.refusal) {
            *line = line.replace(&from, &to);
        }
    }

    /// Whether the same is damaged.
    pub(super) fn has_damage_of(&self, other: &Self) -> bool {
        (&self.damage, &self.refusal) == (&other.damage, &other.refusal)
    }

    /// Number of readable messages.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Leaves out what is no damage.
    #[must_use]
    pub fn without_notes(&self) -> Self {
        Self { notes: Vec::new(), ..self.clone() }
    }

    /// Adds damage at the end of the log, if nothing else is damaged.
    pub(super) fn cut_off(&mut self, place: Option<(PathBuf, u64)>) {
        if let Some((file, offset)) = place.filter(|_| self.is_sound()) {
            let file_name = file.display();
            self.damage.push(format!(
                "{file_name} at offset {offset}: a record is damaged; it and all later ones are lost"
            ));
            self.places.push((file, offset));
        }
    }

    /// Adds a note.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}

impl fmt::Display for RescueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_sound() { "sound" } else { "damaged" };
        let Self { topics, messages, .. } = self;
        writeln!(f, "{} is {state}.", self.directory.display())?;
        writeln!(f, "It has {topics} topics, and {messages} messages that can be read.")?;
        if let Some(refusal) = &self.refusal {
            writeln!(f, "A start would refuse it: {refusal}")?;
        }
        list(f, "Damage:", &self.damage)?;
        if !self.lost.is_empty() {
            writeln!(f, "Messages that are lost, by topic and id (ledger:entry):")?;
        }
        for lost in &self.lost {
            let shown = lost.ids.get(..SHOWN_MAX).unwrap_or(&lost.ids).join(", ");
            write!(f, "  {}: {}: {shown}", lost.topic, lost.messages)?;
            if lost.ids.len() > SHOWN_MAX {
                write!(f, ", and {} ranges more", lost.ids.len() - SHOWN_MAX)?;
            }
            writeln!(f)?;
        }
        list(f, "Besides:", &self.notes)?;
        let Some(made) = &self.made else { return Ok(()) };
        writeln!(
            f,
            "Everything that can be read is in {}: start the broker with it. Nothing was changed in {}.",
            made.display(),
            self.directory.display()
        )
    }
}

fn range((from, to): &(EntryPosition, EntryPosition)) -> String {
    let EntryPosition { ledger, entry } = from;
    if from == to { format!("{ledger}:{entry}") } else { format!("{ledger}:{entry}-{}", to.entry) }
}

fn list(f: &mut fmt::Formatter<'_>, head: &str, lines: &[String]) -> fmt::Result {
    if !lines.is_empty() {
        writeln!(f, "{head}")?;
    }
    for line in lines.iter().take(SHOWN_MAX) {
        writeln!(f, "  {line}")?;
    }
    if lines.len() > SHOWN_MAX {
        writeln!(f, "  and {} more", lines.len() - SHOWN_MAX)?;
    }
    Ok(())
}

fn line(state: &BrokerState, finding: &LogFinding) -> String {
    let offset =
        if finding.offset == 0 { String::new() } else { format!(" at offset {}", finding.offset) };
    format!("{}{offset}: {}; {}", finding.file, finding.what, cost(state, finding))
}

/// The consequence of a finding, in words.
fn cost(state: &BrokerState, finding: &LogFinding) -> String {
    if let Some((id, position)) = entry_of(finding) {
        let EntryPosition { ledger, entry } = position;
        let topic = state.topic(id);
        let ordinal = topic.and_then(|topic| Some((topic, topic.entries.ordinal_of(position)?)));
        return match (topic, ordinal) {
            (None, _) => format!(
                "message {ledger}:{entry} of topic number {id}, which was deleted or whose name is lost"
            ),
            (Some(topic), None) => {
                format!("a message of {} with the unknown id {ledger}:{entry}", topic.name)
            }
            (_, Some((topic, ordinal))) => {
                let why = match topic.entries.get(ordinal) {
                    Some(_) => ", of which another copy can be read",
                    None if ordinal >= topic.entries.first() => "",
                    None => ", which was not needed any more",
                };
                format!("message {ledger}:{entry} of {}{why}", topic.name)
            }
        };
    }
    match finding.cost {
        Cost::Nothing | Cost::Entry(_) => "nothing is lost".to_owned(),
        Cost::Entries(0) => "the messages in it".to_owned(),
        Cost::Entries(bytes) => format!("the messages in these {bytes} bytes"),
        Cost::Anything(0) => "the messages in it, and changes of state".to_owned(),
        Cost::Anything(bytes) => {
            format!("the messages in these {bytes} bytes, and maybe changes of state")
        }
        Cost::State => {
            "a part of the state: topics, subscriptions, acknowledgements, policies".to_owned()
        }
    }
}

fn view_line(state: &BrokerState, damaged: &Damaged) -> String {
    let name = state.topic(damaged.topic).map_or("", |topic| topic.name.as_str());
    let cost = if damaged.is_complete {
        "nothing is lost: it can be rebuilt".to_owned()
    } else if damaged.unreadable.is_empty() {
        format!("messages of the compacted view of {name} that the log no longer has")
    } else {
        let ids: Vec<String> = damaged
            .unreadable
            .iter()
            .take(SHOWN_MAX)
            .map(|id| format!("{}:{}", id.ledger, id.entry))
            .collect();
        format!("of the compacted view of {name} the messages {}", ids.join(", "))
    };
    format!("{}: {}; {cost}", damaged.file, damaged.what)
}

fn notes(read: &SalvageReading) -> Vec<String> {
    let mut notes = Vec::new();
    if read.lacks_inventory {
        notes.push(
            "There is no inventory of the segments (the file `segments`): a full disk may have left no room for it, or it was removed. Without it, missing segments before the checkpoint are not noticed.".to_owned(),
        );
    }
    if read.has_lost_state() {
        notes.push(
            "Changes of state may be lost: messages whose acknowledgements are lost are delivered again; topics, subscriptions and policies may be missing, or be there as they were before.".to_owned(),
        );
    }
    if !read.findings.is_empty() && read.unapplied.0 > 0 {
        notes.push(format!(
            "{} changes do not apply to the remaining data and are left out; the first: {}",
            read.unapplied.0, read.unapplied.1
        ));
    }
    for topic in &read.nameless {
        notes.push(format!(
            "Topic number {topic} has lost its name: its messages are in persistent://public/default/salvaged-{topic}."
        ));
    }
    if read.unplaced > 0 {
        notes.push(format!(
            "{} messages can be read but their place in their topic is lost: they are left out.",
            read.unplaced
        ));
    }
    notes
}

//! Granted tickets, over random logs.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

const fn task(entry: u64) -> TaskId {
    TaskId { ledger: 0, entry, partition: -1, batch_index: None }
}

fn ticket(kind: GateKind, key: Option<&str>, serial: u64) -> Ticket {
    let gate = Gate { kind, key: key.map(Into::into) };
    let stamp = Stamp { writer: OwnerId(7), serial };
    Ticket { gate, task: task(serial), owner: OwnerId(1), stamp }
}

fn slots(serial: u64) -> Ticket {
    ticket(GateKind::Slots, None, serial)
}

fn limit(max_in_flight: Option<u32>, rate: Option<(u32, u64)>) -> Limit {
    let rate = rate.map(|(tokens, per_ms)| Rate::new(tokens, Duration::from_millis(per_ms)));
    Limit { max_in_flight, rate }
}

fn queue(max_in_flight: Option<u32>, rate: Option<(u32, u64)>) -> QueueSettings {
    let mut settings = QueueSettings::default();
    settings.limit = limit(max_in_flight, rate);
    settings
}

fn granted(gates: &Gates, tickets: &[Ticket]) -> Vec<bool> {
    tickets.iter().map(|ticket| matches!(gates.standing(ticket), TicketGrant::From(_))).collect()
}

#[test]
fn tickets_are_granted_in_the_order_of_the_log() {
    let mut gates = Gates::default();
    gates.set(&queue(Some(2), None), 0);
    let line: Vec<_> = (0..4).map(slots).collect();
    assert_eq!(gates.standing(&line[0]), TicketGrant::Unknown);
    for ticket in &line {
        assert!(gates.take(ticket, "tasks", 0));
        assert!(!gates.take(ticket, "tasks", 0), "once");
    }
    assert_eq!(granted(&gates, &line), [true, true, false, false]);
    // A waiting ticket that leaves gives nothing to others.
    assert!(gates.give_back(&line[2], 0) && !gates.give_back(&line[2], 0));
    assert_eq!(granted(&gates, &line), [true, true, false, false]);
    assert!(gates.give_back(&line[0], 0));
    assert_eq!(granted(&gates, &line), [false, true, false, true]);
    assert_eq!(gates.counts(&line[0].gate), (2, 0));
    for ticket in &line {
        gates.give_back(ticket, 0);
    }
    assert!(gates.is_empty() && gates.lines.is_empty());
}

#[test]
fn the_use_of_limits_names_who_waits_and_when_a_rate_opens() {
    let mut gates = Gates::default();
    let mut settings = queue(Some(1), Some((1, 1_000)));
    settings.per_key = limit(Some(1), None);
    settings.keys.insert("quiet".to_owned(), limit(Some(5), None));
    gates.set(&settings, 0);
    for serial in 0..3 {
        gates.take(&slots(serial), "tasks", 0);
    }
    gates.take(&ticket(GateKind::Pace, None, 0), "tasks", 0);
    gates.take(&ticket(GateKind::Pace, None, 3), "tasks-high", 0);
    for serial in 4..6 {
        gates.take(&ticket(GateKind::Slots, Some("busy"), serial), "tasks", 0);
    }
    let told: Vec<_> = gates
        .usage(500)
        .into_iter()
        .map(|it| {
            let waiting: Vec<_> = it
                .waiting
                .iter()
                .map(|(topic, id)| (&**topic, id.entry))
                .collect::<Vec<_>>()
                .iter()
                .map(|(topic, entry)| format!("{topic}@{entry}"))
                .collect();
            (it.key.as_deref().map(str::to_owned), it.running, waiting, it.opens_ms)
        })
        .collect();
    let at = |entries: &[(&str, u64)]| {
        entries.iter().map(|(topic, entry)| format!("{topic}@{entry}")).collect::<Vec<_>>()
    };
    let whole = at(&[("tasks", 1), ("tasks", 2), ("tasks-high", 3)]);
    assert_eq!(
        told,
        [
            (None, 1, whole, Some(1_000)),
            (Some("busy".to_owned()), 1, at(&[("tasks", 5)]), None),
            (Some("quiet".to_owned()), 0, Vec::new(), None),
        ]
    );
    gates.set(&QueueSettings::default(), 500);
    assert_eq!(gates.usage(500), [], "without limits nothing is limited");
}

/// A granted ticket stays granted: a lower limit is reached when enough tasks have ended.
#[test]
fn a_new_limit_counts_from_its_place_in_the_log() {
    let mut gates = Gates::default();
    let line: Vec<_> = (0..5).map(slots).collect();
    gates.set(&queue(Some(3), None), 0);
    for ticket in &line {
        gates.take(ticket, "tasks", 0);
    }
    gates.set(&queue(Some(1), None), 0);
    assert_eq!(granted(&gates, &line), [true, true, true, false, false]);
    gates.give_back(&line[1], 0);
    gates.give_back(&line[0], 0);
    assert_eq!(granted(&gates, &line), [false, false, true, false, false]);
    gates.give_back(&line[2], 0);
    assert_eq!(granted(&gates, &line), [false, false, false, true, false]);
    gates.set(&QueueSettings::default(), 0);
    assert_eq!(granted(&gates, &line), [false, false, false, true, true]);
}

#[test]
fn a_task_passes_the_gates_of_its_key_first() {
    let mut gates = Gates::default();
    let way = |gates: &Gates, key| -> Vec<String> {
        gates.on_the_way(key).map(|gate| gate.to_string()).collect()
    };
    assert_eq!((way(&gates, Some("a")), gates.any()), (Vec::new(), false));
    let mut settings = queue(Some(9), Some((1, 1000)));
    settings.per_key = limit(Some(1), None);
    settings.keys.insert("b/c".to_owned(), limit(None, Some((1, 1000))));
    settings.keys.insert("free".to_owned(), Limit::default());
    gates.set(&settings, 0);
    assert!(gates.any() && gates.any_of_keys());
    assert_eq!(way(&gates, None), ["slots/queue", "pace/queue"]);
    assert_eq!(way(&gates, Some("a")), ["slots/key/a", "slots/queue", "pace/queue"]);
    assert_eq!(way(&gates, Some("b/c")), ["slots/queue", "pace/key/b/c", "pace/queue"]);
    assert_eq!(way(&gates, Some("free")), ["slots/queue", "pace/queue"]);
    for gate in ["slots/queue", "pace/key/b/c"] {
        assert!(gates.stands(&Gate::parse(gate).unwrap()));
    }
    for gate in ["slots/key/free", "pace/key/a"] {
        assert!(!gates.stands(&Gate::parse(gate).unwrap()));
    }
}

/// Otherwise a reader that missed the return of a ticket would count it forever, while its task
/// takes one after the other.
#[test]
fn the_next_ticket_for_a_task_takes_the_place_of_the_one_before() {
    let mut gates = Gates::default();
    gates.set(&queue(Some(1), None), 0);
    let [first, other, mut next] = [0, 1, 2].map(slots);
    next.task = first.task;
    for ticket in [&first, &other, &next] {
        assert!(gates.take(ticket, "tasks", 0));
    }
    assert_eq!(granted(&gates, &[first.clone(), other.clone(), next]), [false, true, false]);
    assert!(!gates.take(&first, "tasks", 0), "it was on its way for long");
    assert_eq!(gates.counts(&other.gate), (1, 1));
}

#[test]
fn when_a_token_will_be_there_is_known_before_it_is_taken() {
    let mut gates = Gates::default();
    let gate = Gate { kind: GateKind::Pace, key: None };
    assert_eq!(gates.opens_at(&gate, 9, 5_000), 5_000, "without a rate at once");
    gates.set(&queue(None, Some((2, 2_000))), 5_000);
    let opens = |gates: &Gates, behind| gates.opens_at(&gate, behind, 5_000);
    assert_eq!([0, 1, 2, 3].map(|it| opens(&gates, it)), [5_000, 5_000, 6_000, 7_000]);
    for serial in 0..3 {
        let expected = opens(&gates, 0);
        let ticket = ticket(GateKind::Pace, None, serial);
        gates.take(&ticket, "tasks", 5_000);
        assert_eq!(gates.standing(&ticket), TicketGrant::From(expected));
    }
    assert_eq!(opens(&gates, usize::MAX), u64::MAX / 1_000_000 - 999);
}

/// A line of one key that does not move must not delay other keys.
#[test]
fn keys_do_not_wait_for_each_other() {
    let mut gates = Gates::default();
    let mut settings = QueueSettings::default();
    settings.per_key = limit(Some(1), None);
    gates.set(&settings, 0);
    let (a, b) = (
        [0, 1].map(|it| ticket(GateKind::Slots, Some("a"), it)),
        ticket(GateKind::Slots, Some("b"), 2),
    );
    for ticket in a.iter().chain([&b]) {
        gates.take(ticket, "tasks", 0);
    }
    assert_eq!((granted(&gates, &a), granted(&gates, &[b])), (vec![true, false], vec![true]));
}

#[test]
fn a_bucket_has_its_burst_and_then_its_rate() {
    let mut gates = Gates::default();
    gates.set(&queue(None, Some((3, 3_000))), 10_000);
    let from = |gates: &mut Gates, serial, at| {
        let ticket = ticket(GateKind::Pace, None, serial);
        gates.take(&ticket, "tasks", at);
        let TicketGrant::From(from) = gates.standing(&ticket) else {
            panic!("a pace waits for nobody")
        };
        (from, gates.forgotten_at(&ticket).unwrap())
    };
    let all = |gates: &mut Gates, serials: std::ops::Range<u64>, at| -> Vec<u64> {
        serials.map(|serial| from(gates, serial, at).0).collect()
    };
    assert_eq!(all(&mut gates, 0..5, 10_000), [10_000, 10_000, 10_000, 11_000, 12_000]);
    assert_eq!(from(&mut gates, 5, 13_500), (13_500, 16_000));
    // Full again.
    assert_eq!(all(&mut gates, 6..10, 30_000), [30_000, 30_000, 30_000, 31_000]);
}

#[test]
fn who_waits_for_a_token_gets_one_of_the_new_rate() {
    let mut gates = Gates::default();
    gates.set(&queue(None, Some((1, 3_600_000))), 0);
    let line: Vec<_> = (0..4).map(|serial| ticket(GateKind::Pace, None, serial)).collect();
    for ticket in &line {
        gates.take(ticket, "tasks", 0);
    }
    let from =
        |gates: &Gates| -> Vec<_> { line.iter().map(|ticket| gates.standing(ticket)).collect() };
    assert_eq!(from(&gates)[1], TicketGrant::From(3_600_000));
    // Another setting was changed: the line stays as it is.
    let mut settings = queue(None, Some((1, 3_600_000)));
    settings.paused = true;
    gates.set(&settings, 500);
    assert_eq!(from(&gates)[1], TicketGrant::From(3_600_000));
    gates.set(&queue(None, Some((10, 1_000))), 1_000);
    assert_eq!(from(&gates), [0, 1_000, 1_100, 1_200].map(TicketGrant::From));
    gates.set(&queue(None, None), 1_050);
    assert_eq!(from(&gates), [0, 1_000, 1_050, 1_050].map(TicketGrant::From));
}

/// An event of a register.
#[derive(Clone, Debug)]
enum Event {
    Take(GateKind, u8),
    /// The ticket with this number, among those not given back.
    GiveBack(u8),
    Set(u8),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let kind = prop_oneof![Just(GateKind::Slots), Just(GateKind::Pace)];
    let event = prop_oneof![
        4 => (kind, 0..3_u8).prop_map(|(kind, key)| Event::Take(kind, key)),
        3 => any::<u8>().prop_map(Event::GiveBack),
        1 => (0..4_u8).prop_map(Event::Set),
    ];
    vec((0..700_u64, event), 0..60)
}

fn some_settings(number: u8) -> QueueSettings {
    let mut settings = queue(Some(u32::from(number) + 1), Some((u32::from(number) + 1, 1_000)));
    settings.per_key = limit(Some(2), Some((2, 500 * u64::from(number + 1))));
    settings
}

#[derive(Clone, Debug)]
enum Entry {
    Take(Ticket),
    GiveBack(Ticket),
    Set(u8),
}

fn apply(gates: &mut Gates, at: u64, entry: &Entry) {
    match entry {
        Entry::Take(ticket) => drop(gates.take(ticket, "tasks", at)),
        Entry::GiveBack(ticket) => drop(gates.give_back(ticket, at)),
        Entry::Set(number) => gates.set(&some_settings(*number), at),
    }
}

/// The log of a register. A ticket of a rate is given back when it is forgotten and not before, as
/// workers do.
fn log(events: &[(u64, Event)], clocks: &[u64]) -> Vec<(u64, Entry)> {
    let (mut gates, mut log, mut now) = (Gates::default(), Vec::new(), 1_000_000);
    log.push((now, Entry::Set(0)));
    apply(&mut gates, now, &Entry::Set(0));
    for (serial, (pause, event)) in (0..).zip(events) {
        now += pause;
        let entry = match event {
            Event::Take(kind, key) => {
                let key = [None, Some("a"), Some("b")][usize::from(*key)];
                Entry::Take(ticket(*kind, key, serial))
            }
            Event::Set(number) => Entry::Set(*number),
            Event::GiveBack(number) => {
                let free = |ticket: &&Ticket| gates.forgotten_at(ticket).is_none_or(|at| at <= now);
                let standing: Vec<&Ticket> =
                    gates.standing_tickets().map(|(ticket, _)| ticket).filter(free).collect();
                if standing.is_empty() {
                    continue;
                }
                Entry::GiveBack(standing[usize::from(*number) % standing.len()].clone())
            }
        };
        let skew = clocks.get(usize::try_from(serial).unwrap() % clocks.len().max(1));
        let at = now.saturating_sub(skew.copied().unwrap_or_default());
        apply(&mut gates, at, &entry);
        log.push((at, entry));
    }
    log
}

proptest! {
    /// The tickets granted and not given back never exceed the limit that held when they were
    /// granted.
    #[test]
    fn a_gate_grants_no_more_than_its_limit(events in events()) {
        let mut gates = Gates::default();
        let mut most = BTreeMap::new();
        for (at, entry) in log(&events, &[]) {
            if let Entry::Set(number) = entry {
                for key in [None, Some("a"), Some("b")] {
                    let gate = ticket(GateKind::Slots, key, 0).gate;
                    let granted = gates.counts(&gate).0;
                    let limit = if key.is_some() { 2 } else { usize::from(number) + 1 };
                    most.insert(gate, limit.max(granted));
                }
            }
            apply(&mut gates, at, &entry);
            for (gate, most) in &mut most {
                let (granted, waiting) = gates.counts(gate);
                prop_assert!(granted <= *most, "{gate}: {granted} of {most}");
                let limit = usize::try_from(gates.limits.of(gate).max_in_flight.unwrap()).unwrap();
                *most = granted.max(limit);
                prop_assert!(waiting == 0 || granted >= limit, "nobody waits for nothing");
            }
        }
    }

    /// In any window, no more tasks begin than the bucket holds plus its rate adds. At each gate
    /// they begin in the order of the log as far as their own times allow.
    #[test]
    fn a_bucket_never_gives_more_than_it_has(
        pauses in vec(0..400_u64, 1..60), clocks in vec(0..300_u64, 1..4), tokens in 1..6_u32, per in 1..3_000_u64,
    ) {
        let mut gates = Gates::default();
        gates.set(&queue(None, Some((tokens, per))), 0);
        let (mut now, mut from) = (1_000_000, Vec::new());
        for (serial, pause) in (0..).zip(&pauses) {
            now += pause;
            let ticket = ticket(GateKind::Pace, None, serial);
            let at = now - clocks[usize::try_from(serial).unwrap() % clocks.len()];
            gates.take(&ticket, "tasks", at);
            let line = &gates.lines[&ticket.gate];
            let placed = &line.tickets[&line.places[&ticket.place_of()]];
            prop_assert!(placed.from >= nanos(at));
            from.push(placed.from);
        }
        from.sort_unstable();
        let (burst, interval) = (u64::from(tokens), Rate::new(tokens, Duration::from_millis(per)).interval());
        for (first, begin) in from.iter().enumerate() {
            for (last, end) in from.iter().enumerate().skip(first) {
                let count = u64::try_from(last - first + 1).unwrap();
                prop_assert!(count <= burst + (end - begin) / interval, "{count} within {}", end - begin);
            }
        }
    }

    /// A worker that starts after a compaction grants no ticket that a worker that has read
    /// everything does not grant, and none sooner. Tokens of a changed rate are exempt: such a
    /// worker cannot know how many of them were in flight at the change, and may grant one bucket
    /// more (docs/limits.md).
    #[test]
    fn a_reader_that_begins_late_grants_no_more(events in events(), cut in any::<prop::sample::Index>(), keeps in any::<u64>()) {
        let log = log(&events, &[]);
        let cut = cut.index(log.len() + 1);
        let (before, after) = log.split_at(cut);
        let changed = log.iter().filter(|(_, entry)| matches!(entry, Entry::Set(_))).count() > 1;
        let given_back: Vec<&Ticket> = before.iter().filter_map(|(_, entry)| match entry {
            Entry::GiveBack(ticket) => Some(ticket),
            Entry::Take(_) | Entry::Set(_) => None,
        }).collect();
        let last_set = before.iter().rposition(|(_, entry)| matches!(entry, Entry::Set(_)));
        let (mut full, mut late) = (Gates::default(), Gates::default());
        for (number, (at, entry)) in before.iter().enumerate() {
            apply(&mut full, *at, entry);
            // A compaction removes some superseded entries, in any selection.
            let superseded = match entry {
                Entry::Take(ticket) => given_back.contains(&ticket),
                Entry::GiveBack(_) => true,
                Entry::Set(_) => last_set != Some(number),
            };
            let both = matches!(entry, Entry::Set(_)) && keeps >> (number % 64) & 1 == 1;
            if !superseded || both {
                apply(&mut late, *at, entry);
            }
        }
        let now = before.last().map_or(1_000_000, |(at, _)| *at);
        late.read_to_end(now);
        let mut own: Vec<&Ticket> = Vec::new();
        for (at, entry) in after {
            apply(&mut full, *at, entry);
            apply(&mut late, *at, entry);
            if let Entry::Take(ticket) = entry {
                own.push(ticket);
            }
            for ticket in &own {
                match (full.standing(ticket), late.standing(ticket)) {
                    (TicketGrant::From(_), TicketGrant::From(_)) if changed && ticket.gate.kind == GateKind::Pace => {}
                    (TicketGrant::From(full), TicketGrant::From(late)) => prop_assert!(late >= full, "{ticket}: {late} {full}"),
                    (full, TicketGrant::From(_)) => prop_assert!(false, "{ticket}: {full:?}"),
                    (_, TicketGrant::Waits | TicketGrant::Unknown) => {}
                }
            }
        }
    }

    #[test]
    fn a_ticket_has_one_text(text in "(slots|pace)?/(queue|key/.{0,5})?/[0-9:+-]{0,8}/[a-f0-9]{0,34}/[a-f0-9]{0,34}/[0-9]{0,3}") {
        if let Some(ticket) = Ticket::parse(&text) {
            prop_assert_eq!(ticket.to_string(), text);
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_is_written(key in prop::option::of("[a-z/]{1,20}"), serial in any::<u64>(), pace in any::<bool>()) {
        let kind = if pace { GateKind::Pace } else { GateKind::Slots };
        let ticket = ticket(kind, key.as_deref(), serial);
        prop_assert_eq!(Ticket::parse(&ticket.to_string()), Some(ticket));
    }
}

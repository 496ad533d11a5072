use super::*;
use proptest::prelude::*;

/// A worker whose topics always want more slots than there are, except for topics that are told to
/// rest.
struct Bench {
    shares: Shares,
    weights: Vec<u32>,
    uses: Vec<Use>,
    resting: BTreeSet<u16>,
    /// When each busy slot is free again.
    running: Vec<(u64, u16)>,
    slots: usize,
    now: u64,
    starts: Vec<usize>,
    /// Starts of others since each topic has held no slot.
    passed_over: Vec<usize>,
}

impl Bench {
    fn new(slots: usize, topics: &[Share]) -> Self {
        let mut shares = Shares::new(slots);
        topics.iter().for_each(|share| shares.add(*share));
        let count = topics.len();
        Self {
            shares,
            weights: topics.iter().map(|share| share.weight).collect(),
            uses: vec![Use::default(); count],
            resting: BTreeSet::new(),
            running: Vec::new(),
            slots,
            now: 0,
            starts: vec![0; count],
            passed_over: vec![0; count],
        }
    }

    fn note(&mut self, topic: u16, held: usize) {
        let uses = Use { held, waiting: 1 };
        let before = std::mem::replace(&mut self.uses[usize::from(topic)], uses);
        self.shares.note(topic, before, uses);
    }

    /// One start, as soon as a slot is free. `duration` gives the time that a topic's task takes.
    fn start(&mut self, duration: impl Fn(u16) -> u64) -> Option<u16> {
        while self.running.len() == self.slots {
            let (at, ended) = *self.running.iter().min().unwrap();
            self.now = at;
            self.running.remove(self.running.iter().position(|it| *it == (at, ended)).unwrap());
            self.note(ended, self.uses[usize::from(ended)].held - 1);
        }
        let count = u16::try_from(self.uses.len()).unwrap();
        let wanting = (0..count).filter(|topic| !self.resting.contains(topic)).collect();
        let topic = self.shares.next(&wanting)?;
        self.shares.took(topic, 1);
        self.note(topic, self.uses[usize::from(topic)].held + 1);
        self.running.push((self.now + duration(topic), topic));
        self.starts[usize::from(topic)] += 1;
        for (other, passed_over) in (0..).zip(&mut self.passed_over) {
            let has_none = self.uses[usize::from(other)].held == 0 && wanting.contains(&other);
            *passed_over = if has_none { *passed_over + 1 } else { 0 };
        }
        Some(topic)
    }
}

#[track_caller]
fn check(slots: usize, weights: &[u32], starts: usize, expected: &[usize]) {
    let topics: Vec<Share> = weights.iter().copied().map(Share::weight).collect();
    let mut bench = Bench::new(slots, &topics);
    for _ in 0..starts {
        bench.start(|_| 10);
    }
    assert_eq!(bench.starts, expected);
}

#[test]
fn starts_follow_the_weights_however_few_slots_there_are() {
    check(1, &[3, 1], 400, &[300, 100]);
    check(2, &[3, 1], 400, &[300, 100]);
    check(4, &[3, 1], 400, &[300, 100]);
    check(16, &[3, 1], 1600, &[1200, 400]);
    check(1, &[1, 1, 1], 300, &[100, 100, 100]);
    check(16, &[1; 1000], 3000, &[3; 1000]);
}

/// By the number of starts alone, a topic with tasks of an hour would soon hold all slots, and one
/// with tasks of a second would wait for an hour.
#[test]
fn a_topic_with_long_tasks_holds_no_more_than_its_share() {
    let mut bench = Bench::new(16, &[Share::default(); 2]);
    let duration = |topic| if topic == 0 { 3600 } else { 1 };
    for _ in 0..2000 {
        bench.start(duration);
    }
    assert!(bench.now < 3600);
    assert_eq!(bench.uses[0].held, 8);
}

#[test]
fn what_a_topic_did_not_need_it_cannot_make_up_for() {
    let mut bench = Bench::new(1, &[Share::default(); 2]);
    bench.resting.insert(1);
    for _ in 0..100 {
        bench.start(|_| 1);
    }
    bench.resting.clear();
    bench.starts = vec![0; 2];
    for _ in 0..10 {
        bench.start(|_| 1);
    }
    assert_eq!(bench.starts, [5, 5]);
}

#[test]
fn a_topic_above_has_deliveries_at_hand_and_those_below_wait_until_the_broker_has_settled() {
    let mut shares = Shares::new(4);
    for precedence in [0, 1] {
        shares.add(Share::default().precedence(precedence));
    }
    shares.add_lane(0);
    shares.add_lane(1);
    let now = Moment(Duration::from_secs(5));
    assert_eq!((shares.has_at_hand(0), shares.has_at_hand(1)), (false, true));
    // All slots are taken.
    let credits = |shares: &Shares, waiting, free, probe| {
        [0, 1].map(|topic| shares.credit(topic, waiting, free, 9, probe, now))
    };
    assert_eq!(credits(&shares, 0, 0, false), [0, 4]);
    assert_eq!(credits(&shares, 3, 0, true), [1, 1]);
    assert_eq!(credits(&shares, 4, 0, false), [0, 0]);
    // The free slots are for the waiting tasks of the higher precedence.
    assert_eq!(
        (shares.credit(0, 0, 4, 9, false, now), shares.credit(1, 0, 4, 9, false, now)),
        (4, 4)
    );
    shares.note(1, Use::default(), Use { held: 0, waiting: 3 });
    assert_eq!(
        (shares.credit(0, 0, 4, 9, false, now), shares.credit(0, 0, 4, 0, true, now)),
        (1, 0)
    );
    // All credit was used: there may be more tasks.
    shares.may_have_more(1, now);
    assert!(!shares.is_open(0, now) && shares.is_open(1, now));
    assert_eq!(shares.credit(0, 0, 4, 9, false, now), 0);
    let settled = now + SETTLES_WITHIN;
    assert_eq!(shares.opens_at(now), Some(settled));
    assert!(shares.is_open(0, settled) && shares.opens_at(settled).is_none());
}

proptest! {
    /// A topic that wants a slot and holds none gets one after a limited number of others, whatever
    /// the durations of their tasks. None starts before one of a higher precedence that wants a
    /// slot.
    #[test]
    fn none_is_starved_and_the_highest_goes_first(
        slots in 1_usize..20,
        topics in prop::collection::vec((1_u32..9, 0_i32..3), 1..6),
        durations in prop::collection::vec(1_u64..1000, 7),
        rests in prop::collection::vec((0_u16..6, any::<bool>()), 200),
    ) {
        let shares: Vec<Share> = topics.iter().map(|(weight, precedence)| Share::weight(*weight).precedence(*precedence)).collect();
        let mut bench = Bench::new(slots, &shares);
        for (step, (topic, rests)) in rests.into_iter().cycle().take(1000).enumerate() {
            if rests { bench.resting.insert(topic); } else { bench.resting.remove(&topic); }
            let duration = |topic: u16| durations[(step + usize::from(topic)) % durations.len()];
            let Some(started) = bench.start(duration) else { continue };
            let wants = |other: usize| !bench.resting.contains(&u16::try_from(other).unwrap());
            let of = |topic: usize| topics[topic].1;
            let highest = (0..topics.len()).filter(|other| wants(*other)).map(of).max();
            prop_assert_eq!(highest, Some(of(usize::from(started))));
            for other in (0..topics.len()).filter(|other| Some(of(*other)) == highest) {
                let weight = bench.weights[other];
                let rivals = (0..topics.len()).filter(|rival| of(*rival) == of(other) && *rival != other);
                let bound: u32 = rivals.map(|rival| bench.weights[rival].div_ceil(weight) + 1).sum();
                // Topics of a higher precedence may have started in between: their starts do not
                // count.
                let same = (0..topics.len()).all(|rival| of(rival) == of(other));
                prop_assert!(!same || bench.passed_over[other] <= bound as usize, "{} of {bound}", bench.passed_over[other]);
            }
        }
    }
}

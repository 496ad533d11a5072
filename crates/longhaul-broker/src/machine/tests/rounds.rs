//! Periodic work of a broker with very many topics.

use super::*;
use crate::machine::cleaning::VISITED_MAX;

const TOPICS: usize = 2 * VISITED_MAX + 1;

/// A rig with so many topics that a round has three steps.
fn rig() -> Rig {
    let mut rig = Rig::new();
    for number in 0..TOPICS {
        let name = TopicName::parse(&format!("persistent://public/default/{number}")).unwrap();
        rig.machine.ensure_topic(&name, true).unwrap();
    }
    rig.settle();
    rig
}

/// Advances the time in steps. Returns the topics that each tick visited.
fn visited(rig: &mut Rig, steps: &[u64]) -> Vec<Vec<u32>> {
    let mut one = |&ms: &u64| {
        rig.stall(ms);
        std::mem::take(&mut rig.machine.keeper.visited)
    };
    steps.iter().map(&mut one).collect()
}

fn is_all(topics: &[Vec<u32>]) -> bool {
    let all: Vec<u32> = topics.concat();
    all.len() == TOPICS && all.iter().collect::<BTreeSet<_>>().len() == TOPICS
}

/// A round visited all topics in one tick: with 100,000 topics, all clients waited for it, each
/// second.
#[test]
fn a_tick_visits_some_topics_and_a_round_all_of_them() {
    let mut rig = rig();
    let first = visited(&mut rig, &[0, 99, 1, 100]);
    let counts: Vec<usize> = first.iter().map(Vec::len).collect();
    assert_eq!(counts, [VISITED_MAX, 0, VISITED_MAX, 1]);
    assert!(is_all(&first));
    assert_eq!(visited(&mut rig, &[100, 699]).concat(), [0; 0], "until the next round");
    assert!(is_all(&visited(&mut rig, &[1, 100, 100])));
    // A tick that comes late continues where the round stopped.
    assert!(is_all(&visited(&mut rig, &[5000, 5000, 5000])));
}

/// Deleted and new topics do not keep others from their turn.
#[test]
fn a_round_goes_on_although_topics_come_and_go() {
    let mut rig = rig();
    let first = visited(&mut rig, &[0]).concat();
    let last = rig.machine.state.topics().nth(VISITED_MAX).unwrap().0;
    rig.machine.delete_topic(last).unwrap();
    let new = TopicName::parse("persistent://public/default/new").unwrap();
    rig.machine.ensure_topic(&new, true).unwrap();
    let rest = visited(&mut rig, &[100, 100]).concat();
    let all: BTreeSet<u32> = first.into_iter().chain(rest).collect();
    assert_eq!(all.len(), TOPICS, "all but the deleted one, and the new one");
}

/// Each run of the search for forgettable entries looked at all topics.
#[test]
fn the_search_for_acknowledged_entries_goes_over_some_topics_at_a_time() {
    let mut rig = rig();
    let mut seen = BTreeSet::new();
    for ms in [0, 100, 100] {
        rig.stall(ms);
        let looked_at = &rig.machine.cleaner.looked_at;
        assert!(looked_at.len() <= VISITED_MAX);
        seen.extend(looked_at.iter().copied());
    }
    assert_eq!(seen.len(), TOPICS);
}

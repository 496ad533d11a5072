use super::*;
use proptest::prelude::*;

fn piece(edition: u64, from: u32, to: u32, at: u64, flags: &str) -> PieceName {
    let (end, is_last) = (flags.contains('e').then_some(at), flags.contains('l'));
    PieceName { segment: 1, edition, from, to, at, end, is_last }
}

fn catalog(pieces: &[PieceName]) -> Catalog {
    let mut catalog = Catalog::default();
    pieces.iter().for_each(|piece| catalog.add(ObjectName::Piece(*piece)));
    catalog
}

fn name() -> impl Strategy<Value = ObjectName> {
    let piece = any::<(u32, u64, u32, u32, u64, Option<u64>, bool)>().prop_map(
        |(segment, edition, from, to, at, end, is_last)| {
            ObjectName::Piece(PieceName { segment, edition, from, to, at, end, is_last })
        },
    );
    prop_oneof![
        piece,
        any::<u64>().prop_map(ObjectName::Checkpoint),
        any::<u64>().prop_map(ObjectName::Inventory),
        "[0-9a-f-]{1,20}\\.seg".prop_map(ObjectName::View),
    ]
}

proptest! {
    #[test]
    fn names_come_back(name in name()) {
        prop_assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
    }

    #[test]
    fn what_is_read_can_be_named(name in "[a-z0-9/-]{0,40}") {
        if let Some(read) = ObjectName::parse(&name) {
            prop_assert_eq!(ObjectName::parse(&read.to_string()), Some(read));
        }
    }

    /// Whatever is removed, each restore within the time that is kept fetches what it fetched
    /// before, but for what the directory had no longer when that time began.
    #[test]
    fn what_is_kept_is_restored_as_before(lives in lives(), oldest in 0..300_u64) {
        let full = lives.catalog();
        let mut tidy = full.clone();
        full.expired(oldest, &lives.gone).iter().for_each(|name| tidy.remove(name));
        let gone = |file: &DataFile| lives.gone.get(file).is_some_and(|&since| since <= oldest);
        for at in oldest..300 {
            let mut wanted = full.plan(at);
            wanted.segments.retain(|&number, _| !gone(&DataFile::Segment(number)));
            wanted.views.retain(|view| !gone(&DataFile::View(view.clone())));
            let mut found = tidy.plan(at);
            found.segments.retain(|&number, _| !gone(&DataFile::Segment(number)));
            found.views.retain(|view| !gone(&DataFile::View(view.clone())));
            prop_assert_eq!(found, wanted, "at {}", at);
        }
        prop_assert!(tidy.expired(oldest, &lives.gone).is_empty(), "once is enough");
    }
}

/// What the starts of a backup stored, one after another.
#[derive(Clone, Debug)]
struct Lives {
    names: Vec<ObjectName>,
    gone: BTreeMap<DataFile, u64>,
}

impl Lives {
    fn catalog(&self) -> Catalog {
        let mut catalog = Catalog::default();
        self.names.iter().cloned().for_each(|name| catalog.add(name));
        catalog
    }
}

/// Passes with some of their pieces, cut off anywhere.
fn lives() -> impl Strategy<Value = Lives> {
    let pass = (1..4_u32, 1..50_u32, any::<[bool; 5]>());
    prop::collection::vec(pass, 1..30).prop_map(|passes| {
        let (mut names, mut gone) = (Vec::new(), BTreeMap::new());
        let mut followed: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for (number, (segment, bytes, [is_new, is_end, is_last, is_gone, has_state])) in
            passes.into_iter().enumerate()
        {
            let at = 10 * number as u64 + 1;
            if is_new && is_last {
                followed.clear();
            }
            let (edition, to) = followed.get(&segment).copied().unwrap_or((at, 0));
            let next = to + bytes;
            let (from, to) = (to, next);
            names.push(ObjectName::Piece(PieceName {
                segment,
                edition,
                from,
                to,
                at,
                end: is_end.then_some(at),
                is_last: is_last && is_end,
            }));
            followed.insert(segment, (edition, to));
            if has_state {
                names.push(ObjectName::Checkpoint(at));
                names.push(ObjectName::Inventory(at));
                names.push(ObjectName::View(format!("{number}.seg")));
            }
            if is_gone && has_state {
                gone.insert(DataFile::Segment(segment), at + 5);
                gone.insert(DataFile::View(format!("{}.seg", number / 2)), at + 5);
            }
        }
        Lives { names, gone }
    })
}

/// A broker that was killed drops what it had not confirmed, and writes something else there: the
/// next start stores the segment anew. Until that has caught up, the earlier edition has more.
#[test]
fn an_edition_counts_when_it_has_caught_up() {
    let before = [piece(5, 0, 100, 5, "e"), piece(5, 100, 180, 6, "e")];
    let after =
        [piece(20, 0, 90, 20, ""), piece(20, 90, 150, 20, "e"), piece(20, 150, 170, 21, "e")];
    let catalog = catalog(&[&before[..], &after].concat());
    let chosen = |at| catalog.plan(at).segments.remove(&1).unwrap_or_default();
    assert_eq!(chosen(4), []);
    assert_eq!(chosen(5), before[..1]);
    assert_eq!(chosen(19), before);
    assert_eq!(chosen(20), after[..2]);
    assert_eq!(chosen(u64::MAX), after);
    let mut cut = catalog.clone();
    cut.remove(&ObjectName::Piece(after[1]));
    assert_eq!(cut.plan(u64::MAX).segments[&1], before, "the later pieces do not follow");
    assert_eq!((catalog.plan(20).as_of(), cut.plan(u64::MAX).as_of()), (Some(20), Some(6)));
}

/// Pieces are stored side by side: one that is there before an earlier one counts for nothing.
#[test]
fn a_piece_behind_a_gap_does_not_count() {
    let pieces = [piece(5, 0, 100, 5, ""), piece(5, 200, 300, 5, "e")];
    let plan = catalog(&pieces).plan(u64::MAX);
    assert_eq!((&plan.segments[&1][..], plan.as_of()), (&pieces[..1], None));
}

#[test]
fn a_segment_is_whole_with_its_last_piece() {
    let mut catalog = catalog(&[piece(5, 0, 100, 5, "e")]);
    assert_eq!((catalog.whole(1), catalog.whole(2)), (None, None));
    catalog.add(ObjectName::Piece(piece(5, 100, 120, 6, "l")));
    assert_eq!(catalog.whole(1), Some(5));
    assert_eq!((catalog.count(1), catalog.last()), (2, 6));
}

//! Weaves mutants into the text of a file: each behind its switch, all of them at once.
//!
//! A place of the code that can be changed is an [`Edit`]: text put before it, inside it and behind
//! it. Its pieces belong to single mutants, so that a mutant which the compiler refuses is left out
//! and the others of the same place stay. Nothing is duplicated, for edits lie within each other.

use std::cmp::Reverse;
use std::ops::Range;

/// Stands for the call that asks whether the mutant of a piece is switched on.
pub const SWITCH: &str = "\u{1}";

/// Text of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Needed for any of the mutants of the place.
    Always(String),
    /// Text of this mutant, with [`SWITCH`] in it.
    Of(usize, String),
}

/// A place that is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The bytes of the place. Edits lie within each other or side by side.
    pub range: Range<usize>,
    /// What comes before the place.
    pub open: Vec<Piece>,
    /// What comes in front of this byte inside.
    pub inside: Option<(usize, Piece)>,
    /// What comes behind the place.
    pub close: Vec<Piece>,
    /// What is left out.
    pub deleted: Option<Range<usize>>,
    /// Mutants that have no text here but cannot do without.
    pub needed_by: Vec<usize>,
}

impl Edit {
    /// All mutants of the place.
    pub fn mutants(&self) -> impl Iterator<Item = usize> {
        let inside = self.inside.iter().map(|(_, piece)| piece);
        let pieces = self.open.iter().chain(inside).chain(&self.close);
        let own = pieces.filter_map(|piece| match piece {
            Piece::Always(_) => None,
            Piece::Of(mutant, _) => Some(*mutant),
        });
        own.chain(self.needed_by.iter().copied())
    }
}

/// What a part of the woven text comes from. The order is the one in which blame is laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Text of one mutant.
    Text,
    /// A changed place with all that is in it.
    Place,
}

/// A part of the woven text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its bytes.
    pub range: Range<usize>,
    /// Where it is from.
    pub origin: Origin,
    /// Which mutants have caused it.
    pub mutants: Vec<usize>,
}

/// A file with the mutants in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Woven {
    /// Its text.
    pub text: String,
    /// What of it comes from where.
    pub marks: Vec<Mark>,
    /// For places of the old text, in order, where they have gone.
    moved: Vec<(usize, usize)>,
}

impl Woven {
    /// Where a byte of the old text has gone.
    pub fn place_of(&self, old: usize) -> usize {
        let behind = self.moved.partition_point(|(from, _)| *from <= old);
        let before = behind.checked_sub(1).and_then(|index| self.moved.get(index));
        before.map_or(old, |(from, to)| to + (old - from))
    }
}

/// Something to be put at a place of the text.
struct Insert<'a> {
    at: usize,
    order: Order,
    edit: usize,
    pieces: &'a [Piece],
}

/// The order of what is put at the same place: what ends there comes before what begins there, and
/// the inner before the outer at ends, behind it at beginnings. Of two edits of the same range the
/// first is the outer one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Close(Reverse<usize>, Reverse<usize>),
    Inside,
    Open(Reverse<usize>, usize),
}

/// Puts all mutants that are viable into the text; `switch` writes the call for a mutant.
pub fn weave(
    text: &str,
    edits: &[Edit],
    is_viable: impl Fn(usize) -> bool,
    switch: impl Fn(usize) -> String,
) -> Woven {
    let edits: Vec<&Edit> = edits.iter().filter(|edit| edit.mutants().any(&is_viable)).collect();
    let mut inserts = inserts(&edits);
    inserts.sort_by_key(|insert| (insert.at, insert.order));
    let mut deleted: Vec<_> = edits.iter().filter_map(|edit| edit.deleted.clone()).collect();
    deleted.sort_by_key(|range| range.start);
    let mut deleted = deleted.into_iter().peekable();
    let mut woven = Woven::default();
    let mut starts = vec![0; edits.len()];
    let mut at = 0;
    for insert in inserts {
        copy(text, &mut at, insert.at, &mut deleted, &mut woven);
        if let (Order::Open(..), Some(start)) = (insert.order, starts.get_mut(insert.edit)) {
            *start = woven.text.len();
        }
        for piece in insert.pieces {
            match piece {
                Piece::Always(part) => woven.text.push_str(part),
                Piece::Of(mutant, part) if is_viable(*mutant) => {
                    let start = woven.text.len();
                    woven.text.push_str(&part.replace(SWITCH, &switch(*mutant)));
                    let range = start..woven.text.len();
                    woven.marks.push(Mark { range, origin: Origin::Text, mutants: vec![*mutant] });
                }
                Piece::Of(..) => {}
            }
        }
        if let (Order::Close(..), Some(edit), Some(start)) =
            (insert.order, edits.get(insert.edit), starts.get(insert.edit))
        {
            let mutants = edit.mutants().filter(|mutant| is_viable(*mutant)).collect();
            let range = *start..woven.text.len();
            woven.marks.push(Mark { range, origin: Origin::Place, mutants });
        }
    }
    copy(text, &mut at, text.len(), &mut deleted, &mut woven);
    woven
}

fn inserts<'a>(edits: &[&'a Edit]) -> Vec<Insert<'a>> {
    let mut inserts = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let Range { start, end } = edit.range;
        let open = Order::Open(Reverse(end), index);
        inserts.push(Insert { at: start, order: open, edit: index, pieces: &edit.open });
        if let Some((at, piece)) = &edit.inside {
            let pieces = std::slice::from_ref(piece);
            inserts.push(Insert { at: *at, order: Order::Inside, edit: index, pieces });
        }
        if !edit.close.is_empty() {
            let close = Order::Close(Reverse(start), Reverse(index));
            inserts.push(Insert { at: end, order: close, edit: index, pieces: &edit.close });
        }
    }
    inserts
}

/// Copies the old text up to `end`, without what is deleted of it.
fn copy(
    text: &str,
    at: &mut usize,
    end: usize,
    deleted: &mut std::iter::Peekable<impl Iterator<Item = Range<usize>>>,
    woven: &mut Woven,
) {
    while let Some(gap) = deleted.next_if(|gap| gap.start < end) {
        push(text, *at..gap.start, woven);
        *at = gap.end.max(*at);
    }
    if *at < end {
        push(text, *at..end, woven);
        *at = end;
    }
}

fn push(text: &str, range: Range<usize>, woven: &mut Woven) {
    if let Some(part) = text.get(range.clone()) {
        woven.moved.push((range.start, woven.text.len()));
        woven.text.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn always(text: &str) -> Piece {
        Piece::Always(text.to_owned())
    }

    fn wrap(range: Range<usize>, mutant: usize) -> Edit {
        Edit {
            range,
            open: vec![always("("), Piece::Of(mutant, format!("{SWITCH}?"))],
            close: vec![always(")")],
            ..Edit::default()
        }
    }

    fn woven(text: &str, edits: &[Edit], viable: &[usize]) -> Woven {
        weave(text, edits, |mutant| viable.contains(&mutant), |mutant| format!("m{mutant}"))
    }

    #[test]
    fn what_lies_within_each_other_stays_so() {
        let edits = [wrap(0..3, 0), wrap(0..1, 1), wrap(2..3, 2), wrap(2..3, 3)];
        let all = woven("a+b", &edits, &[0, 1, 2, 3]);
        assert_eq!(all.text, "(m0?(m1?a)+(m2?(m3?b)))");
        assert_eq!(woven("a+b", &edits, &[3]).text, "a+(m3?b)");
        assert_eq!(woven("a+b", &edits, &[]).text, "a+b");
    }

    #[test]
    fn a_place_can_lose_its_middle() {
        let edit = Edit { inside: Some((1, always(","))), deleted: Some(1..2), ..wrap(0..3, 0) };
        let all = woven("a+b", &[edit, wrap(0..1, 1), wrap(2..3, 2)], &[0, 1, 2]);
        assert_eq!(all.text, "(m0?(m1?a),(m2?b))");
    }

    #[test]
    fn marks_say_what_comes_from_where() {
        let all = woven("xx a+b yy", &[wrap(3..6, 0), wrap(5..6, 1)], &[0, 1]);
        assert_eq!(all.text, "xx (m0?a+(m1?b)) yy");
        let found: Vec<_> = all
            .marks
            .iter()
            .map(|mark| (&all.text[mark.range.clone()], mark.origin, mark.mutants[0]))
            .collect();
        let expected = [
            ("m0?", Origin::Text, 0),
            ("m1?", Origin::Text, 1),
            ("(m1?b)", Origin::Place, 1),
            ("(m0?a+(m1?b))", Origin::Place, 0),
        ];
        assert_eq!(found, expected);
        assert_eq!([3, 5, 7].map(|old| &all.text[all.place_of(old)..][..1]), ["a", "b", "y"]);
    }
}

//! Which columns of a table fit a terminal. Pure.

/// The width that a text column needs at least: longer texts wrap.
const WRAPPED_MIN: usize = 24;

/// The spaces behind a column.
pub(super) const PADDING: u16 = 2;

/// The places of the columns to show in so many characters. Columns without any text are left out,
/// and while the others are too wide those in `drops`, one after the other.
pub(super) fn fitting(
    heads: &[&str],
    rows: &[Vec<String>],
    drops: &[usize],
    width: usize,
) -> Vec<usize> {
    let texts = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let has_text = |at: &usize| *at == 0 || texts(*at).any(|text| !text.is_empty());
    let mut shown: Vec<usize> = (0..heads.len()).filter(has_text).collect();
    let needed = |shown: &[usize]| -> usize {
        let last = shown.last().copied().unwrap_or_default();
        let needed = |&at: &usize| {
            let head = heads.get(at).map_or(0, |head| head.chars().count());
            let widest = texts(at).map(|text| text.chars().count()).max().unwrap_or_default();
            let widest = if at == last { widest.min(WRAPPED_MIN) } else { widest };
            head.max(widest) + usize::from(PADDING)
        };
        shown.iter().map(needed).sum()
    };
    let mut drops = drops.iter();
    while needed(&shown) > width
        && let Some(dropped) = drops.next()
    {
        shown.retain(|at| at != dropped);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In 80 columns the list of tasks was shredded into a word per line.
    #[test]
    fn columns_are_left_out_one_by_one_until_the_others_fit() {
        let heads = ["TASK", "STATUS", "WORKER", "KEY", "REASON"];
        let row = |key: &str| {
            ["tasks@12:345:-1", "retrying", "a-worker-with-a-long-name", key, &"why ".repeat(40)]
                .map(str::to_owned)
                .to_vec()
        };
        let rows = [row(""), row("order-4711")];
        let shown = |width| fitting(&heads, &rows, &[3, 2], width);
        assert_eq!(shown(200), [0, 1, 2, 3, 4]);
        assert_eq!(shown(91), [0, 1, 2, 4]);
        assert_eq!(shown(79), [0, 1, 4]);
        assert_eq!(shown(20), [0, 1, 4], "nothing else may go");
        assert_eq!(fitting(&heads, &rows[..1], &[3, 2], 200), [0, 1, 2, 4], "nobody has a key");
        assert_eq!(fitting(&heads, &[], &[], 80), [0]);
    }
}

//! Shows where two traces differ, and the action there.

/// Lines that only one trace has, `-` for the first and `+` for the second, each group under the
/// note before it.
pub(crate) fn show(left: &str, right: &str) -> String {
    let (left, right): (Vec<&str>, Vec<&str>) = (left.lines().collect(), right.lines().collect());
    let common = common_after(&left, &right);
    let (mut at, mut to) = (0, 0);
    let (mut note, mut shown) = (None, String::new());
    while at < left.len() || to < right.len() {
        let (sign, line) = match (left.get(at), right.get(to)) {
            (Some(line), Some(other)) if line == other => {
                (at, to) = (at + 1, to + 1);
                if line.starts_with('#') {
                    note = Some(*line);
                }
                continue;
            }
            (Some(line), other) if other.is_none() || common[at + 1][to] >= common[at][to + 1] => {
                at += 1;
                ('-', *line)
            }
            _ => {
                to += 1;
                ('+', right[to - 1])
            }
        };
        shown += &note.take().map(|note| format!("  {note}\n")).unwrap_or_default();
        shown += &format!("{sign} {line}\n");
    }
    shown
}

/// The number of lines that both have in common, in order, from each pair of places on.
fn common_after(left: &[&str], right: &[&str]) -> Vec<Vec<usize>> {
    let mut common = vec![vec![0; right.len() + 1]; left.len() + 1];
    for at in (0..left.len()).rev() {
        for to in (0..right.len()).rev() {
            common[at][to] = if left[at] == right[to] {
                common[at + 1][to + 1] + 1
            } else {
                common[at + 1][to].max(common[at][to + 1])
            };
        }
    }
    common
}

#[test]
fn only_what_differs_is_shown() {
    let theirs = "a\n# first\nb\n# second\nc\nd\ne\n";
    let ours = "a\n# first\nb\n# second\nc\nx\ne\nf\n";
    assert_eq!(show(theirs, ours), "  # second\n- d\n+ x\n+ f\n");
    assert_eq!(show(theirs, theirs), "");
    assert_eq!(show("", "a\n"), "+ a\n");
    assert_eq!(show("a\n", ""), "- a\n");
}

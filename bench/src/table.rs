//! Medians and their ranges, as Markdown.

use crate::meter::Figures;
use std::fmt::Write;

/// A line for each side, with the figures of all its rounds.
pub(crate) fn table(title: &str, sides: &[(String, Vec<Figures>)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in sides.iter().flat_map(|(_, rounds)| self::names(rounds)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text = format!("**{title}**\n\n| |");
    for name in &names {
        // Writing to a string cannot fail.
        write!(text, " {name} |").ok();
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(names.len()));
    for (side, rounds) in sides {
        write!(text, "\n| {side} |").ok();
        for name in &names {
            write!(text, " {} |", spread(&values(rounds, name))).ok();
        }
    }
    text.push('\n');
    text
}

/// The medians of the rounds.
pub(crate) fn medians(rounds: &[Figures]) -> Figures {
    let median = |name: &str| Some((name.to_owned(), median(&values(rounds, name))?));
    Figures(names(rounds).into_iter().filter_map(median).collect())
}

fn names(rounds: &[Figures]) -> Vec<&str> {
    let first = rounds.first();
    first.map(|it| it.0.iter().map(|(name, _)| name.as_str()).collect()).unwrap_or_default()
}

/// A figure in all rounds, from the least to the most.
fn values(rounds: &[Figures], name: &str) -> Vec<f64> {
    let mut values: Vec<f64> = rounds.iter().filter_map(|round| round.get(name)).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// The median, and from where to where its rounds went.
fn spread(sorted: &[f64]) -> String {
    let (Some(least), Some(median), Some(most)) = (sorted.first(), median(sorted), sorted.last())
    else {
        return "-".to_owned();
    };
    let median = number(median);
    if sorted.len() == 1 {
        median
    } else {
        format!("{median} [{}-{}]", number(*least), number(*most))
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    if value >= 1_000.0 {
        #[expect(clippy::cast_possible_truncation, reason = "rounded, and far from the limits")]
        let tens = (value / 10.0).round() as i64 * 10;
        let (thousands, rest) = (tens / 1_000, tens % 1_000);
        format!("{thousands},{rest:03}")
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_a_table() {
        let round = |value| Figures(vec![("tasks/s".to_owned(), value)]);
        let sides = [
            ("a".to_owned(), vec![round(12_345.0), round(999.0), round(12.34)]),
            ("b".to_owned(), vec![round(0.123)]),
        ];
        let expected =
            "**t**\n\n| | tasks/s |\n|---|---|\n| a | 999 [12.3-12,350] |\n| b | 0.123 |\n";
        assert_eq!(table("t", &sides), expected);
    }
}

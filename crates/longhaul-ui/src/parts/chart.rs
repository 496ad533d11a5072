//! Charts of a queue's throughput and latencies.

use crate::shown::{length, number};
use longhaul_api::queue::{Series, SeriesStep};
use maud::{Markup, html};

/// The size of a chart, in its own units.
const WIDTH: u64 = 600;
const HEIGHT: u64 = 80;

/// The number of tasks ended per step, with those that did not complete on top.
pub(crate) fn throughput(series: &Series) -> Markup {
    let (ended, most) = ended(series);
    let width = step_width(series);
    let high = |count: u64| count * HEIGHT / most;
    let span = series.step_ms * series.steps.len() as u64;
    html! {
        figure {
            figcaption { "Ended: " (number(ended)) " in the last " (length(span)) ", at most " (number(most)) " in " (length(series.step_ms)) }
            p.axis { (number(most)) }
            svg.chart role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-label={ (number(ended)) " tasks ended" } {
                @for (at, step) in series.steps.iter().enumerate() {
                    @let (good, bad) = (high(step.completed), high(step.not_completed));
                    @if good + bad > 0 {
                        g {
                            title { (said(step, series)) }
                            rect.good x=(at as u64 * width) y=(HEIGHT - good) width=(width - 1) height=(good) {}
                            rect.bad x=(at as u64 * width) y=(HEIGHT - good - bad) width=(width - 1) height=(bad) {}
                        }
                    }
                }
            }
            (times(series))
        }
    }
}

/// The time from submission to end: the median and the 95th percentile.
pub(crate) fn latency(series: &Series) -> Markup {
    let most = series.steps.iter().filter_map(|step| step.latency_p95_ms).max();
    let width = step_width(series);
    html! {
        figure {
            figcaption {
                "From submit to end: median and 95 %"
                @if let Some(most) = most { ", at most " (length(most)) }
            }
            p.axis { (crate::parts::length(most)) }
            svg.chart role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-label="Latency" {
                @for (at, step) in series.steps.iter().enumerate() {
                    @if let (Some(p50), Some(p95), Some(most)) = (step.latency_p50_ms, step.latency_p95_ms, most) {
                        @let high = |ms: u64| (u128::from(ms) * u128::from(HEIGHT) / u128::from(most.max(1))).max(1);
                        g {
                            title { (said(step, series)) }
                            rect.p95 x=(at as u64 * width) y=(u128::from(HEIGHT) - high(p95)) width=(width - 1) height=(high(p95)) {}
                            rect.p50 x=(at as u64 * width) y=(u128::from(HEIGHT) - high(p50)) width=(width - 1) height=(high(p50)) {}
                        }
                    }
                }
            }
            (times(series))
        }
    }
}

/// The axis of time.
fn times(series: &Series) -> Markup {
    let span = series.step_ms * series.steps.len() as u64;
    html! { p.axis.times { span { (length(span)) " ago" } span { (length(span / 2)) " ago" } span { "now" } } }
}

/// The throughput alone, for a table row.
pub(crate) fn spark(series: &Series) -> Markup {
    let (ended, most) = ended(series);
    let width = step_width(series);
    html! {
        svg.spark role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-label={ (number(ended)) " tasks ended in the last hour" } {
            @for (at, step) in series.steps.iter().enumerate() {
                @let (good, bad) = (step.completed * HEIGHT / most, step.not_completed * HEIGHT / most);
                @if good + bad > 0 {
                    rect.good x=(at as u64 * width) y=(HEIGHT - good) width=(width) height=(good) {}
                    rect.bad x=(at as u64 * width) y=(HEIGHT - good - bad) width=(width) height=(bad) {}
                }
            }
        }
        " " (number(ended))
    }
}

/// The number of tasks ended in all steps, and the maximum per step: at least 1, to divide by.
fn ended(series: &Series) -> (u64, u64) {
    let ended = || series.steps.iter().map(|step| step.completed + step.not_completed);
    (ended().sum(), ended().max().unwrap_or(0).max(1))
}

fn step_width(series: &Series) -> u64 {
    (WIDTH / (series.steps.len() as u64).max(1)).max(2)
}

fn said(step: &SeriesStep, series: &Series) -> String {
    let ago = series.steps.last().map_or(0, |last| last.at.saturating_sub(step.at));
    let mut said = format!(
        "{} earlier: {} submitted, {} completed, {} not",
        length(ago),
        step.submitted,
        step.completed,
        step.not_completed
    );
    if let (Some(p50), Some(p95)) = (step.latency_p50_ms, step.latency_p95_ms) {
        said = format!("{said}; median {}, 95 % {}", length(p50), length(p95));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_step_fills_the_drawing() {
        let steps = vec![
            SeriesStep { completed: 3, not_completed: 1, ..SeriesStep::default() },
            SeriesStep { completed: 2, ..SeriesStep::default() },
            SeriesStep::default(),
        ];
        let drawn =
            throughput(&Series { step_ms: 60_000, steps, ..Series::default() }).into_string();
        assert!(drawn.contains(r#"class="good" x="0" y="20" width="199" height="60""#), "{drawn}");
        assert!(drawn.contains(r#"class="bad" x="0" y="0" width="199" height="20""#), "{drawn}");
        assert!(drawn.contains("Ended: 6 in the last 3 min, at most 4 in 1 min"), "{drawn}");
    }

    #[test]
    fn without_any_end_there_is_a_drawing_all_the_same() {
        let series = Series { step_ms: 1, ..Series::default() };
        assert!(throughput(&series).into_string().contains("Ended: 0"));
        let huge = SeriesStep {
            latency_p50_ms: Some(1),
            latency_p95_ms: Some(u64::MAX),
            ..SeriesStep::default()
        };
        assert!(
            latency(&Series { step_ms: 1, steps: vec![huge], ..Series::default() })
                .into_string()
                .contains(r#"class="p95" x="0" y="0""#)
        );
    }
}

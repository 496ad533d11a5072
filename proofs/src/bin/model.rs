//! Searches the states of scenarios: `model list`, `model all`,
//! `model seal:after=1 timed-crash md:crash=1 --cap 1000000 -v`.

use anyhow::{Context, bail};
use longhaul_core::protocol::register::KeyKind;
use proofs::model::{
    Binding, BindingFault, LEASED, LimitFault, Limited, Options, Report, SCENARIOS, Scenario,
    System, TIMED, Walked, Walks, explore, walk,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const USAGE: &str = "usage: model list | all | <scenario>[:field=value,...]... [--cap N] [-v]
  --cap N, or the variable CAP: states that are visited at most
  -v: show the states of each trace
  --walks N [--seed S]: take random walks instead";

/// Default maximum of visited states in scenarios of keys and limits.
const CAP: usize = 2_000_000;

/// Steps of a random walk: enough to use up the budgets of every scenario.
const WALK_LENGTH: usize = 400;

/// What is done with each scenario.
struct Work {
    /// Maximum of visited states; without it, each scenario's own.
    cap: Option<usize>,
    /// Whether to describe the states of each trace.
    states: bool,
    /// Random walks in place of a search, if there are any.
    walks: Walks,
}

fn main() -> anyhow::Result<()> {
    let mut names = Vec::new();
    let mut cap = std::env::var("CAP").ok().map(|cap| cap.parse()).transpose().context("CAP")?;
    let mut states = false;
    let mut walks = Walks { seed: 0, count: 0, length: WALK_LENGTH };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-v" => states = true,
            "--cap" => cap = Some(args.next().context("--cap needs a number")?.parse()?),
            "--walks" => walks.count = args.next().context("--walks needs a number")?.parse()?,
            "--seed" => walks.seed = args.next().context("--seed needs a number")?.parse()?,
            "all" => {
                names.extend(SCENARIOS.iter().map(|(name, ..)| (*name).to_owned()));
                names.extend(TIMED.iter().map(|(name, ..)| (*name).to_owned()));
                names.extend(LEASED.iter().map(|(name, ..)| (*name).to_owned()));
                names.push("idem-bind".to_owned());
                names.push("limit".to_owned());
            }
            _ => names.push(arg),
        }
    }
    if names.is_empty() {
        bail!(USAGE);
    }
    let work = Work { cap, states, walks };
    for name in names {
        work.on(&name)?;
    }
    Ok(())
}

impl Work {
    fn on(&self, name: &str) -> anyhow::Result<()> {
        if name == "list" {
            list();
        } else if let Some((binding, about)) = named(&bindings(), name) {
            // Without a cap: a complete search decides progress as well.
            let cap = if name == "idem-bind" { usize::MAX } else { CAP };
            self.run(name, about, &binding, cap);
        } else if let Some((limited, about)) = named(&limits(), name) {
            self.run(name, about, &limited, CAP);
        } else if name.starts_with("leased") {
            let (bounds, about) = find(LEASED, name)?;
            self.run(name, about, &bounds, bounds.cap);
        } else if name.starts_with("timed") {
            let (bounds, about) = find(TIMED, name)?;
            self.run(name, about, &bounds, bounds.cap);
        } else {
            let (bounds, about) = find(SCENARIOS, name)?;
            self.run(name, about, &bounds, bounds.cap);
        }
        Ok(())
    }

    fn run<S: System>(&self, name: &str, about: &str, system: &S, cap: usize) {
        if self.walks.count > 0 {
            take_walks(name, system, self.walks);
            return;
        }
        let options = Options::up_to(self.cap.unwrap_or(cap));
        search(name, about, system, Options { states: self.states, ..options });
    }
}

fn named<S: Copy>(scenarios: &[Scenario<S>], name: &str) -> Option<(S, &'static str)> {
    let found = scenarios.iter().find(|(known, ..)| *known == name);
    found.map(|(_, system, about)| (*system, *about))
}

fn find<B: Copy + Serialize + DeserializeOwned>(
    scenarios: &[Scenario<B>],
    name: &str,
) -> anyhow::Result<(B, &'static str)> {
    let found = proofs::model::find(scenarios, name);
    found.map_err(|error| anyhow::anyhow!("unknown: {}", error.0))
}

/// The scenarios of limits.
fn limits() -> [Scenario<Limited>; 4] {
    let one = Limited::default();
    let both = Limited { crash: 1, compact: 1, ..one };
    let raised = Limited { limit: 2, raised: true, crash: 1, ..one };
    let local = Limited { fault: LimitFault::LocalCount, ..one };
    let counts = Limited { fault: LimitFault::ReturnedCounts, ..one };
    [
        ("limit", both, "tickets with a crash and a compaction"),
        ("limit-raised", raised, "a limit that is raised"),
        ("limit-local-count", local, "a worker counts by what it has read"),
        ("limit-returned-counts", counts, "what was given back counts on"),
    ]
}

/// The scenarios of keys.
fn bindings() -> Vec<Scenario<Binding>> {
    let idem = Binding { workers: 2, eager: true, crash: 1, ..Binding::default() };
    let dedupe = Binding { kind: KeyKind::Dedupe, ..Binding::default() };
    let shared = BindingFault::SharedKey;
    let shared = Binding { workers: 1, crash: 0, compact: 1, fault: shared, ..idem };
    let shown_first = Binding { fault: BindingFault::ShownFirst, ..dedupe };
    let bound = [
        ("idem-bind", idem, "idempotency keys"),
        ("idem-bind-shared", shared, "all BINDs of a message share a key"),
        ("dedupe", dedupe, "dedupe keys"),
        ("dedupe-three", Binding { submitters: 3, ..dedupe }, "dedupe keys of three tasks"),
        ("dedupe-crash", Binding { workers: 2, crash: 1, ..dedupe }, "dedupe keys with a crash"),
        ("dedupe-shown-first", shown_first, "an end is shown before its key is released"),
    ];
    bound.into_iter().chain(overwriting()).chain(periods()).collect()
}

/// The scenarios of tasks that replace others.
fn overwriting() -> [Scenario<Binding>; 6] {
    let kind = KeyKind::Dedupe;
    let two = Binding { kind, overwriters: 1, eager: true, ..Binding::default() };
    let three = Binding { submitters: 3, overwriters: 2, ..two };
    let aged = Binding { periods: 3, compact: 1, aged: true, ..two };
    let unsaid = Binding { fault: BindingFault::Unsaid, ..two };
    let freed = Binding { fault: BindingFault::FreedAtOnce, ..two };
    [
        ("over", two, "a task and an overwriter"),
        ("over-crash", Binding { workers: 2, crash: 1, ..two }, "the same with a crash"),
        ("over-three", three, "a task and two overwriters"),
        ("over-periods", aged, "with keys that are forgotten"),
        ("over-unsaid", unsaid, "binds do not say what they are"),
        ("over-freed", freed, "a task that runs makes room"),
    ]
}

/// The scenarios of keys that are forgotten.
fn periods() -> [Scenario<Binding>; 11] {
    let idem = Binding { eager: true, periods: 4, compact: 2, aged: true, ..Binding::default() };
    let dedupe = Binding { kind: KeyKind::Dedupe, ..idem };
    let one = |keys: Binding| Binding { submitters: 1, periods: 3, compact: 1, ..keys };
    let long = |keys: Binding| Binding { submitters: 1, periods: 8, ..keys };
    let crash = |keys: Binding| Binding { workers: 2, crash: 1, ..keys };
    let guessed = |keys: Binding| Binding { fault: BindingFault::GuessedPeriod, ..keys };
    let any_order = Binding { fault: BindingFault::AnyOrder, ..one(idem) };
    [
        ("idem-periods", idem, "idempotency keys that are forgotten"),
        ("idem-periods-one", one(idem), "by one submitter"),
        ("idem-periods-long", long(idem), "for long, by one submitter"),
        ("idem-periods-crash", crash(idem), "the same with a crash"),
        ("idem-guessed-period", guessed(idem), "what is late counts"),
        ("idem-any-order", any_order, "removed in any order"),
        ("dedupe-periods", dedupe, "dedupe keys that are forgotten"),
        ("dedupe-periods-one", one(dedupe), "by one submitter"),
        ("dedupe-periods-long", long(dedupe), "for long, by one submitter"),
        ("dedupe-periods-crash", crash(dedupe), "the same with a crash"),
        ("dedupe-guessed-period", guessed(dedupe), "what is late counts"),
    ]
}

#[expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]
fn take_walks<S: System>(name: &str, system: &S, walks: Walks) {
    let Walked { steps, goals, found } = walk(system, walks);
    println!("== {name}: {} walks, {steps} steps, {goals} came to the end", walks.count);
    if let Some(found) = found {
        println!("  {}, after\n    {}", found.violation, found.trace.join("\n    "));
        println!("{}", found.states.join("\n"));
    }
}

#[expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]
fn list() {
    fn list_of<S>(scenarios: &[Scenario<S>]) {
        for (name, _, about) in scenarios {
            println!("{name:18} {about}");
        }
    }
    list_of(SCENARIOS);
    list_of(TIMED);
    list_of(LEASED);
    list_of(&bindings());
    list_of(&limits());
}

#[expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]
#[expect(clippy::disallowed_methods, reason = "the search is timed, and nothing depends on it")]
fn search<S: System>(name: &str, about: &str, system: &S, options: Options<'_>) {
    let start = std::time::Instant::now();
    let report: Report = explore(system, options);
    let seconds = start.elapsed().as_secs_f32();
    println!("== {name}: {about}\n  {seconds:.1} s, {report}");
}

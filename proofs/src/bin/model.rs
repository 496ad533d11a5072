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

/// Steps of a random walk: enough to use up the budgets of every scenario.
const WALK_LENGTH: usize = 400;

fn main() -> anyhow::Result<()> {
    let mut names = Vec::new();
    let mut cap = std::env::var("CAP").ok().map(|cap| cap.parse()).transpose().context("CAP")?;
    let mut states = false;
    let (mut walks, mut seed) = (0, 0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-v" => states = true,
            "--cap" => cap = Some(args.next().context("--cap needs a number")?.parse()?),
            "--walks" => walks = args.next().context("--walks needs a number")?.parse()?,
            "--seed" => seed = args.next().context("--seed needs a number")?.parse()?,
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
    for name in names {
        if walks > 0 {
            take_walks(&name, Walks { seed, count: walks, length: WALK_LENGTH })?;
            continue;
        }
        run(&name, cap, states)?;
    }
    Ok(())
}

fn run(name: &str, cap: Option<usize>, states: bool) -> anyhow::Result<()> {
    let options = |default| Options { states, ..Options::up_to(cap.unwrap_or(default)) };
    let bind = Binding { workers: 2, eager: true, crash: 1, ..Binding::default() };
    let dedupe = Binding { kind: KeyKind::Dedupe, ..Binding::default() };
    match name {
        "list" => list(),
        "idem-bind" => search(name, "idempotency keys", &bind, options(usize::MAX)),
        "dedupe" => search(name, "dedupe keys", &dedupe, options(2_000_000)),
        "limit" => {
            let limited = Limited { crash: 1, compact: 1, ..Limited::default() };
            search(name, "tickets with a crash and a compaction", &limited, options(2_000_000));
        }
        "limit-raised" => {
            let raised = Limited { limit: 2, raised: true, crash: 1, ..Limited::default() };
            search(name, "a limit that is raised", &raised, options(2_000_000));
        }
        "limit-local-count" => {
            let fault = LimitFault::LocalCount;
            let local = Limited { fault, ..Limited::default() };
            search(name, "a worker counts by what it has read", &local, options(1_000_000));
        }
        "limit-returned-counts" => {
            let fault = LimitFault::ReturnedCounts;
            let counts = Limited { fault, ..Limited::default() };
            search(name, "what was given back counts on", &counts, options(1_000_000));
        }
        "dedupe-three" => {
            let three = Binding { submitters: 3, ..dedupe };
            search(name, "dedupe keys of three tasks", &three, options(2_000_000));
        }
        "dedupe-crash" => {
            let crash = Binding { workers: 2, crash: 1, ..dedupe };
            search(name, "dedupe keys with a crash", &crash, options(2_000_000));
        }
        _ if overwriting(name).is_some() => {
            let (binding, about) = overwriting(name).context("unknown")?;
            search(name, about, &binding, options(2_000_000));
        }
        _ if periods(name).is_some() => {
            let (binding, about) = periods(name).context("unknown")?;
            search(name, about, &binding, options(2_000_000));
        }
        "idem-bind-shared" => {
            let shared = Binding {
                workers: 1,
                crash: 0,
                compact: 1,
                fault: BindingFault::SharedKey,
                ..bind
            };
            search(name, "all BINDs of a message share a key", &shared, options(1_000_000));
        }
        "dedupe-shown-first" => {
            let shown = Binding { fault: BindingFault::ShownFirst, ..dedupe };
            search(name, "an end is shown before its key is released", &shown, options(1_000_000));
        }
        leased if leased.starts_with("leased") => {
            let (bounds, about) = find(LEASED, name)?;
            search(name, about, &bounds, options(bounds.cap));
        }
        timed if timed.starts_with("timed") => {
            let (bounds, about) = find(TIMED, name)?;
            search(name, about, &bounds, options(bounds.cap));
        }
        _ => {
            let (bounds, about) = find(SCENARIOS, name)?;
            search(name, about, &bounds, options(bounds.cap));
        }
    }
    Ok(())
}

fn find<B: Copy + Serialize + DeserializeOwned>(
    scenarios: &[Scenario<B>],
    name: &str,
) -> anyhow::Result<(B, &'static str)> {
    let found = proofs::model::find(scenarios, name);
    found.map_err(|error| anyhow::anyhow!("unknown: {}", error.0))
}

/// The scenarios of tasks that replace others.
fn overwriting(name: &str) -> Option<(Binding, &'static str)> {
    let kind = KeyKind::Dedupe;
    let two = Binding { kind, overwriters: 1, eager: true, ..Binding::default() };
    let three = Binding { submitters: 3, overwriters: 2, ..two };
    let aged = Binding { periods: 3, compact: 1, aged: true, ..two };
    Some(match name {
        "over" => (two, "a task and an overwriter"),
        "over-crash" => (Binding { workers: 2, crash: 1, ..two }, "the same with a crash"),
        "over-three" => (three, "a task and two overwriters"),
        "over-periods" => (aged, "with keys that are forgotten"),
        "over-unsaid" => {
            (Binding { fault: BindingFault::Unsaid, ..two }, "binds do not say what they are")
        }
        "over-freed" => {
            (Binding { fault: BindingFault::FreedAtOnce, ..two }, "a task that runs makes room")
        }
        _ => return None,
    })
}

/// The scenarios of keys that are forgotten.
fn periods(name: &str) -> Option<(Binding, &'static str)> {
    let idem = Binding { eager: true, periods: 4, compact: 2, aged: true, ..Binding::default() };
    let dedupe = Binding { kind: KeyKind::Dedupe, ..idem };
    let guessed = BindingFault::GuessedPeriod;
    Some(match name {
        "idem-periods" => (idem, "idempotency keys that are forgotten"),
        "idem-periods-one" => {
            (Binding { submitters: 1, periods: 3, compact: 1, ..idem }, "by one submitter")
        }
        "dedupe-periods-one" => {
            (Binding { submitters: 1, periods: 3, compact: 1, ..dedupe }, "by one submitter")
        }
        "idem-periods-long" => {
            (Binding { submitters: 1, periods: 8, ..idem }, "for long, by one submitter")
        }
        "dedupe-periods-long" => {
            (Binding { submitters: 1, periods: 8, ..dedupe }, "for long, by one submitter")
        }
        "idem-periods-crash" => (Binding { workers: 2, crash: 1, ..idem }, "the same with a crash"),
        "dedupe-periods" => (dedupe, "dedupe keys that are forgotten"),
        "dedupe-periods-crash" => {
            (Binding { workers: 2, crash: 1, ..dedupe }, "the same with a crash")
        }
        "idem-guessed-period" => (Binding { fault: guessed, ..idem }, "what is late counts"),
        "dedupe-guessed-period" => (Binding { fault: guessed, ..dedupe }, "what is late counts"),
        "idem-any-order" => {
            let one = Binding { submitters: 1, periods: 3, compact: 1, ..idem };
            (Binding { fault: BindingFault::AnyOrder, ..one }, "removed in any order")
        }
        _ => return None,
    })
}

#[expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]
fn take_walks(name: &str, walks: Walks) -> anyhow::Result<()> {
    let Walked { steps, goals, found } = match overwriting(name).or_else(|| periods(name)) {
        Some((binding, _)) => walk(&binding, walks),
        None if name.starts_with("leased") => walk(&find(LEASED, name)?.0, walks),
        None => walk(&find(SCENARIOS, name)?.0, walks),
    };
    println!("== {name}: {} walks, {steps} steps, {goals} came to the end", walks.count);
    if let Some(found) = found {
        println!("  {}, after\n    {}", found.violation, found.trace.join("\n    "));
        println!("{}", found.states.join("\n"));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]
fn list() {
    for (name, _, about) in SCENARIOS {
        println!("{name:18} {about}");
    }
    for (name, _, about) in TIMED {
        println!("{name:18} {about}");
    }
    for (name, _, about) in LEASED {
        println!("{name:18} {about}");
    }
    println!("{:18} idempotency keys", "idem-bind");
    println!("{:18} dedupe keys", "dedupe");
    println!("{:18} of three tasks", "dedupe-three");
    println!("{:18} with a crash", "dedupe-crash");
    println!("{:18} tasks that take the place of others; -crash, -three, -periods", "over");
    println!("{:18} that are forgotten; -one, -long, -crash, and dedupe-…", "idem-periods");
    println!("{:18} the same with a shared compaction key", "idem-bind-shared");
}

#[expect(clippy::print_stdout, reason = "a command line tool answers on stdout")]
#[expect(clippy::disallowed_methods, reason = "the search is timed, and nothing depends on it")]
fn search<S: System>(name: &str, about: &str, system: &S, options: Options<'_>) {
    let start = std::time::Instant::now();
    let report: Report = explore(system, options);
    let seconds = start.elapsed().as_secs_f32();
    println!("== {name}: {about}\n  {seconds:.1} s, {report}");
}

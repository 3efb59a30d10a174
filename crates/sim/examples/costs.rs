//! Counts instructions of the engine on the simulated machine, with callgrind: per cached write and
//! read, per page and per bio written back, and per sync. Instructions of the machine, and copies
//! and allocations of the C library, are not counted.
//!
//! ```sh
//! cargo run --release -p forebay-sim --example costs             # the table
//! cargo run --release -p forebay-sim --example costs -- --check  # fails on a rise above 3 %
//! cargo run --release -p forebay-sim --example costs -- --record # writes new counts
//! ```
//!
//! `crates/sim/costs.txt` has the counts to compare with, and the compiler they were made with. With
//! another compiler, or without valgrind, the check compares nothing and says so.

use std::collections::HashMap;
use std::process::{Command, ExitCode};

use forebay_sim::run::costs::{Work, spend};

/// Times that a work is done in the shorter of two runs. The counts follow from the seed, so a few
/// are enough.
const COUNT: u64 = 1024;

/// Rise that is permitted, in per cent.
const MOST: f64 = 3.0;

const RECORDED: &str = include_str!("../costs.txt");

/// Use of the counts.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Print,
    Check,
    Record,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => table(Then::Print),
        ["--check"] => table(Then::Check),
        ["--record"] => table(Then::Record),
        ["--run", work, count] => {
            let (_, work) = Work::ALL.into_iter().find(|(name, _)| *name == work).expect("a work");
            spend(work, count.parse().expect("a number"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: costs [--check | --record]");
            ExitCode::from(2)
        }
    }
}

fn table(then: Then) -> ExitCode {
    // In CI, what a check needs has to be there.
    let may_skip = then == Then::Check && std::env::var_os("CI").is_none();
    if may_skip && Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped the check: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    let compiler = compiler();
    println!("compiler {compiler}");
    let is_same = recorded("compiler") == Some(&compiler);
    let mut has_risen = false;
    let mut found = format!("compiler {compiler}\n");
    for (name, _) in Work::ALL {
        let spent = (count(name, 2 * COUNT) - count(name, COUNT)) as f64 / COUNT as f64;
        let before = recorded(name).and_then(|text| text.parse::<f64>().ok());
        let change = before.map(|before| (spent / before - 1.0) * 100.0);
        match change {
            Some(change) if is_same => println!("{name} {spent:.1} ({change:+.1} %)"),
            _ => println!("{name} {spent:.1}"),
        }
        has_risen |= is_same && change.is_none_or(|change| change > MOST);
        found += &format!("{name} {spent:.1}\n");
    }
    match then {
        Then::Print => {}
        Then::Record => {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/costs.txt");
            std::fs::write(path, found).expect("costs.txt can be written");
        }
        Then::Check if !is_same => {
            println!("skipped the check: costs.txt was made with another compiler");
        }
        Then::Check if has_risen => {
            eprintln!(
                "a count has risen by more than {MOST} %, or is not recorded: find out why, or \
                 record the new counts with --record"
            );
            return ExitCode::FAILURE;
        }
        Then::Check => {}
    }
    ExitCode::SUCCESS
}

/// A recorded value; lines are a name and a value.
fn recorded(name: &str) -> Option<&'static str> {
    let line = RECORDED.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.strip_prefix(' '))
}

fn compiler() -> String {
    let found = Command::new("rustc").arg("--version").output().expect("rustc is installed");
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}

/// Instructions of the engine in a process that does a work.
fn count(work: &str, count: u64) -> u64 {
    let program = std::env::current_exe().expect("the program has a path");
    let profile = std::env::temp_dir().join(format!("forebay-costs-{}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind");
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    let ran = valgrind.arg(program).args(["--run", work, &count.to_string()]).output();
    let ran = ran.unwrap_or_else(|error| panic!("could not start valgrind: {error}; install it"));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "the work failed: {said}");
    let text = std::fs::read_to_string(&profile).expect("valgrind wrote a profile");
    std::fs::remove_file(&profile).expect("the profile is ours");
    let spent = of_engine(&text);
    assert!(spent > 0, "the profile names no function of the engine; build with line tables");
    spent
}

/// Names that functions and source files of the engine contain.
const ENGINE: [&str; 8] = [
    "forebay_block::",
    "forebay_cache::",
    "forebay_lists::",
    "forebay_sim::core::",
    "crates/block/src/",
    "crates/cache/src/",
    "crates/lists/src/",
    "crates/sim/src/core/",
];

/// Directories with source files of the simulated machine.
const MACHINE: [&str; 2] = ["crates/sim/src/platform/", "crates/sim/src/world/"];

/// Beginnings of the names of its functions that fulfil a trait of the engine.
const MACHINE_METHODS: [&str; 2] = ["<forebay_sim::platform::", "<forebay_sim::world::"];

/// Part of the program that a function or a source file is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Engine,
    Machine,
    /// The standard library, and the rest.
    Other,
}

/// Sums the instructions of the engine's source lines, and those of other libraries inside the
/// engine's functions. Those of the simulated machine, and copies and allocations in the C library,
/// do not count; neither if the compiler puts them into a function of the engine.
///
/// A profile gives each name a number at its first use: `fn=(7) name`, later `fn=(7)`.
fn of_engine(profile: &str) -> u64 {
    let (mut files, mut functions) = (HashMap::new(), HashMap::new());
    let (mut file, mut function, mut is_call) = (Part::Other, Part::Other, false);
    let mut sum = 0;
    for line in profile.lines() {
        let Some((key, name)) = line.split_once('=') else {
            let is_cost =
                line.starts_with(|letter: char| "+-*".contains(letter) || letter.is_ascii_digit());
            let counts = file == Part::Engine || (file, function) == (Part::Other, Part::Engine);
            // The line after a call has what the called function spent.
            if is_cost && !std::mem::take(&mut is_call) && counts {
                sum +=
                    line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            }
            continue;
        };
        match key {
            "fl" | "fi" | "fe" => file = part_of(name, &mut files),
            "cfi" | "cfl" => {
                part_of(name, &mut files);
            }
            "fn" => function = part_of(name, &mut functions),
            "cfn" => {
                part_of(name, &mut functions);
            }
            "calls" => is_call = true,
            _ => {}
        }
    }
    sum
}

fn part_of<'a>(name: &'a str, known: &mut HashMap<&'a str, Part>) -> Part {
    let (number, name) = name.split_once(' ').unwrap_or((name, ""));
    if name.is_empty() {
        return known.get(number).copied().unwrap_or(Part::Other);
    }
    let is_machine = MACHINE.iter().any(|part| name.contains(part))
        || MACHINE_METHODS.iter().any(|part| name.starts_with(part));
    let found = if is_machine {
        Part::Machine
    } else if ENGINE.iter().any(|part| name.contains(part)) {
        Part::Engine
    } else {
        Part::Other
    };
    known.insert(number, found);
    found
}

//! redb over its own storage and over Forebay, alone, with a keeper and with an intent log, in
//! paired rounds.
//!
//! ```text
//! cargo run --release --example bench -- DIRECTORY [--rounds N] [--seconds S] [--records N]
//!                                                  [--cache-mib M] [--seed S] [--jobs a,b]
//! ```
//!
//! Jobs: `commit` commits 5 records durably, again and again. `bulk` inserts records with random
//! keys in one transaction and commits it. `random-read` reads records of such a database.
//!
//! Arms: `std` is redb's own storage, `forebay` this crate, `forebay-survive` the same with a
//! keeper, and `forebay-log` the same with an intent log. Each cell runs in a process of its own. A
//! round runs every job on every arm, in an order that the seed decides. The result goes to
//! standard output as JSON, with the field names of Forebay's result files, and progress to
//! standard error.
//!
//! Memory: redb's own cache takes two sevenths of `--cache-mib` (140) in every arm. The rest is the
//! engine's cache, and for `std` the page cache of the kernel. Only a control group bounds the
//! latter, so run this program in one with a limit of memory. `cpu_us_per_io` has the time of the
//! cell's process in steps of 10 ms, without the time of a keeper and of the kernel's threads.

#[path = "bench/cell.rs"]
mod cell;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;

use cell::{Cell, Metric};
use forebay_block::random::Random;

const ARMS: [&str; 4] = ["std", "forebay", "forebay-survive", "forebay-log"];

/// Jobs to run, and their sizes.
#[derive(Clone, Debug)]
struct Plan {
    directory: PathBuf,
    rounds: usize,
    seconds: f64,
    records: u64,
    cache_mib: u64,
    seed: u64,
    jobs: Vec<String>,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let directory = arguments.next().ok_or("DIRECTORY is missing")?.into();
        let jobs = cell::JOBS.map(str::to_owned).to_vec();
        let mut plan = Self {
            directory,
            rounds: 10,
            seconds: 5.0,
            records: 1_000_000,
            cache_mib: 140,
            seed: 1,
            jobs,
        };
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or(format!("{option} has no value"))?;
            match option.as_str() {
                "--rounds" => plan.rounds = number(&option, &value)?,
                "--seconds" => plan.seconds = number(&option, &value)?,
                "--records" => plan.records = number(&option, &value)?,
                "--cache-mib" => plan.cache_mib = number(&option, &value)?,
                "--seed" => plan.seed = number(&option, &value)?,
                "--jobs" => plan.jobs = value.split(',').map(str::to_owned).collect(),
                _ => return Err(format!("{option} is no option")),
            }
        }
        let unknown = plan.jobs.iter().find(|job| !cell::JOBS.contains(&job.as_str()));
        unknown.map_or(Ok(plan.clone()), |job| Err(format!("{job} is no job: {:?}", cell::JOBS)))
    }
}

fn number<T: FromStr<Err: Display>>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("{option} {value}: {error}"))
}

fn main() -> ExitCode {
    // The keeper of a cell is this program.
    forebay::keeper::run_if_asked();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "cell") {
        let cell = Cell::parse(&arguments.split_off(1)).expect("the arguments of a cell");
        println!("{}", cell.run().expect("a cell"));
        return ExitCode::SUCCESS;
    }
    match Plan::parse(arguments.into_iter()) {
        Ok(plan) => {
            println!("{}", run(&plan));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}\nThe head of examples/bench.rs has the options.");
            ExitCode::from(2)
        }
    }
}

/// Runs all cells, and returns the JSON document.
fn run(plan: &Plan) -> String {
    let (mut random, mut done, mut orders) = (Random::new(plan.seed), Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let mut order = ARMS;
        random.shuffle(&mut order);
        orders.push(format!("[\"{}\"]", order.join("\",\"")));
        for job in &plan.jobs {
            for arm in order {
                eprintln!("round {round}: {job} on {arm}");
                let metrics = run_cell(plan, job, arm, round);
                done.push((job.clone(), arm, round, metrics));
            }
        }
    }
    let mut rows = Vec::new();
    for job in &plan.jobs {
        for arm in ARMS {
            let of_arm: Vec<&Vec<Metric>> = done
                .iter()
                .filter(|(of, on, ..)| of == job && *on == arm)
                .map(|(.., metrics)| metrics)
                .collect();
            for (at, metric) in
                of_arm.first().into_iter().flat_map(|first| first.iter().enumerate())
            {
                let values: Vec<f64> = of_arm.iter().map(|metrics| metrics[at].value).collect();
                rows.push(row(job, arm, metric, &values));
            }
        }
    }
    let limit = memory_limit().map_or("null".to_owned(), |bytes| bytes.to_string());
    format!(
        "{{\"schema\":1,\"suite\":\"redb\",\
         \"manifest\":{{\"seed\":\"{:x}\",\"rounds\":{},\"orders\":[{}],\
         \"budget_bytes\":{},\"machine\":{{\"memory_limit_bytes\":{limit}}}}},\"rows\":[\n{}\n]}}",
        plan.seed,
        plan.rounds,
        orders.join(","),
        plan.cache_mib << 20,
        rows.join(",\n"),
    )
}

/// Returns the limit of memory of the control group of this process, in bytes.
fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let file = match (parts.next()?, parts.next()?) {
            ("memory", path) => format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"),
            ("", path) => format!("/sys/fs/cgroup{path}/memory.max"),
            _ => return None,
        };
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    // Version 1 writes a huge number for no limit.
    limit.filter(|bytes| *bytes < 1 << 60)
}

fn run_cell(plan: &Plan, job: &str, arm: &str, round: usize) -> Vec<Metric> {
    let path = plan.directory.join(format!("bench-{job}-{arm}-{round}.redb"));
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program)
        .args(["cell", job, arm])
        .arg(&path)
        .args([plan.seconds.to_string(), plan.records.to_string(), plan.cache_mib.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("this program starts again");
    assert!(output.status.success(), "{job} on {arm} failed: {}", output.status);
    // Emptied, not removed: ext4 becomes slow for minutes after many removals.
    std::fs::File::create(&path).expect("the file of a cell can be emptied");
    Metric::parse_all(&String::from_utf8_lossy(&output.stdout))
}

fn row(job: &str, arm: &str, metric: &Metric, values: &[f64]) -> String {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let stddev = match values.len() {
        0 | 1 => "null".to_owned(),
        rounds => (squares / (rounds - 1) as f64).sqrt().to_string(),
    };
    let rounds: Vec<String> = values.iter().map(f64::to_string).collect();
    format!(
        "{{\"job\":\"{job}\",\"arm\":\"{arm}\",\"metric\":\"{}\",\"unit\":\"{}\",\"better\":\"{}\",\
         \"mean\":{mean},\"stddev\":{stddev},\"rounds\":[{}]}}",
        metric.name,
        metric.unit(),
        metric.better(),
        rounds.join(","),
    )
}

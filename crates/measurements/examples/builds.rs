//! Compares two builds of the program, such as those before and after a change:
//!
//! ```sh
//! cargo run --release -p forebay-measurements --example builds -- OLD NEW --rounds 6 layout plug
//! ```
//!
//! Each round runs each suite, in its quick form, with both builds in turn. The ratios are paired
//! by round. The kernel's arms are the same in both builds, so their ratio is the noise.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Parser;
use forebay_lab::schema::Document;
use forebay_lab::statistics::{self, Paired};

#[derive(Parser)]
struct Options {
    /// Program before the change.
    old: PathBuf,
    /// Program after the change.
    new: PathBuf,
    /// Suites.
    #[arg(required = true)]
    suites: Vec<String>,
    /// Number of rounds.
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// Directory for the files.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

/// Values of each round by job and arm.
type Values = BTreeMap<(String, String), Vec<f64>>;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    println!("new build to old build, {} rounds, quick forms; 95 % intervals", options.rounds);
    for suite in &options.suites {
        let (mut old, mut new) = (Values::new(), Values::new());
        for round in 0..options.rounds {
            let mut builds = [(&options.old, &mut old), (&options.new, &mut new)];
            if round % 2 == 1 {
                builds.reverse();
            }
            for (program, values) in builds {
                run(&options, program, suite, round, values)?;
            }
        }
        print(suite, &old, &new);
    }
    Ok(())
}

/// Runs a suite once, and appends the values of its metrics.
fn run(
    options: &Options,
    program: &PathBuf,
    suite: &str,
    round: u32,
    values: &mut Values,
) -> Result<(), Box<dyn Error>> {
    let result = std::env::temp_dir().join(format!("forebay-builds-{}.json", std::process::id()));
    let mut command = Command::new(program);
    command.args(["compare", suite, "--quick", "--rounds", "1", "--seed"]);
    command.arg(format!("{:08x}", round + 1)).arg("--dir").arg(&options.dir);
    let status = command.arg("--json").arg(&result).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{}: {suite}: {status}", program.display()).into());
    }
    let document = Document::read(&result)?;
    std::fs::remove_file(&result)?;
    for part in &document.parts {
        for row in document.rows.iter().filter(|row| row.metric == part.metric) {
            if part.jobs.iter().any(|job| job.name == row.job) {
                let key = (row.job.clone(), row.arm.clone());
                values.entry(key).or_default().push(row.mean);
            }
        }
    }
    Ok(())
}

fn print(suite: &str, old: &Values, new: &Values) {
    println!("\n{suite}");
    for (key, new) in new {
        let (job, arm) = key;
        let Some(old) = old.get(key) else { continue };
        let Some(found) = statistics::ratio(Paired { arm: new, base: old }, 1) else { continue };
        let (ratio, low, high) = (found.ratio, found.low, found.high);
        println!("{job:44} {arm:22} {ratio:.2} [{low:.2}-{high:.2}]");
    }
}

//! Runs every measurement that the documents show.
//!
//! ```text
//! cargo run --release -p forebay-measurements -- BUNDLE
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;

use forebay_measurements::aim;
use forebay_measurements::disk::{self, Column};
use forebay_measurements::document::{Disks, Marker, with_figures};
use forebay_measurements::list::{Aim, List};
use forebay_measurements::pages::{self, MEASUREMENTS};
use forebay_measurements::run::{Bundle, Ran};

/// Run the measurements that the documents show, and write the figures into them
#[derive(Parser, Debug)]
#[command(
    name = "measurements",
    after_help = "Run it in the project's directory, as root, on an idle machine. A measurement with a result in \
                  the bundle is not run again. If one fails, the others continue."
)]
struct Typed {
    /// Directory for outputs and results
    bundle: PathBuf,
    /// Put the files of the measurements in DIR [default: `files` in the bundle]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Run only these measurements
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// List the measurements with their times and exit
    #[arg(long)]
    list: bool,
    /// Write the documents from the bundle without measuring
    #[arg(long)]
    documents: bool,
}

fn main() -> ExitCode {
    match measure(&Typed::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} measurements failed");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Runs the request and returns the number of failed measurements.
fn measure(typed: &Typed) -> Result<usize, String> {
    let path = Path::new(MEASUREMENTS).join("measurements.toml");
    let text = fs::read_to_string(&path).map_err(|error| {
        format!("{}: {error}; run it in the project's directory", path.display())
    })?;
    let list = List::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(name) = typed.only.iter().flatten().find(|name| list.find(name).is_none()) {
        let known: Vec<&str> = list.measurements.iter().map(|known| known.name.as_str()).collect();
        return Err(format!("--only {name}: no such measurement; known: {}", known.join(", ")));
    }
    let wanted = |name: &String| typed.only.as_ref().is_none_or(|only| only.contains(name));
    let measurements = || list.measurements.iter().filter(|measurement| wanted(&measurement.name));
    if typed.list {
        measurements().for_each(|one| println!("{:>4} min  {}", one.minutes, one.name));
        println!("{:>4} min", measurements().map(|one| one.minutes).sum::<u32>());
        return Ok(0);
    }
    let bundle = bundle(typed)?;
    let mut failed = 0;
    if !typed.documents {
        build()?;
        for measurement in measurements() {
            eprintln!("{}: about {} min", measurement.name, measurement.minutes);
            match bundle.run(measurement) {
                Ok(Ran::Done) => {}
                Ok(Ran::WasThere) => eprintln!("{}: already in the bundle", measurement.name),
                Err(error) => {
                    eprintln!("{error}");
                    failed += 1;
                }
            }
        }
    }
    rewrite(&list, &bundle)?;
    Ok(failed)
}

fn bundle(typed: &Typed) -> Result<Bundle, String> {
    let whole = |path: &Path| {
        let made = fs::create_dir_all(path).and_then(|()| path.canonicalize());
        made.map_err(|error| format!("{}: {error}", path.display()))
    };
    let directory = whole(&typed.bundle)?;
    let files = whole(&typed.dir.clone().unwrap_or_else(|| directory.join("files")))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let programs = own.parent().ok_or("the directory of this program is unknown")?.to_owned();
    let project = std::env::current_dir().map_err(|error| error.to_string())?;
    Ok(Bundle { directory, project, files, programs: vec![programs.join("examples"), programs] })
}

/// Builds every program that the commands run, with the same cargo.
fn build() -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = [
        "build",
        "--release",
        "--workspace",
        "--bins",
        "--examples",
        "--features",
        "forebay-cli/peers",
    ];
    let status =
        Command::new(cargo).args(arguments).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("the build failed".to_owned()) }
}

/// Writes the figures of the bundle into every document.
fn rewrite(list: &List, bundle: &Bundle) -> Result<(), String> {
    let project = Path::new("");
    let pages = pages::measured(project).map_err(|error| format!("{MEASUREMENTS}: {error}"))?;
    for path in pages.into_iter().chain([PathBuf::from("README.md")]) {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let old = fs::read_to_string(&path).map_err(|error| failed(&error))?;
        let new = with_figures(&old, |marker| content(list, bundle, marker))
            .map_err(|error| failed(&error))?;
        update(&path, &old, &new)?;
    }
    // From the pages as they are now, because most figures come from several bundles.
    let (old, new) = pages::answered(project).map_err(|error| error.to_string())?;
    update(Path::new(pages::QUESTIONS), &old, &new)
}

fn update(path: &Path, old: &str, new: &str) -> Result<(), String> {
    if new != old {
        fs::write(path, new).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("{}: updated", path.display());
    }
    Ok(())
}

/// Returns the content for a marker, or `None` if it was not measured.
fn content(list: &List, bundle: &Bundle, marker: &Marker) -> Option<String> {
    match marker {
        Marker::Measured { name, excerpt } => excerpt.of(&bundle.printed(name)?),
        Marker::Aims(name) => {
            let aims: Vec<&Aim> = list.aims.iter().filter(|aim| aim.table == *name).collect();
            let measured = aims.iter().any(|aim| bundle.result(&aim.measurement).is_some());
            measured.then(|| aim::table(&aims, |name| bundle.result(name)))
        }
        Marker::Disks { table, suite, disks } => {
            let columns: Vec<Column> = disks
                .iter()
                .map(|disk| Column {
                    disk: disk.clone(),
                    document: bundle.result(&format!("{suite}-{disk}")),
                })
                .collect();
            let is_complete = columns.iter().all(|column| column.document.is_some());
            is_complete.then(|| match table {
                Disks::FirstPage => disk::first_page(&columns),
                Disks::Ratios => disk::ratios(&columns),
            })
        }
        // Made from the pages, not from the bundle.
        Marker::Questions { .. } => None,
    }
}

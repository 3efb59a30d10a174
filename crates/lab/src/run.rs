//! The work of `forebay run JOB.fio` below the command line.
//!
//! The file is read whole before anything is touched: a misspelt option in the last section costs
//! no run of the first. So are the directories and devices of every group looked at. Then the
//! groups that `stonewall` makes run one after the other, each a cell: in a process of its own if
//! the caller's runner starts one, so that neither the memory nor the context switches of a group
//! are those of the one before. Files stay as they are when it is over, unless the job says
//! `unlink=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::arm::Arm;
use crate::cell::{Cell, CellResult, CellSpec};
use crate::compare::judge;
use crate::fio::{self, Leniency, ParseError, ParsedJobs};
use crate::job::Devices;
use crate::load::{self, CellError, CellReport};
use crate::probes::job_cell;
use crate::schema::Row;
use crate::scratch::Stop;

#[derive(Clone, PartialEq, Debug)]
pub struct RunOptions {
    pub job_file: PathBuf,
    pub arm: Arm,
    /// Knobs of the library, by name.
    pub settings: Vec<(String, String)>,
    /// Where the library's engine serves its control socket, while a group runs.
    pub control: Option<PathBuf>,
    /// Treatment of unknown options.
    pub leniency: Leniency,
    /// Whether a block device may be written.
    pub devices: Devices,
    /// Where files with relative names go; the current directory if none.
    pub directory: Option<PathBuf>,
    /// For offsets and data.
    pub seed: u64,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job file could not be read.
    #[error("{path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The job file makes no sense.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A group could not be run.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// Messages could not be written.
    #[error("cannot write to standard error: {0}")]
    Report(io::Error),
}

/// Runs one group, here or in a child.
pub type GroupRunner<'a> = &'a mut dyn FnMut(&Cell) -> Result<CellReport, CellError>;

/// Runs a job file, group by group, and returns a report for each, in the order they ran. Messages
/// to read first go to `report`: warnings, and options without effect. Once `stop` is set the
/// runner's group has to end soon; its files go if the job says `unlink=1`.
pub fn run(
    options: &RunOptions,
    report: &mut dyn Write,
    run_group: GroupRunner<'_>,
    stop: &Stop,
) -> Result<Vec<CellReport>, RunError> {
    let directory = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut parsed = read(&options.job_file, options.leniency, Some(&directory), report)?;
    for group in &mut parsed.groups {
        group.devices = options.devices;
        load::check_workload(options.arm, group, &directory)?;
    }
    let mut groups = Vec::new();
    for workload in parsed.groups {
        // The budget is the library's own default.
        let spec = CellSpec {
            directory: directory.clone(),
            settings: options.settings.clone(),
            control: options.control.clone(),
            seed: options.seed,
            ..CellSpec::of(options.arm, workload.clone())
        };
        let result = run_group(&job_cell(spec));
        if stop.is_set() {
            if options.arm != Arm::Null {
                load::remove_unlinked(&workload, &directory)?;
            }
            return Err(RunError::Interrupted);
        }
        groups.push(result?);
    }
    Ok(groups)
}

/// The name that a group's own rows go by, beside those of its jobs.
const TOTAL: &str = "total";

/// Returns the rows of all groups, of every job and of every group as a whole. Names are unique
/// over all groups.
pub fn rows(groups: &[CellReport], arm: Arm) -> Vec<Row> {
    let mut taken = BTreeSet::new();
    let mut rows = Vec::new();
    let mut add = |name: String, metrics: &BTreeMap<String, f64>| {
        let cell = CellResult { metrics: metrics.clone(), ..CellResult::default() };
        rows.extend(judge::rows(&name, arm.name(), &[cell]));
    };
    for (number, group) in groups.iter().enumerate() {
        for job in &group.jobs {
            let mut name = job.name.clone();
            if is_total(&name) || !taken.insert(name.clone()) {
                name = format!("{name} (group {})", number + 1);
                taken.insert(name.clone());
            }
            add(name, &job.metrics);
        }
        let name = match groups.len() {
            1 => TOTAL.to_owned(),
            _ => format!("{TOTAL}, group {}", number + 1),
        };
        add(name, &group.total.metrics);
    }
    rows
}

/// Returns whether rows of this name are of a group as a whole.
pub fn is_total(job: &str) -> bool {
    let Some(rest) = job.strip_prefix(TOTAL) else { return false };
    rest.is_empty()
        || rest.strip_prefix(", group ").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns the groups' notes, each once.
pub fn notes(groups: &[CellReport]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for note in groups.iter().flat_map(|group| &group.total.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    notes
}

fn say(parsed: &ParsedJobs, report: &mut dyn Write) -> io::Result<()> {
    for warning in &parsed.warnings {
        writeln!(report, "warning: {warning}")?;
    }
    for notice in &parsed.without_effect {
        writeln!(report, "differs from fio: {notice}")?;
    }
    Ok(())
}

/// Reads a job file with the messages of [`run`], for other uses of its jobs. Relative names of
/// files are in `directory`, if that is known yet.
pub fn read(
    path: &Path,
    leniency: Leniency,
    directory: Option<&Path>,
    report: &mut dyn Write,
) -> Result<ParsedJobs, RunError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| RunError::Read { path: path.to_owned(), source })?;
    let parsed = fio::parse(&text, path, leniency, directory)?;
    say(&parsed, report).map_err(RunError::Report)?;
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::JobRow;

    #[test]
    fn names_differ_over_all_groups() {
        let job =
            |name: &str| JobRow { name: name.into(), metrics: [("iops".to_owned(), 1.0)].into() };
        let group = |names: &[&str]| CellReport {
            total: CellResult {
                metrics: [("iops".to_owned(), 2.0)].into(),
                notes: vec!["same".into()],
                detail: None,
            },
            jobs: names.iter().map(|name| job(name)).collect(),
        };
        let report = [group(&["a", "total"]), group(&["a"])];
        let rows = rows(&report, Arm::Null);
        let names: Vec<_> = rows.iter().map(|row| row.job.as_str()).collect();
        assert_eq!(
            names,
            ["a", "total (group 1)", "total, group 1", "a (group 2)", "total, group 2"]
        );
        let totals: Vec<_> = names.iter().map(|name| is_total(name)).collect();
        assert_eq!(totals, [false, false, true, false, true]);
        assert_eq!(notes(&report), ["same"]);
    }
}

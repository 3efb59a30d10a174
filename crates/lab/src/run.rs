//! What `forebay run JOB.fio` does below the command line.
//!
//! The file is read whole before anything is touched: a misspelt option in the last section costs no run of the first.
//! So are the directories and devices of every group looked at. Then the groups that `stonewall` makes run one after
//! the other, each a cell in this process. Files stay as they are when it is over, unless the job says `unlink=1`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::arm::Arm;
use crate::cell::{CellSpec, SyncProbe, Verify};
use crate::fio::{self, Leniency, ParseError, ParsedJobs};
use crate::job::Devices;
use crate::load::{self, CellError, CellReport};

/// What to run, and through what.
#[derive(Clone, PartialEq, Debug)]
pub struct RunOptions {
    /// The job file.
    pub job_file: PathBuf,
    /// Through what.
    pub engine: Engine,
    /// Knobs of the library, by name.
    pub settings: Vec<(String, String)>,
    /// What to do about options nobody knows.
    pub leniency: Leniency,
    /// Whether a block device may be written.
    pub devices: Devices,
    /// Where files with relative names go; the current directory if none.
    pub directory: Option<PathBuf>,
    /// For offsets and data.
    pub seed: u64,
}

/// Through what a job file is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The library.
    Forebay,
    /// The kernel, as the job file says.
    Kernel,
    /// Nothing: what the load generator itself costs.
    Null,
}

impl Engine {
    /// The same as an arm.
    #[must_use]
    pub fn arm(self) -> Arm {
        match self {
            Engine::Forebay => Arm::Forebay,
            Engine::Kernel => Arm::Kernel,
            Engine::Null => Arm::Null,
        }
    }
}

/// What came of it: one report for each group, in the order they ran.
#[derive(Clone, PartialEq, Debug)]
pub struct RunReport {
    /// A row for each job, and one for all of the group.
    pub groups: Vec<CellReport>,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job file could not be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The job file makes no sense.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A group could not be run.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// What there was to say could not be said.
    #[error("could not write a message: {0}")]
    Tell(io::Error),
}

/// Runs a job file. What the user has to know first goes to `tell`: warnings, and options without effect.
pub fn run(options: &RunOptions, tell: &mut dyn Write) -> Result<RunReport, RunError> {
    let mut parsed = read(&options.job_file, options.leniency, tell)?;
    let directory = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    for group in &mut parsed.groups {
        group.devices = options.devices;
        if options.engine != Engine::Null {
            load::check_workload(group, &directory)?;
        }
    }
    let cells = parsed.groups.into_iter().map(|workload| CellSpec {
        workload,
        arm: options.engine.arm(),
        directory: directory.clone(),
        // The library's own default.
        budget_bytes: 0,
        settings: options.settings.clone(),
        seed: options.seed,
        verify: Verify::Off,
        sync_probe: SyncProbe::Off,
    });
    let groups: Result<Vec<_>, _> = cells.map(|spec| load::report_cell(&spec)).collect();
    Ok(RunReport { groups: groups? })
}

fn say(parsed: &ParsedJobs, tell: &mut dyn Write) -> io::Result<()> {
    for warning in &parsed.warnings {
        writeln!(tell, "warning: {warning}")?;
    }
    for notice in &parsed.without_effect {
        writeln!(tell, "differs from fio: {notice}")?;
    }
    Ok(())
}

/// Reads a job file as [`run`] would, and says the same about it: for whoever wants its jobs for something else.
pub fn read(path: &Path, leniency: Leniency, tell: &mut dyn Write) -> Result<ParsedJobs, RunError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| RunError::Read { path: path.to_owned(), source })?;
    let parsed = fio::parse(&text, path, leniency)?;
    say(&parsed, tell).map_err(RunError::Tell)?;
    Ok(parsed)
}

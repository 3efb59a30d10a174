//! The rounds of a comparison on the disk as they end, so that an interrupted comparison can
//! resume.
//!
//! ```text
//! { what is compared: seed, parts, on what }  one line
//! { part 0, round 0: every cell }             one line for each round that ended, synced
//! ```
//!
//! Only the same comparison resumes: the same jobs, arms, sizes and seed, in the same place, by the
//! same program on the same kernel. It may be longer or shorter. The order of every round comes
//! from the seed, so it does not change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::outcome::LeftOut;
use super::state::CellState;
use crate::cell::CellResult;
use crate::plan::Plan;

/// Of the file. A change of what stands in it raises it.
const FORMAT: u32 = 3;

/// How often its lock is asked for, and how long apart.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    seed: String,
    parts: Vec<(String, u64)>,
    surroundings: Surroundings,
}

/// All that is the same in every round and is not of the plan, and what each is: the kernel, the
/// program, the disk.
pub type Surroundings = BTreeMap<String, String>;

/// One round that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) part: usize,
    pub(super) round: u32,
    /// The order of its arms.
    pub(super) order: Vec<String>,
    pub(super) cells: Vec<CellRecord>,
    /// All that is left out until then.
    pub(super) left_out: Vec<LeftOut>,
}

/// One cell of a round, and in what surroundings it ran.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct CellRecord {
    pub(super) state: CellState,
    pub(super) result: CellResult,
}

/// A file of rounds, locked as long as this lives.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: File,
    /// Those that were in it when it was opened.
    rounds: Vec<Round>,
}

/// One part of it, for a comparison.
#[derive(Clone, Copy, Debug)]
pub struct PartOfRecord<'a> {
    pub record: &'a RefCell<Record>,
    /// From zero.
    pub part: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    /// It is not this comparison's, or not now.
    #[error("{0}")]
    Refused(String),
}

impl Record {
    /// Returns the seed of the comparison in a file; none if there is no file yet.
    ///
    /// # Errors
    /// A file that is no record.
    pub fn seed_of(path: &Path) -> Result<Option<u64>, RecordError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) if text.is_empty() => return Ok(None),
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RecordError::File { path: path.to_owned(), source }),
        };
        let other = || not_ours(path);
        let header = header(&text).ok_or_else(other)?;
        u64::from_str_radix(&header.seed, 16).map(Some).map_err(|_| other())
    }

    /// Opens the record of a comparison of these parts, or begins it if there is no file.
    pub fn open(
        path: &Path,
        plans: &[&Plan],
        surroundings: &Surroundings,
    ) -> Result<Self, RecordError> {
        let failed = |source| RecordError::File { path: path.to_owned(), source };
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(path).map_err(failed)?;
        // A child has every descriptor too, from its fork to its exec: one that was closed a moment
        // ago may seem taken.
        let is_ours = (0..LOCK_TRIES).any(|number| {
            std::thread::sleep(if number == 0 { Duration::ZERO } else { LOCK_PAUSE });
            flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if !is_ours {
            return Err(RecordError::Refused(format!(
                "{}: another comparison is writing this file; wait until it ends",
                path.display()
            )));
        }
        let ours = Header {
            format: FORMAT,
            seed: format!("{:x}", plans.first().map_or(0, |plan| plan.seed)),
            parts: plans.iter().map(|plan| (plan.part.clone(), fingerprint(plan))).collect(),
            surroundings: surroundings.clone(),
        };
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let mut record = Self { path: path.to_owned(), file, rounds: Vec::new() };
        if text.is_empty() {
            record.append(&ours)?;
            return Ok(record);
        }
        let theirs = header(&text).ok_or_else(|| not_ours(path))?;
        if let Some(what) = difference(&ours, &theirs) {
            return Err(RecordError::Refused(format!(
                "{}: from another comparison: {what}; repeat the same command, or name a new file",
                path.display()
            )));
        }
        let mut sound = text.find('\n').map_or(0, |end| end + 1);
        // A line that was cut short is of a round that did not end.
        for line in text[sound..].split_inclusive('\n') {
            let whole = line.strip_suffix('\n').and_then(|line| serde_json::from_str(line).ok());
            let Some(round) = whole else { break };
            record.rounds.push(round);
            sound += line.len();
        }
        record.file.set_len(sound as u64).map_err(failed)?;
        record.file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(record)
    }

    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Returns the rounds of a part, in their order, without a gap.
    pub(super) fn of(&self, part: usize) -> Vec<Round> {
        let of_part = self.rounds.iter().filter(|round| round.part == part);
        let in_order = (0..).zip(of_part).take_while(|(number, round)| *number == round.round);
        in_order.map(|(_, round)| round.clone()).collect()
    }

    /// Appends a line. It is on the disk when this returns.
    pub(super) fn append(&mut self, line: &impl Serialize) -> Result<(), RecordError> {
        let failed = |source| RecordError::File { path: self.path.clone(), source };
        let mut text = serde_json::to_vec(line).map_err(io::Error::from).map_err(failed)?;
        text.push(b'\n');
        self.file.write_all(&text).and_then(|()| self.file.sync_data()).map_err(failed)
    }
}

fn not_ours(path: &Path) -> RecordError {
    let what = "not a file of --resume; name a new file, or one that --resume wrote";
    RecordError::Refused(format!("{}: {what}", path.display()))
}

fn header(text: &str) -> Option<Header> {
    serde_json::from_str(text.lines().next()?).ok()
}

fn difference(ours: &Header, theirs: &Header) -> Option<String> {
    if ours.format != theirs.format {
        return Some("it is of another version of this program".to_owned());
    }
    let [here, there] = [ours, theirs].map(|header| {
        let names: Vec<&str> = header.parts.iter().map(|(name, _)| name.as_str()).collect();
        let own = [("seed", header.seed.clone()), ("list of parts", names.join(", "))];
        let own = own.map(|(name, what)| (name.to_owned(), what));
        header.surroundings.clone().into_iter().chain(own).collect::<Surroundings>()
    });
    let mut names = here.keys().chain(there.keys());
    if let Some(name) = names.find(|name| here.get(*name) != there.get(*name)) {
        let known = |of: &Surroundings| of.get(name).filter(|what| !what.is_empty()).cloned();
        let [here, there] = [&here, &there].map(|of| known(of).unwrap_or_else(|| "none".into()));
        return Some(format!("its {name} is {there}, not {here}"));
    }
    let differs = ours.parts.iter().zip(&theirs.parts).find(|(ours, theirs)| ours != theirs);
    differs.map(|((name, _), _)| format!("{name} has other arms, jobs or sizes"))
}

/// Returns a fingerprint of the work of all cells. The number of rounds and the time limit are no
/// part of it.
fn fingerprint(plan: &Plan) -> u64 {
    let alike = Plan { rounds: 0, time_limit: None, notes: Vec::new(), ..plan.clone() };
    let mut hasher = DefaultHasher::new();
    format!("{alike:?}").hash(&mut hasher);
    hasher.finish()
}

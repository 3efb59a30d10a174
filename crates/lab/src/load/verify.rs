//! Reading everything back: after the clock has stopped and the arm has closed its files, by
//! ordinary reads.
//!
//! The expected data is computed again: each job's operations replay from its seed, and mark the
//! blocks they wrote. Cached pages are dropped first, so that it is the device that is asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::content::Content;
use super::error::{CellError, Context};
use super::layout::JobPlan;
use super::sequence::Kind;

/// Marks are kept for pieces of this size: the least that a sector can be.
const GRAIN: u64 = 512;

/// Compares every byte that jobs wrote in the operations that they issued. Returns their number.
pub(crate) fn verify(jobs: &[(&JobPlan, u64)]) -> Result<u64, CellError> {
    let mut files: BTreeMap<PathBuf, Written> = BTreeMap::new();
    for &(plan, operations) in jobs {
        let mut sequence = plan.sequence();
        for _ in 0..operations {
            let Some(operation) = sequence.next() else { break };
            if operation.kind == Kind::Write {
                let file = &plan.files[operation.file];
                let written = files
                    .entry(file.path.clone())
                    .or_insert_with(|| Written { content: file.content, marks: Vec::new() });
                written.mark(operation.offset, u64::from(operation.bytes));
            }
        }
    }
    files.iter().map(|(path, written)| written.compare(path)).sum()
}

/// Opens a file anew, so that the device is asked.
pub(crate) fn open_again(path: &Path) -> Result<File, CellError> {
    let file = File::open(path).context_at("could not open it again", path)?;
    // If this is refused, the page cache is read instead.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok(file)
}

/// Reads as much as `part` holds, and compares it with what belongs there.
pub(crate) fn compare(
    file: &File,
    path: &Path,
    content: Content,
    offset: u64,
    part: &mut [u8],
) -> Result<(), CellError> {
    file.read_exact_at(part, offset)
        .context_at(format!("could not read it back at {offset}"), path)?;
    content.check(offset, part).map_err(|mismatch| CellError::Mismatch {
        path: path.to_owned(),
        offset: mismatch.offset,
        found: mismatch.found,
    })
}

/// Returns the note on verified bytes.
pub(crate) fn verified(bytes: u64) -> String {
    format!("verified {bytes} bytes")
}

/// Returns the bytes of a note on verified bytes.
pub(crate) fn verified_bytes(note: &str) -> Option<u64> {
    note.strip_prefix("verified ")?.strip_suffix(" bytes")?.parse().ok()
}

struct Written {
    content: Content,
    /// For each grain, whether it was written whole.
    marks: Vec<bool>,
}

impl Written {
    /// Marks the grains that were written whole.
    fn mark(&mut self, offset: u64, bytes: u64) {
        let (first, end) = (offset.div_ceil(GRAIN) as usize, ((offset + bytes) / GRAIN) as usize);
        if first < end {
            self.marks.resize(self.marks.len().max(end), false);
            self.marks[first..end].fill(true);
        }
    }

    fn compare(&self, path: &Path) -> Result<u64, CellError> {
        const MOST: usize = 2048;
        let file = open_again(path)?;
        let mut buffer = vec![0; MOST * GRAIN as usize];
        let (mut offset, mut compared) = (0, 0);
        let runs = self.marks.chunks(MOST).flat_map(|part| part.chunk_by(|one, next| one == next));
        for run in runs {
            let bytes = run.len() as u64 * GRAIN;
            if run[0] {
                compare(&file, path, self.content, offset, &mut buffer[..bytes as usize])?;
                compared += bytes;
            }
            offset += bytes;
        }
        assert!(compared <= offset, "more is compared than the file is long");
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Verify;
    use crate::job::{Access, Amount, Devices, Direction, Job, Order, Workload};
    use crate::load::layout::resolve;
    use crate::load::making::prepare;

    #[test]
    fn a_write_that_was_lost_in_a_file_with_data_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let job = Job {
            name: "mixed".into(),
            access: Access {
                direction: Direction::Mixed { read_percent: 50 },
                order: Order::Random,
            },
            files: vec!["data".into()],
            size: Some(Amount::Bytes(1 << 20)),
            ..Job::default()
        };
        let workload = Workload { jobs: vec![job], devices: Devices::Refuse };
        let plans = resolve(&workload, directory.path(), 7).unwrap();
        prepare(&plans, Verify::After).unwrap();
        let plan = &plans[0];
        let file = std::fs::OpenOptions::new().write(true).open(&plan.files[0].path).unwrap();
        let mut sequence = plan.sequence();
        let writes: Vec<_> =
            std::iter::from_fn(|| sequence.next()).filter(|one| one.kind == Kind::Write).collect();
        let mut block = vec![0; 4096];
        let mut write = |operation: &crate::load::sequence::Operation| {
            plan.files[0].content.fill(operation.offset, &mut block);
            file.write_all_at(&block, operation.offset).unwrap();
        };
        writes[1..].iter().for_each(&mut write);
        let issued = [(plan, 256)];
        let lost = verify(&issued).unwrap_err();
        assert!(
            matches!(lost, CellError::Mismatch { offset, .. } if offset == writes[0].offset),
            "{lost}"
        );
        write(&writes[0]);
        assert_eq!(verify(&issued), Ok(writes.len() as u64 * 4096));
    }
}

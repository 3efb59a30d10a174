//! How far a child process is, in a file that its parent reads after its death.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// How far it is: steps begun, and steps that have returned.
pub(crate) struct Progress(File);

impl Progress {
    pub(crate) fn at(directory: &Path) -> Self {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false);
        Self(how.open(directory.join("progress")).unwrap())
    }

    pub(crate) fn report(&self, which: u64, steps: u64) {
        self.0.write_all_at(&steps.to_le_bytes(), which * 8).unwrap();
    }

    pub(crate) fn reported(&self, which: u64) -> u64 {
        let mut bytes = [0; 8];
        // A shorter file means that no step was reported yet.
        let _ = self.0.read_exact_at(&mut bytes, which * 8);
        u64::from_le_bytes(bytes)
    }
}

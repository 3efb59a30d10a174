//! An arm of a suite: through what it does its I/O, and how.

use crate::request::{Submitter, Switch};
use crate::through::{Poll, Through};
use crate::tuning::Tuning;
use crate::writers::Layout;

/// One of the things compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arm {
    pub name: String,
    /// Through what.
    pub through: Through,
    /// Knobs of the queue, or of the engine.
    pub knobs: Vec<(String, String)>,
    /// Bios handed over together, where it says so.
    pub batch: Option<u32>,
    /// The depths it is run at; all if empty.
    pub depths: Vec<u32>,
    /// Whether the file is registered with the ring.
    pub fixed_files: Switch,
    /// Whether completions are polled for.
    pub poll: Poll,
    /// The thread that submits.
    pub from: Submitter,
    /// State of its files before the clock starts.
    pub layout: Layout,
    /// Settings of the machine that the user asks for. A refused one ends the comparison.
    pub tunings: Vec<Tuning>,
    /// Settings of the machine that the suite asks for. If one is refused, the arm is left out.
    pub needs: Vec<Tuning>,
}

impl Arm {
    /// An arm that says nothing but through what.
    pub fn plain(name: &str, through: Through) -> Self {
        Self {
            name: name.to_owned(),
            through,
            knobs: Vec::new(),
            batch: None,
            depths: Vec::new(),
            fixed_files: Switch::On,
            poll: Poll::Never,
            from: Submitter::Local,
            layout: Layout::default(),
            tunings: Vec::new(),
            needs: Vec::new(),
        }
    }
}

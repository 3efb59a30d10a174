//! Steps after the last closes of files, the oldest first.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::node::Node;

/// Reasons to make steps early.
#[derive(Debug)]
pub(super) struct Pressure {
    /// Whether closed small files have to be written.
    pub(super) is_filling: bool,
    /// Whether closed small files have to be dropped.
    pub(super) is_full: bool,
    /// Files of a kind that may stay open.
    pub(super) kept: usize,
}

#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Files whose data is to be written.
    pub(super) settle: VecDeque<Plan>,
    /// Small files whose pages are to be written.
    pub(super) write: VecDeque<Plan>,
    /// Small files that are to be closed.
    pub(super) drop: VecDeque<Plan>,
    /// Files in the engine, open for writing, that are to be closed.
    pub(super) release: VecDeque<Plan>,
    /// Files in the engine, open for reading, that are to be closed.
    pub(super) close: VecDeque<Plan>,
    /// Small files that are closed, and the bytes of their pages, which are to be dropped.
    pub(super) pages: VecDeque<(Plan, u64)>,
    pub(super) is_ended: bool,
    /// Whether the thread makes a step.
    pub(super) is_busy: bool,
}

/// A step after the last close of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Data and time of a file in the engine are written.
    Settle,
    /// The writing of a small file starts.
    Write,
    /// A small file is written and dropped.
    Drop,
    /// A file in the engine that is open for writing is closed.
    Release,
    /// A file in the engine that is open for reading is closed.
    Close,
}

#[derive(Debug)]
pub(super) struct Plan {
    /// Not held: a removed file gives its space back once nothing else has it.
    pub(super) node: Weak<Node>,
    pub(super) uses: u64,
    pub(super) due: Instant,
}

impl Plan {
    /// Returns the file, unless it was used since or is gone.
    pub(super) fn file(&self) -> Option<Arc<Node>> {
        self.node.upgrade().filter(|node| node.state().uses() == self.uses)
    }
}

impl Plans {
    /// Returns the next step that is due.
    pub(super) fn next(&self, now: Instant, pressure: &Pressure) -> Option<Step> {
        let is_due = |plans: &VecDeque<Plan>| plans.front().is_some_and(|plan| plan.due <= now);
        let Pressure { is_filling, is_full, kept } = *pressure;
        [
            (Step::Settle, is_due(&self.settle)),
            (
                Step::Write,
                is_due(&self.write)
                    || is_filling && !self.write.is_empty()
                    || self.write.len() > kept,
            ),
            (
                Step::Drop,
                is_due(&self.drop) || is_full && !self.drop.is_empty() || self.drop.len() > kept,
            ),
            (Step::Release, is_due(&self.release) || self.release.len() > kept),
            (Step::Close, is_due(&self.close) || self.close.len() > kept),
        ]
        .into_iter()
        .find_map(|(step, is_next)| is_next.then_some(step))
    }

    pub(super) fn take_next(&mut self, now: Instant, pressure: &Pressure) -> Option<(Step, Plan)> {
        let step = self.next(now, pressure)?;
        let plan = self.of(step).pop_front()?;
        Some((step, plan))
    }

    /// Takes the first of the closed small files whose pages stay, if it is one of these.
    pub(super) fn take_pages(&mut self, is_wanted: impl Fn(&Plan) -> bool) -> Option<(Plan, u64)> {
        self.pages.front().filter(|(plan, _)| is_wanted(plan))?;
        self.pages.pop_front()
    }

    pub(super) fn of(&mut self, step: Step) -> &mut VecDeque<Plan> {
        match step {
            Step::Settle => &mut self.settle,
            Step::Write => &mut self.write,
            Step::Drop => &mut self.drop,
            Step::Release => &mut self.release,
            Step::Close => &mut self.close,
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let all = [&self.settle, &self.write, &self.drop, &self.release, &self.close];
        let pages = self.pages.front().map(|(plan, _)| plan);
        all.into_iter().filter_map(|plans| plans.front()).chain(pages).map(|plan| plan.due).min()
    }
}

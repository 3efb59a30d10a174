//! Ends the use of files that nobody has open: data is written and the time of the last write set
//! after a moment, and the file is closed later. Finds files that were removed in the source, too.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use forebay::Times;
use forebay_uring::page_cache;
use rustix::fs::{OFlags, Timestamps};

use crate::data::Access;
use crate::limits::{
    KEEP_OPEN, KEEP_WRITABLE, KEPT_FILES, LOOK_FOR_REMOVED, SETTLE_AFTER, SETTLE_TOGETHER,
};
use crate::mounted::Mount;
use crate::node::Node;
use crate::open_file::{Kept, OpenFile, OpenState};
use crate::small::{Small, Stack};
use crate::times::{changed_at, timespec};
use plans::{Plan, Plans, Pressure, Step};

/// Files after their last close, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    plans: Mutex<Plans>,
    changed: Condvar,
}

impl Settling {
    /// Lets the pages of a small file stay after its close, if there is room. Returns their bytes.
    fn keep_pages(&self, stack: &Stack, small: &Small) -> u64 {
        // Those of removed files are gone, and those of files that are used again stay.
        while let Some((_, bytes)) = self.plans().take_pages(|plan| plan.file().is_none()) {
            stack.kept.give_back(bytes);
        }
        small.keep_pages()
    }

    /// Plans the end of the pages of a small file that is closed.
    fn plan_pages(&self, node: &Arc<Node>, bytes: u64) {
        let (uses, due) = (node.state().uses(), Instant::now() + KEEP_OPEN);
        let plan = Plan { node: Arc::downgrade(node), uses, due };
        self.plans().pages.push_back((plan, bytes));
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans the end of use of a file that was closed.
    pub(crate) fn plan(&self, mount: &Mount, node: &Arc<Node>) {
        let (uses, is_written, is_small, is_writable) = {
            let state = node.state();
            let is_small = state.any().is_some_and(|file| file.data.small().is_some());
            (state.uses(), state.written.is_some(), is_small, state.writable().is_some())
        };
        let now = Instant::now();
        let plan = |due| Plan { node: Arc::downgrade(node), uses, due };
        let mut plans = self.plans();
        // Later plans of a kind are due later, so the thread looks at the first alone.
        let mut is_first = false;
        let mut add = |to: &mut VecDeque<Plan>, due| {
            is_first |= to.is_empty();
            to.push_back(plan(due));
        };
        if is_small {
            add(&mut plans.write, now + SETTLE_AFTER);
        } else {
            if is_written {
                add(&mut plans.settle, now + SETTLE_AFTER);
            }
            match is_writable {
                true => add(&mut plans.release, now + KEEP_WRITABLE),
                false => add(&mut plans.close, now + KEEP_OPEN),
            }
        }
        let is_pressed = plans.next(now, &pressure(mount)).is_some();
        drop(plans);
        if is_first || is_pressed {
            self.changed.notify_one();
        }
    }

    /// Runs until [`Settling::end`], on a thread of its own.
    pub(crate) fn run(&self, mount: &Mount) {
        let mut next_look = Instant::now() + LOOK_FOR_REMOVED;
        let mut plans = self.plans();
        while !plans.is_ended {
            let now = Instant::now();
            let step = plans.take_next(now, &pressure(mount));
            let pages = plans.take_pages(|plan| plan.due <= now);
            if step.is_none() && pages.is_none() && now < next_look {
                let due = plans.next_due().map_or(next_look, |due| due.min(next_look));
                // Plans that are due one after another share a wake-up.
                let wait = due.duration_since(now).max(SETTLE_TOGETHER);
                let waited = self.changed.wait_timeout(plans, wait);
                plans = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            plans.is_busy = true;
            drop(plans);
            if let (Some((plan, bytes)), Some(stack)) = (pages, mount.way.stack()) {
                plan.file().inspect(|node| drop_pages(node));
                stack.kept.give_back(bytes);
            }
            if now >= next_look {
                release_removed(mount);
                next_look = Instant::now() + LOOK_FOR_REMOVED;
            }
            let later = step.and_then(|(step, plan)| make(step, mount, &plan.file()?, &plan));
            plans = self.plans();
            plans.is_busy = false;
            if plans.is_ended {
                self.changed.notify_all();
            }
            if let Some((step, plan)) = later {
                plans.of(step).push_back(plan);
            }
        }
    }

    /// Returns the files that are open in the engine, or small, after their last close.
    pub(crate) fn count(&self) -> usize {
        let plans = self.plans();
        plans.write.len() + plans.drop.len() + plans.release.len() + plans.close.len()
    }

    /// Ends the thread. Waits until its last step is over: a file that it closes is not among the
    /// open ones, and a flush after this has to cover what the close wrote.
    pub(crate) fn end(&self) {
        let mut plans = self.plans();
        plans.is_ended = true;
        self.changed.notify_all();
        let ended = self.changed.wait_while(plans, |plans| plans.is_busy);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

fn pressure(mount: &Mount) -> Pressure {
    let (is_filling, is_full) = mount.way.stack().map_or((false, false), Stack::pressure);
    Pressure { is_filling, is_full, kept: mount.forgetting.kept_files(KEPT_FILES) }
}

/// Makes a step of a file. Returns the next one. Blocks.
fn make(step: Step, mount: &Mount, node: &Arc<Node>, plan: &Plan) -> Option<(Step, Plan)> {
    let next = |uses, after| {
        let due = Instant::now() + after;
        Plan { node: Arc::downgrade(node), uses, due }
    };
    match step {
        Step::Settle => {
            settle(mount, node);
            None
        }
        Step::Write => {
            let file = node.state().any().cloned();
            if let Some(small) = file.as_ref().and_then(|file| file.data.small()) {
                small.start_writing();
            }
            Some((Step::Drop, next(plan.uses, KEEP_WRITABLE - SETTLE_AFTER)))
        }
        Step::Drop | Step::Release | Step::Close => {
            let is_closed = close(mount, node);
            (!is_closed).then(|| (Step::Release, next(node.state().uses(), KEEP_WRITABLE)))
        }
    }
}

/// Has the source show data and time of the last write of a file, and the time of a read since.
/// Blocks.
pub(crate) fn settle(mount: &Mount, node: &Arc<Node>) {
    let (file, times) = {
        let state = node.state();
        match state.any() {
            Some(file) if state.written.is_some() => (Arc::clone(file), unshown(&state)),
            _ => return,
        }
    };
    let set = match file.access {
        Access::ReadWrite => file.data.set_times(times),
        _ => file.data.write_out().and_then(|()| set_times_of(node, times)),
    };
    let is_forbidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match set {
        Ok(()) => shows(node, times),
        // Its times cannot be set (`chattr +a`).
        Err(error) if is_forbidden(&error) && file.data.write_out().is_ok() => shows(node, times),
        Err(error) => mount
            .log(&format!("{}: could not write the file out yet: {error}", node.name().display())),
    }
}

/// Closes a file that nobody has open. Returns false if a request still uses it, or if neither the
/// device nor the engine takes its pages. Blocks.
pub(crate) fn close(mount: &Mount, node: &Arc<Node>) -> bool {
    if !is_removed(node) && !write_kept(mount, node) {
        return false;
    }
    let _closing = node.closing();
    let (kept, written, is_reported) = {
        let mut state = node.state();
        if state.is_open() {
            return true;
        }
        let kept = state.take_kept();
        if let Kept::Idle(file) = &kept {
            // A source that does not report the size does not report attributes either.
            state.closing_size = file.data.size().ok().flatten();
        }
        (kept, state.written, state.is_poisoned)
    };
    let file = match kept {
        Kept::Nothing => return true,
        Kept::Idle(file) => file,
        Kept::Used => return false,
    };
    if is_removed(node) {
        file.data.discard();
    } else {
        if is_reported {
            // Its errors include those of pages that were written since, which are not lost.
            let _ = file.data.write_out();
        }
        let is_of_flush = Cell::new(false);
        // Without this, the engine reads the file.
        let stack = mount.way.stack().filter(|_| mount.passing.is_on());
        let small = stack.zip(file.data.small());
        let keep = |(stack, small)| mount.settling.keep_pages(stack, small);
        let pages = small.map_or(0, keep);
        if let Err(error) = file.data.close(&is_of_flush) {
            let line = format!("{}: could not write the file out: {error}", node.name().display());
            // An `fsync` has returned the error of a failed flush.
            if is_reported && is_of_flush.get() { mount.log(&line) } else { mount.lose(line) }
        }
        if pages > 0 {
            mount.settling.plan_pages(node, pages);
        }
        node.state().is_poisoned = false;
        // Space that the engine gives back at the close changes the time again.
        let times = Times { modified: written, ..unshown(&node.state()) };
        if written.is_some() && set_times_of(node, times).is_ok() {
            shows(node, times);
        }
    }
    node.state().closing_size = None;
    mount.nodes.release(node);
    true
}

/// Writes a file that nobody has open. Returns false if it is small and the device refuses it. The
/// engine has it then, or it has to be tried again.
fn write_kept(mount: &Mount, node: &Node) -> bool {
    let (file, is_unwritten) = {
        let state = node.state();
        let file = state.any().filter(|_| !state.is_open()).cloned();
        (file, state.written.is_some() || state.is_adopted)
    };
    let Some(file) = file else { return true };
    let is_small = file.data.small().is_some();
    if !is_small && !is_unwritten && !file.data.was_small() {
        return true;
    }
    // However long that takes. The close of a file in the engine ends after a while, and pages that
    // are written later would replace what a program writes past the engine then.
    let written = file.data.write_out();
    if let Err(error) = &written {
        mount.log(&format!("{}: could not write the file out yet: {error}", node.name().display()));
    }
    !is_small || written.is_ok()
}

/// Drops the pages of a closed file.
fn drop_pages(node: &Node) {
    // Another engine may have it, and would be waited for.
    if let Ok(file) = node.open(OFlags::RDONLY | OFlags::NONBLOCK) {
        page_cache::drop_pages(&file);
    }
}

/// Whether a file has no name, and can get none.
fn is_removed(node: &Node) -> bool {
    // Before the look at its names: it may get one meanwhile.
    let is_linkable = node.state().is_linkable;
    node.is_file() && !is_linkable && node.status().is_ok_and(|status| status.st_nlink == 0)
}

/// Drops the data of a file that has lost a name, now or after its last close, if it has no other.
pub(crate) fn note_removed(mount: &Mount, node: &Arc<Node>) {
    node.may_be_removed.store(true, Ordering::Relaxed);
    drop_removed(mount, node);
}

/// Drops the data of a file without a name that nobody has open.
pub(crate) fn drop_removed(mount: &Mount, node: &Arc<Node>) {
    let is_kept = !node.state().is_unused();
    if is_kept && is_removed(node) {
        close(mount, node);
    }
}

/// Has files without a name that nobody has open give back their space. The kernel may remember
/// their names until somebody looks at them.
fn release_removed(mount: &Mount) {
    for node in mount.nodes.all().into_iter().filter(|node| is_removed(node)) {
        close(mount, &node);
        mount.nodes.release_removed(node);
    }
}

/// Times that the source does not show yet.
fn unshown(state: &OpenState) -> Times {
    Times { accessed: state.accessed, modified: state.written }
}

fn set_times_of(node: &Node, times: Times) -> io::Result<()> {
    node.set_times(&Timestamps {
        last_access: timespec(times.accessed),
        last_modification: timespec(times.modified),
    })
}

/// Notes that the source shows these times, unless there was another write or read meanwhile. The
/// close sets the times again then.
fn shows(node: &Arc<Node>, times: Times) {
    let Ok(status) = node.status() else { return };
    let mut state = node.state();
    if unshown(&state) == times {
        state.note_shown();
        state.shown = times.modified.map(|written| (changed_at(&status), written));
    }
}

/// Has the source show the data of a file. Blocks.
pub(crate) fn write_out(node: &Node) -> io::Result<()> {
    let file = {
        // No close begins between the wait for one and this look.
        let _closing = node.closing();
        let state = node.state();
        let file = state.any().cloned();
        let is_unwritten = state.written.is_some() || state.is_adopted;
        let may_be_dirty = |file: &Arc<OpenFile>| {
            is_unwritten || file.data.was_small() || file.access == Access::AsAsked
        };
        file.filter(may_be_dirty)
    };
    file.map_or(Ok(()), |file| file.data.write_out())
}

mod plans;

#[cfg(test)]
mod tests;

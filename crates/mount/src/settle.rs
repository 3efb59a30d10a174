//! Ends the use of files that nobody has open: data is written and the time of the last write set
//! after a moment, and the file is closed later.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use rustix::fs::Timestamps;

use crate::data::Access;
use crate::limits::{KEEP_OPEN, KEPT_FILES, SETTLE_AFTER};
use crate::mounted::Mount;
use crate::node::Node;
use crate::times::{changed_at, timespec};

/// Files after their last close, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    plans: Mutex<Plans>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Plans {
    /// Files whose data is to be written.
    settle: VecDeque<Plan>,
    /// Files that are to be closed.
    close: VecDeque<Plan>,
    is_ended: bool,
}

#[derive(Debug)]
struct Plan {
    /// Not held: a removed file gives its space back once nothing else has it.
    node: Weak<Node>,
    uses: u64,
    due: Instant,
}

impl Plan {
    /// Returns the file, unless it was used since or is gone.
    fn file(&self) -> Option<Arc<Node>> {
        self.node.upgrade().filter(|node| node.state().uses() == self.uses)
    }
}

impl Settling {
    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans the end of use of a file that was closed.
    pub(crate) fn plan(&self, node: &Arc<Node>) {
        let (uses, is_written) = {
            let state = node.state();
            (state.uses(), state.written.is_some())
        };
        let now = Instant::now();
        let plan = |due| Plan { node: Arc::downgrade(node), uses, due };
        let mut plans = self.plans();
        if is_written {
            plans.settle.push_back(plan(now + SETTLE_AFTER));
        }
        plans.close.push_back(plan(now + KEEP_OPEN));
        drop(plans);
        self.changed.notify_one();
    }

    /// Runs until [`Settling::end`], on a thread of its own.
    pub(crate) fn run(&self, mount: &Mount) {
        let mut plans = self.plans();
        while !plans.is_ended {
            let now = Instant::now();
            if let Some(plan) = take_if(&mut plans.settle, |plan| plan.due <= now) {
                drop(plans);
                if let Some(node) = plan.file() {
                    settle(mount, &node);
                }
                plans = self.plans();
                continue;
            }
            let is_full = plans.close.len() > KEPT_FILES;
            if let Some(plan) = take_if(&mut plans.close, |plan| is_full || plan.due <= now) {
                drop(plans);
                let used = plan.file().filter(|node| !close(mount, node));
                let uses = used.map(|node| node.state().uses());
                plans = self.plans();
                if let Some(uses) = uses {
                    plans.close.push_back(Plan { due: now + SETTLE_AFTER, uses, ..plan });
                }
                continue;
            }
            let next = [&plans.settle, &plans.close].into_iter().filter_map(|of| of.front());
            let wait =
                next.map(|plan| plan.due.saturating_duration_since(now)).min().unwrap_or(KEEP_OPEN);
            plans =
                self.changed.wait_timeout(plans, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn end(&self) {
        self.plans().is_ended = true;
        self.changed.notify_all();
    }
}

/// Takes the first plan, if it is time.
fn take_if(plans: &mut VecDeque<Plan>, is_due: impl FnOnce(&Plan) -> bool) -> Option<Plan> {
    if plans.front().is_some_and(is_due) { plans.pop_front() } else { None }
}

/// Has the source show data and time of the last write of a file. Blocks.
pub(crate) fn settle(mount: &Mount, node: &Arc<Node>) {
    let (file, written) = {
        let state = node.state();
        match (state.any(), state.written) {
            (Some(file), Some(written)) => (Arc::clone(file), written),
            _ => return,
        }
    };
    let set = match file.access {
        Access::ReadWrite => file.data.set_modified(written),
        Access::Read => file.data.write_out().and_then(|()| set_modified_of(node, written)),
    };
    match set {
        Ok(()) => shows(node, written),
        Err(error) => mount
            .log(&format!("{}: could not write the file out yet: {error}", node.name().display())),
    }
}

/// Closes a file that nobody has open. Returns false if a request still uses it. Blocks.
pub(crate) fn close(mount: &Mount, node: &Arc<Node>) -> bool {
    let (kept, written) = {
        let mut state = node.state();
        if state.is_open() {
            return true;
        }
        (state.take_kept(), state.written)
    };
    let file = match kept.map(Arc::try_unwrap) {
        None => return true,
        Some(Ok(file)) => file,
        Some(Err(used)) => {
            node.state().keep(used);
            return false;
        }
    };
    if node.status().is_ok_and(|status| status.st_nlink == 0) {
        file.data.discard();
    } else {
        if let Err(error) = file.data.close() {
            let name = node.name();
            mount.log(&format!("{}: could not write the file out: {error}", name.display()));
        }
        // Space that the engine gives back at the close changes the time again.
        if let Some(written) = written
            && set_modified_of(node, written).is_ok()
        {
            shows(node, written);
        }
    }
    mount.nodes.release(node);
    true
}

/// Drops the data of a file without a name that nobody has open.
pub(crate) fn drop_removed(mount: &Mount, node: &Arc<Node>) {
    if node.is_file() && node.status().is_ok_and(|status| status.st_nlink == 0) {
        close(mount, node);
    }
}

fn set_modified_of(node: &Node, written: SystemTime) -> io::Result<()> {
    node.set_times(&Timestamps {
        last_access: timespec(None),
        last_modification: timespec(Some(written)),
    })
}

/// Notes that the source shows the time of a write, unless a later one was accepted.
fn shows(node: &Arc<Node>, written: SystemTime) {
    let Ok(status) = node.status() else { return };
    let mut state = node.state();
    if state.written == Some(written) {
        state.note_shown();
        state.shown = Some((changed_at(&status), written));
    }
}

/// Has the source show the data of a file. Blocks.
pub(crate) fn write_out(node: &Node) -> io::Result<()> {
    let file = {
        let state = node.state();
        state.written.and(state.any().cloned())
    };
    file.map_or(Ok(()), |file| file.data.write_out())
}

/// Makes everything durable, and returns the first error. Blocks.
///
/// One flush of the file system of the source covers all files.
pub(crate) fn sync_all(mount: &Mount) -> Option<String> {
    let mut first = None;
    for node in mount.nodes.all().into_iter().filter(|node| node.is_file()) {
        if let Err(error) = write_out(&node) {
            first.get_or_insert(format!("{}: {error}", node.name().display()));
        }
    }
    let flushed = rustix::fs::syncfs(&mount.source);
    first.or(flushed
        .err()
        .map(|error| format!("could not flush the file system of the source: {error}")))
}

/// Makes all files durable and closes them, at the end of a mount. Returns the first error.
pub(crate) fn close_all(mount: &Mount) -> Option<String> {
    for node in mount.nodes.all().into_iter().filter(|node| node.is_file()) {
        settle(mount, &node);
    }
    let failed = sync_all(mount);
    for node in mount.nodes.all().into_iter().filter(|node| node.is_file()) {
        close(mount, &node);
    }
    failed
}

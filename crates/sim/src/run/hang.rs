//! Devices that stop answering, and the progress of the callers meanwhile: calls on files of other
//! devices go on, and if no call ends at all, the run fails with the list of waiting tasks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use forebay_block::Moment;

use crate::random::Random;
use crate::run::stage::Stage;
use crate::world::{self, TaskId, machine};

/// Longest time of a call on a file of another device. The callers of one file take turns, and a
/// call may be many operations on a slow device.
const OTHERS_WITHIN: Duration = Duration::from_secs(30);

/// Maximum time without the end of a call.
const PROGRESS_WITHIN: Duration = Duration::from_secs(300);

/// Calls under way.
#[derive(Default)]
pub(super) struct Calls {
    /// By the task: the file, and when the call began.
    under_way: RefCell<BTreeMap<TaskId, (usize, Moment)>>,
    last_end: Cell<Option<Moment>>,
    hang: Cell<Option<Hang>>,
}

/// A device that does not answer.
#[derive(Clone, Copy)]
struct Hang {
    device: u64,
    since: Moment,
    /// `None` for ever.
    until: Option<Moment>,
}

impl Stage {
    /// A caller begins a call on a file, or the next part of one.
    pub(super) fn begin_call(&self, number: usize) {
        let task = world::task().expect("a caller is a task");
        self.calls.under_way.borrow_mut().insert(task, (number, world::now()));
    }

    pub(super) fn end_call(&self) {
        let task = world::task().expect("a caller is a task");
        self.calls.under_way.borrow_mut().remove(&task);
        self.calls.last_end.set(Some(world::now()));
    }

    /// The callers have died.
    pub(super) fn forget_calls(&self) {
        self.calls.under_way.borrow_mut().clear();
        self.calls.last_end.set(Some(world::now()));
    }

    /// The device of some file stops answering, unless one does so already.
    pub(super) fn begin_hang(&self, random: &mut Random) {
        let path = self.plan.path(random.below(u64::from(self.plan.files)) as usize);
        let Some(identity) = machine::identity(&path) else { return };
        if self.calls.hang.get().is_some() {
            return;
        }
        machine::hang(&path);
        let now = world::now();
        let time = self.plan.disturbance.hang_time;
        let until = time.map(|most| {
            let nanoseconds = random.below(most.as_nanos() as u64);
            world::after(now, Duration::from_nanos(nanoseconds))
        });
        self.calls.hang.set(Some(Hang { device: identity.device, since: now, until }));
        self.hit("device hangs");
    }

    /// All devices answer again, unless the plan says that one never does.
    pub(super) fn end_hang(&self) {
        if self.calls.hang.get().is_some_and(|hang| hang.until.is_some()) {
            self.calls.hang.set(None);
            machine::resume();
        }
    }

    /// Looks at the calls under way.
    pub(super) fn check_progress(&self) {
        let now = world::now();
        let last = self.calls.last_end.get().unwrap_or(now);
        self.calls.last_end.set(Some(last));
        assert!(
            now.since(last) < PROGRESS_WITHIN,
            "contract 16: no call has ended for {PROGRESS_WITHIN:?}; {} requests are at a device \
             that does not answer",
            machine::hung_requests()
        );
        let Some(hang) = self.calls.hang.get() else { return };
        for (task, (number, begun)) in &*self.calls.under_way.borrow() {
            let device = machine::identity(self.plan.path(*number)).map(|found| found.device);
            // A file that is not there yet will be on the file system of its directory.
            if device.is_none_or(|device| device == hang.device) {
                continue;
            }
            let since = (*begun).max(hang.since);
            assert!(
                now.since(since) < OTHERS_WITHIN,
                "contract 15: task {} waits on file {number}, and device {} hangs, not that of the \
                 file",
                task.number(),
                hang.device
            );
        }
        if !self.calls.under_way.borrow().is_empty() && machine::hung_requests() > 0 {
            self.hit("others go on");
        }
        if hang.until.is_some_and(|until| until <= now) {
            self.end_hang();
        }
    }
}

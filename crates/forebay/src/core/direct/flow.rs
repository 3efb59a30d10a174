//! The context's part in direct operations: which operation starts when, and what follows its end.
//!
//! ```text
//! message --> lane --may start--> [edges read and changed] --> bytes moved --> memory back, ticket
//!                                 blocks are held             bios in the queue
//! ```
//!
//! Everything here belongs to the thread of the context. Bios wait for room in the queue in their
//! own list, and may take half of the tags. So writeback and syncs of cached files continue beside
//! any number of direct operations. The stages of a started operation are in
//! [`active`](crate::core::direct::active).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use forebay_block::{Bio, Ended, Errno, Target};

use crate::core::context::senders::Message;
use crate::core::direct::active::{Active, Next};
use crate::core::direct::direct_inode::DirectInode;
use crate::core::direct::lane::{Lane, Manner, Step};
use crate::core::direct::operation::{Due, Held, Operation, Verb};
use crate::core::direct::turns::{Room, Turns};
use crate::core::error::{Error, Result};
use crate::core::limits::{DIRECT_FLIGHT, DIRECT_OPERATIONS};
use crate::core::shared::Shared;
use crate::core::table::AnyInode;
use crate::core::user_code;
use crate::platform::Backend;

/// The direct files of a context.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Files by the number of their target.
    pub(super) files: Vec<Option<File>>,
    /// Started operations by the number of their owner.
    pub(super) active: Vec<Option<Active>>,
    pub(super) free: Vec<usize>,
    /// Files with operations that may be able to start once there is room, in the order of their
    /// turns.
    lined_up: VecDeque<Target>,
    pub(super) pending: Turns,
    /// Bios in the queue or at the device.
    on_their_way: usize,
    held: Vec<Arc<Held>>,
    /// Interrupted files with started operations.
    pub(super) interrupted: Vec<Target>,
    pass: u64,
    wakers: Vec<Waker>,
}

/// Flushes of one file. One runs at a time, because the kernel reports an error of its own
/// writeback once per open file. Of two concurrent flushes one would report it, and the other would
/// succeed.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    is_on_its_way: bool,
    /// Syncs that get the result of the flush in progress: all changes before them had ended when
    /// it started.
    joined: Vec<Operation>,
    /// Later syncs; the next flush serves all of them.
    waiting: Vec<Operation>,
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) inode: Arc<DirectInode>,
    pub(super) lane: Lane<Operation>,
    /// Error of a failed flush.
    poisoned: Option<Errno>,
    pub(super) flushing: Flushing,
    /// Whether the next sync also has to make the directory durable.
    is_new: bool,
    /// Whether a handle was dropped, maybe the last one.
    is_leaving: bool,
    is_lined_up: bool,
    /// Whether it is out of service after a panic.
    pub(super) is_interrupted: bool,
}

impl Flow {
    /// Takes a message about a direct file or a handle of one.
    pub(crate) fn take(&mut self, message: Message, backend: &mut Backend, shared: &Arc<Shared>) {
        match message {
            Message::Attach(AnyInode::Direct(inode)) => self.attach(inode, backend),
            // Otherwise the sender had a handle of the file, and the file has ended since.
            Message::Renew(inode) => {
                if self.owns(inode.target) {
                    backend.renew(inode.target);
                }
            }
            Message::Operation(operation) => self.submit(*operation, backend, shared),
            Message::Plugged(held) => {
                if !self.held.iter().any(|known| Arc::ptr_eq(known, &held)) {
                    self.held.push(held);
                }
                self.take_held(backend, shared);
            }
            Message::Leave(inode, handle) => {
                handle.leave();
                if self.owns(inode.target) {
                    self.file(inode.target).is_leaving = true;
                }
                self.release(inode.target, backend, shared);
            }
            Message::Lost(handle) => handle.leave(),
            other => unreachable!("a message that is not about a direct file: {other:?}"),
        }
        self.clear_interrupted(backend, shared);
    }

    /// Ends a message that no context will take: waiting callers get an error, and unreported
    /// errors are reported.
    pub(crate) fn refuse(message: Message) {
        match message {
            // The thread that fills the list keeps it.
            Message::Plugged(held) => drop(held.take()),
            Message::Leave(_, handle) | Message::Lost(handle) => handle.leave(),
            // An operation ends when it is dropped.
            _ => {}
        }
    }

    /// Starts operations that threads have held for long enough.
    pub(crate) fn take_held(&mut self, backend: &mut Backend, shared: &Arc<Shared>) {
        if self.held.is_empty() {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        held.retain(|held| match held.take_due() {
            Due::Now(operations) => {
                operations
                    .into_iter()
                    .for_each(|operation| self.submit(operation, backend, shared));
                false
            }
            Due::Later => true,
        });
        self.held = held;
        self.clear_interrupted(backend, shared);
    }

    /// Returns when the first held operation is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.deadline()).min()
    }

    /// Removes and returns the next bio for the queue. If too many are in it, devices that have few
    /// there may go on.
    pub(crate) fn next_bio(&mut self, room: Room) -> Option<Bio> {
        let room = if self.on_their_way < DIRECT_FLIGHT { room } else { Room::ForFew };
        let bio = self.pending.pop(room)?;
        self.on_their_way += 1;
        Some(bio)
    }

    /// Returns whether no bio waits for the queue and no operation is held.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.held.is_empty()
    }

    /// Notes that a batch was dispatched; later operations are in the next one.
    pub(crate) fn end_pass(&mut self) {
        self.pass += 1;
    }

    /// Returns whether a target is a direct file.
    pub(crate) fn owns(&self, target: Target) -> bool {
        self.files.get(target.0 as usize).is_some_and(Option::is_some)
    }

    /// Ends a bio of a direct file.
    pub(crate) fn end(&mut self, ended: &Ended, backend: &mut Backend, shared: &Arc<Shared>) {
        assert!(self.on_their_way > 0, "a bio ends once");
        self.on_their_way -= 1;
        self.pending.ended(ended.bio.target);
        let index = usize::try_from(ended.bio.owner)
            .expect("the owner of a direct bio is an index of the table");
        let end_bio = |active: &mut Active, _: &mut Turns| active.end_bio(&ended.bio, ended.result);
        if self.change_active(index, end_bio) == Some(true) {
            self.advance(index, backend, shared);
        }
        self.clear_interrupted(backend, shared);
    }

    /// Wakes callers whose operations have ended.
    pub(crate) fn wake(&mut self) {
        user_code::wake_all(self.wakers.drain(..));
    }

    fn attach(&mut self, inode: Arc<DirectInode>, backend: &mut Backend) {
        let number = inode.target.0 as usize;
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        assert!(self.files[number].is_none(), "ends of bios would end operations of another file");
        backend.attach(inode.target, Arc::clone(&inode.file));
        self.pending.enter(inode.target, inode.identity.device);
        let (lane, is_new) = (Lane::new(inode.length()), inode.created);
        let (poisoned, flushing) = (None, Flushing::default());
        let (is_leaving, is_lined_up, is_interrupted) = (false, false, false);
        self.files[number] = Some(File {
            inode,
            lane,
            poisoned,
            flushing,
            is_new,
            is_leaving,
            is_lined_up,
            is_interrupted,
        });
    }

    pub(super) fn file(&mut self, target: Target) -> &mut File {
        self.files[target.0 as usize].as_mut().expect("a file with operations is attached")
    }

    /// Takes an operation.
    fn submit(&mut self, mut operation: Operation, backend: &mut Backend, shared: &Arc<Shared>) {
        let (target, pass) = (operation.inode.target, self.pass);
        if operation.verb.closes() {
            // Other threads may have submitted operations before, which their plugs still hold.
            for held in std::mem::take(&mut self.held) {
                held.take().into_iter().for_each(|held| self.submit(held, backend, shared));
            }
            let mut ready = Vec::new();
            let waits = self.change_lane(target, |lane| lane.wait_for_all(operation, &mut ready));
            if waits.is_none() {
                return self.release(target, backend, shared);
            }
            ready.into_iter().for_each(|closer| self.start_closer(closer, backend, shared));
            return;
        }
        let has_room = self.has_room();
        let started = self.change_lane(target, |lane| {
            if operation.verb.changes() {
                debug_assert!(operation.epoch.is_none(), "a sync would wait for it for ever");
                operation.epoch = Some(lane.open());
            }
            let step = step_of(&operation);
            if has_room {
                return lane.admit(step, operation, pass);
            }
            lane.wait(step, operation);
            None
        });
        match started {
            Some(Some(operation)) => self.start(operation, backend, shared),
            Some(None) if !has_room => self.line_up(target),
            Some(None) => {}
            None => self.release(target, backend, shared),
        }
    }

    /// Starts a sync, once everything before it has ended.
    fn start_closer(&mut self, operation: Operation, backend: &mut Backend, shared: &Arc<Shared>) {
        let file = self.file(operation.inode.target);
        if file.inode.is_interrupted() {
            return;
        }
        match (operation.verb, file.poisoned) {
            (Verb::Settle, _) => self.report(operation, Ok(0), backend, shared),
            (_, Some(errno)) => {
                let poisoned = Err(Error::poisoned(&operation.inode.path, errno));
                self.report(operation, poisoned, backend, shared);
            }
            (_, None) if file.flushing.is_on_its_way => file.flushing.waiting.push(operation),
            (_, None) => {
                file.flushing.is_on_its_way = true;
                self.start(operation, backend, shared);
            }
        }
    }

    /// Ends a flush, and the syncs that joined it. The next flush serves all that waited.
    fn end_flush(&mut self, active: &Active, backend: &mut Backend, shared: &Arc<Shared>) {
        let file = self.file(active.operation().inode.target);
        if active.failed() {
            file.poisoned = file.poisoned.or(active.flush_failure());
        } else {
            file.is_new = false;
        }
        debug_assert!(file.flushing.is_on_its_way, "syncs would get the result of another flush");
        let Flushing { joined, mut waiting, .. } = std::mem::take(&mut file.flushing);
        if file.poisoned.is_none() && !waiting.is_empty() {
            // A flush of the metadata serves the other syncs, too.
            let first =
                waiting.iter().position(|operation| operation.verb == Verb::FlushAll).unwrap_or(0);
            let first = waiting.swap_remove(first);
            file.flushing.joined = std::mem::take(&mut waiting);
            self.start_closer(first, backend, shared);
        }
        waiting.into_iter().for_each(|operation| self.start_closer(operation, backend, shared));
        joined
            .into_iter()
            .for_each(|operation| self.report(operation, active.result(), backend, shared));
    }

    fn start(&mut self, operation: Operation, backend: &mut Backend, shared: &Arc<Shared>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        let target = operation.inode.target;
        debug_assert!(self.active[index].is_none(), "its bios would end another operation");
        self.active[index] = self.new_active(operation, index);
        if self.active[index].is_none() {
            self.free.push(index);
            return;
        }
        let holds = self.change_active(index, |active, pending| {
            active.start(backend, pending, &shared.counters);
            active.holds()
        });
        if let Some(Some(blocks)) = holds {
            self.change_lane(target, |lane| lane.hold(index as u64, blocks));
        }
    }

    /// Starts the next stage of an operation, or ends it, once all bios of a stage have ended.
    fn advance(&mut self, index: usize, backend: &mut Backend, shared: &Arc<Shared>) {
        let active = self.active[index].as_ref().expect("the caller has found it");
        let target = active.operation().inode.target;
        let is_new = self.file(target).is_new;
        let next =
            self.change_active(index, |active, pending| active.advance(backend, pending, is_new));
        // In the queue, its write is behind its reads. The next operation is behind both.
        let released = self.change_lane(target, |lane| lane.release(index as u64));
        match next.filter(|_| released.is_some()) {
            Some(Next::Moving) => self.start_waiting(target, backend, shared),
            Some(Next::Over) => self.finish(index, backend, shared),
            None => {}
        }
    }

    fn finish(&mut self, index: usize, backend: &mut Backend, shared: &Arc<Shared>) {
        let active = self.active[index].take().expect("the caller has found it");
        debug_assert!(!self.free.contains(&index), "an operation ends once");
        self.free.push(index);
        let target = active.operation().inode.target;
        let failed = active.failed();
        match active.operation().verb {
            Verb::Write(span) => {
                let length = || active.operation().inode.file.length();
                let end = if failed { length().unwrap_or(0) } else { span.end() };
                let size = self.change_lane(target, |lane| {
                    lane.set_size(lane.size().max(end));
                    if active.extends() {
                        lane.end_extension();
                    }
                    lane.size()
                });
                if let Some(size) = size {
                    active.operation().inode.set_length(size);
                }
            }
            Verb::SetLength(length) if !failed => {
                self.change_lane(target, |lane| lane.set_size(length));
                active.operation().inode.set_length(length);
            }
            Verb::FlushData | Verb::FlushAll => self.end_flush(&active, backend, shared),
            _ => {}
        }
        if let Some((operation, result)) = self.end_active(active, backend) {
            self.report(operation, result, backend, shared);
        }
    }

    /// Ends an operation, and starts operations that waited for that.
    fn report(
        &mut self,
        operation: Operation,
        result: Result<usize>,
        backend: &mut Backend,
        shared: &Arc<Shared>,
    ) {
        let (target, epoch) = (operation.inode.target, operation.epoch);
        if operation.inode.is_interrupted() {
            return;
        }
        // Ended before a sync that covers it: the sync has to report its error.
        operation.end(result, &mut self.wakers);
        let mut ready = Vec::new();
        if let Some(epoch) = epoch {
            self.change_lane(target, |lane| lane.close(epoch, &mut ready));
        }
        ready.into_iter().for_each(|closer| self.start_closer(closer, backend, shared));
        self.start_waiting(target, backend, shared);
        self.release(target, backend, shared);
    }

    /// Returns the number of operations that have started and not ended.
    pub(crate) fn started(&self) -> usize {
        debug_assert!(self.free.len() <= self.active.len());
        self.active.len() - self.free.len()
    }

    /// Returns whether another operation may start. Flushes do not ask: each file has at most one,
    /// and it ends without other operations.
    fn has_room(&self) -> bool {
        self.started() < DIRECT_OPERATIONS
    }

    /// Starts waiting operations after one has ended: of this file, or of files that waited for
    /// room before it.
    fn start_waiting(&mut self, target: Target, backend: &mut Backend, shared: &Arc<Shared>) {
        self.line_up(target);
        self.start_lined_up(backend, shared);
    }

    pub(super) fn start_lined_up(&mut self, backend: &mut Backend, shared: &Arc<Shared>) {
        let pass = self.pass;
        while self.has_room()
            && let Some(target) = self.lined_up.pop_front()
        {
            let Some(file) = self.files[target.0 as usize].as_mut() else { continue };
            file.is_lined_up = false;
            if let Some(Some(operation)) = self.change_lane(target, |lane| lane.next(pass)) {
                self.start(operation, backend, shared);
                self.line_up(target);
            }
        }
    }

    fn line_up(&mut self, target: Target) {
        let Some(file) = self.files[target.0 as usize].as_mut() else { return };
        if !std::mem::replace(&mut file.is_lined_up, true) {
            self.lined_up.push_back(target);
        }
    }

    /// Detaches a file without handles and operations, and has it closed.
    pub(super) fn release(&mut self, target: Target, backend: &mut Backend, shared: &Arc<Shared>) {
        let Some(file) = self.files.get(target.0 as usize).and_then(Option::as_ref) else { return };
        if !file.is_leaving || file.inode.has_operations() {
            return;
        }
        let mut table = shared.table();
        // A handle may have submitted an operation between the first check and its drop, which
        // takes this lock.
        if file.inode.has_operations() || !table.begin_closing(&file.inode) {
            return;
        }
        let is_idle = !self.pending.are_on_their_way(target);
        assert!(is_idle, "the device would use memory of a closed file");
        let File { inode, is_new, .. } =
            self.files[target.0 as usize].take().expect("the file was found above");
        if is_new {
            table.unsynced.remember(inode.identity);
        }
        drop(table);
        drop(backend.detach(target));
        // The aside closes it, because a file system may block. Opens of the same file wait
        // meanwhile.
        let (shared, aside) = (Arc::clone(shared), Arc::clone(&inode.aside));
        aside.run(move || {
            inode.unlock();
            inode.close(&shared);
        });
    }
}

/// Ends held operations. The lists belong to their threads, and would keep the operations as long
/// as the plugs live.
impl Drop for Flow {
    fn drop(&mut self) {
        self.held.iter().for_each(|held| drop(held.take()));
    }
}

fn step_of(operation: &Operation) -> Step {
    match operation.verb {
        Verb::Read(span) => Step { blocks: span.blocks(), manner: Manner::Reads },
        Verb::Write(span) => Step { blocks: span.blocks(), manner: Manner::Writes(span) },
        _ => Step { blocks: 0..u64::MAX, manner: Manner::Sets },
    }
}

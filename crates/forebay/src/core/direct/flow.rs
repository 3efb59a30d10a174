//! The context's part in direct operations: who may start, when, and what follows an end.
//!
//! ```text
//! message --> lane --may start--> [edges read --changed-->] moved ------------> ended: memory back, ticket told
//!                                 held: nobody between      bios in the queue
//! ```
//!
//! Everything here belongs to the context's thread. Bios wait in a list of their own for room in
//! the queue, and may take half of the tags: writeback and syncs of cached files go on beside any
//! number of direct operations. What an operation does once it has started is in
//! [`active`](crate::core::direct::active).

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use forebay_block::{Bio, Ended, Errno, Target};

use crate::core::direct::active::{Active, Next};
use crate::core::direct::held::{Due, Held};
use crate::core::direct::inode::DirectInode;
use crate::core::direct::lane::{Lane, Manner, Step};
use crate::core::direct::message::Message;
use crate::core::direct::operation::{Operation, Verb};
use crate::core::direct::turns::Turns;
use crate::core::error::{Error, Result};
use crate::core::limits::{DIRECT_FLIGHT, DIRECT_OPERATIONS};
use crate::core::shared::Shared;
use crate::core::user_code;
use crate::platform::Backend;

/// The direct files of a context.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// By target's number.
    files: Vec<Option<File>>,
    /// By owner's number.
    active: Vec<Option<Active>>,
    free: Vec<usize>,
    /// Files with something that may be able to start once there is room, whose turn it is first.
    lined_up: VecDeque<Target>,
    pending: Turns,
    /// Bios in the queue or at the device.
    on_their_way: usize,
    held: Vec<Arc<Held>>,
    pass: u64,
    wakers: Vec<Waker>,
}

/// Flushes of one file: one at a time, for the kernel tells an error of its own writing back once
/// per open file. Of two at once one would hear of it, and the other say that all is well.
#[derive(Debug, Default)]
struct Flushing {
    is_on_its_way: bool,
    /// Told what the one on its way is told: all before them had ended when it started.
    joined: Vec<Operation>,
    /// Came since; the next flush is for all of them.
    waiting: Vec<Operation>,
}

#[derive(Debug)]
struct File {
    inode: Arc<DirectInode>,
    lane: Lane<Operation>,
    /// A flush failed.
    poisoned: Option<Errno>,
    flushing: Flushing,
    /// The directory is to be made durable with the next sync.
    is_new: bool,
    /// A handle has gone; it may have been the last.
    is_leaving: bool,
    is_lined_up: bool,
}

impl Flow {
    /// Takes a message.
    pub(crate) fn take(&mut self, message: Message, backend: &mut Backend, shared: &Arc<Shared>) {
        match message {
            Message::Attach(inode) => self.attach(inode, backend),
            Message::Renew(inode) if self.owns(inode.target) => backend.renew(inode.target),
            // A handle of the file was open when this was sent, so it is gone with its context.
            Message::Renew(_) => {}
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
                self.let_go(inode.target, backend, shared);
            }
            Message::Lost(handle) => handle.leave(),
        }
    }

    /// Ends a message that there is no context for any more: who waits hears of it, and errors are
    /// told.
    pub(crate) fn refuse(message: Message) {
        match message {
            // The thread that filled it keeps the list.
            Message::Plugged(held) => drop(held.take()),
            Message::Leave(_, handle) | Message::Lost(handle) => handle.leave(),
            Message::Operation(operation) => drop(operation),
            Message::Attach(_) | Message::Renew(_) => {}
        }
    }

    /// Starts what threads have held for long enough.
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
    }

    /// When the first of what threads hold is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.deadline()).min()
    }

    /// The next bio for the queue, while there are few enough in it.
    pub(crate) fn next_bio(&mut self) -> Option<Bio> {
        let bio =
            if self.on_their_way < DIRECT_FLIGHT { self.pending.pop()? } else { return None };
        self.on_their_way += 1;
        Some(bio)
    }

    /// Whether nothing is on its way to the queue.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.held.is_empty()
    }

    /// A batch is handed over: what comes from now on is in the next.
    pub(crate) fn end_pass(&mut self) {
        self.pass += 1;
    }

    /// Whether a bio is of a direct file.
    pub(crate) fn owns(&self, target: Target) -> bool {
        self.files.get(target.0 as usize).is_some_and(Option::is_some)
    }

    /// A bio of a direct file has ended.
    pub(crate) fn end(&mut self, ended: &Ended, backend: &mut Backend, shared: &Arc<Shared>) {
        debug_assert!(self.on_their_way > 0, "a bio ends once");
        self.on_their_way -= 1;
        let index = usize::try_from(ended.bio.owner).expect("a place in the table");
        let active = self.active[index].as_mut().expect("a bio's operation is active");
        if active.end_bio(&ended.bio, ended.result) {
            self.advance(index, backend, shared);
        }
    }

    /// Wakes those whose operations have ended.
    pub(crate) fn wake(&mut self) {
        user_code::wake_all(self.wakers.drain(..));
    }

    fn attach(&mut self, inode: Arc<DirectInode>, backend: &mut Backend) {
        let number = inode.target.0 as usize;
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        backend.attach(inode.target, Arc::clone(&inode.file));
        let (lane, is_new) = (Lane::new(inode.length()), inode.created);
        let (poisoned, flushing) = (None, Flushing::default());
        let (is_leaving, is_lined_up) = (false, false);
        self.files[number] =
            Some(File { inode, lane, poisoned, flushing, is_new, is_leaving, is_lined_up });
    }

    fn file(&mut self, target: Target) -> &mut File {
        self.files[target.0 as usize].as_mut().expect("a file with operations is attached")
    }

    /// An operation has come.
    fn submit(&mut self, mut operation: Operation, backend: &mut Backend, shared: &Arc<Shared>) {
        let (target, pass) = (operation.inode.target, self.pass);
        if operation.verb.closes() {
            // What other threads hold in their plugs was submitted before, as they see it.
            for held in std::mem::take(&mut self.held) {
                held.take().into_iter().for_each(|held| self.submit(held, backend, shared));
            }
            let file = self.file(target);
            let mut ready = Vec::new();
            file.lane.wait_for_all(operation, &mut ready);
            ready.into_iter().for_each(|closer| self.start_closer(closer, backend, shared));
            return;
        }
        let has_room = self.has_room();
        let file = self.file(target);
        if operation.verb.changes() {
            operation.epoch = Some(file.lane.open());
        }
        if !has_room {
            file.lane.wait(step_of(&operation), operation);
            self.line_up(target);
        } else if let Some(operation) = file.lane.admit(step_of(&operation), operation, pass) {
            self.start(operation, backend, shared);
        }
    }

    /// Everything before a sync has ended.
    fn start_closer(&mut self, operation: Operation, backend: &mut Backend, shared: &Arc<Shared>) {
        let file = self.file(operation.inode.target);
        match (operation.verb, file.poisoned) {
            (Verb::Settle, _) => self.tell(operation, Ok(0), backend, shared),
            (_, Some(errno)) => {
                let poisoned = Err(Error::poisoned(&operation.inode.path, errno));
                self.tell(operation, poisoned, backend, shared);
            }
            (_, None) if file.flushing.is_on_its_way => file.flushing.waiting.push(operation),
            (_, None) => {
                file.flushing.is_on_its_way = true;
                self.start(operation, backend, shared);
            }
        }
    }

    /// A flush has ended: those that joined it have too, and the next one is for all that waited.
    fn end_flush(&mut self, active: &Active, backend: &mut Backend, shared: &Arc<Shared>) {
        let file = self.file(active.operation().inode.target);
        if active.failed() {
            file.poisoned = file.poisoned.or(active.flush_failure());
        } else {
            file.is_new = false;
        }
        let Flushing { joined, mut waiting, .. } = std::mem::take(&mut file.flushing);
        if file.poisoned.is_none() && !waiting.is_empty() {
            // One that covers the metadata covers the rest.
            let first =
                waiting.iter().position(|operation| operation.verb == Verb::FlushAll).unwrap_or(0);
            let first = waiting.swap_remove(first);
            file.flushing.joined = std::mem::take(&mut waiting);
            self.start_closer(first, backend, shared);
        }
        waiting.into_iter().for_each(|operation| self.start_closer(operation, backend, shared));
        joined
            .into_iter()
            .for_each(|operation| self.tell(operation, active.result(), backend, shared));
    }

    fn start(&mut self, operation: Operation, backend: &mut Backend, shared: &Arc<Shared>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        let target = operation.inode.target;
        let size = self.file(target).lane.size();
        let mut active = Active::new(operation, index as u64, size);
        active.start(backend, &mut self.pending, &shared.counters);
        if let Some(blocks) = active.holds() {
            self.file(target).lane.hold(index as u64, blocks);
        }
        self.active[index] = Some(active);
    }

    /// All bios of a stage have ended.
    fn advance(&mut self, index: usize, backend: &mut Backend, shared: &Arc<Shared>) {
        let active = self.active[index].as_mut().expect("looked at by the caller");
        let target = active.operation().inode.target;
        let file =
            self.files[target.0 as usize].as_mut().expect("a file with operations is attached");
        let next = active.advance(backend, &mut self.pending, file.is_new);
        // Its write is behind its reads in the queue, and who comes next behind both.
        file.lane.release(index as u64);
        match next {
            Next::Moving => self.start_waiting(target, backend, shared),
            Next::Over => self.finish(index, backend, shared),
        }
    }

    fn finish(&mut self, index: usize, backend: &mut Backend, shared: &Arc<Shared>) {
        let active = self.active[index].take().expect("looked at by the caller");
        debug_assert!(!self.free.contains(&index), "an operation ends once");
        self.free.push(index);
        let file = self.file(active.operation().inode.target);
        let failed = active.failed();
        match active.operation().verb {
            Verb::Write(span) => {
                let end = if failed { file.inode.file.length().unwrap_or(0) } else { span.end() };
                file.lane.set_size(file.lane.size().max(end));
                if active.extends() {
                    file.lane.end_extension();
                }
            }
            Verb::SetLength(length) if !failed => file.lane.set_size(length),
            Verb::FlushData | Verb::FlushAll => self.end_flush(&active, backend, shared),
            _ => {}
        }
        let file = self.file(active.operation().inode.target);
        file.inode.set_length(file.lane.size());
        let (operation, result) = active.end(backend);
        self.tell(operation, result, backend, shared);
    }

    /// Ends an operation, and starts what waited for that.
    fn tell(
        &mut self,
        operation: Operation,
        result: Result<usize>,
        backend: &mut Backend,
        shared: &Arc<Shared>,
    ) {
        let (target, epoch) = (operation.inode.target, operation.epoch);
        // Told before who waits for it is: a sync that covers it has its error to tell.
        operation.end(result, &mut self.wakers);
        let mut ready = Vec::new();
        if let Some(epoch) = epoch {
            self.file(target).lane.close(epoch, &mut ready);
        }
        ready.into_iter().for_each(|closer| self.start_closer(closer, backend, shared));
        self.start_waiting(target, backend, shared);
        self.let_go(target, backend, shared);
    }

    /// Operations that have started and not ended.
    pub(crate) fn started(&self) -> usize {
        debug_assert!(self.free.len() <= self.active.len());
        self.active.len() - self.free.len()
    }

    /// Whether another may start. Flushes do not ask: there is one of a file, and it is over
    /// without others.
    fn has_room(&self) -> bool {
        self.started() < DIRECT_OPERATIONS
    }

    /// Something has ended: what waits may start, of this file or, where there was no room, of
    /// those before it.
    fn start_waiting(&mut self, target: Target, backend: &mut Backend, shared: &Arc<Shared>) {
        self.line_up(target);
        let pass = self.pass;
        while self.has_room()
            && let Some(target) = self.lined_up.pop_front()
        {
            let Some(file) = self.files[target.0 as usize].as_mut() else { continue };
            file.is_lined_up = false;
            if let Some(operation) = file.lane.next(pass) {
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

    /// Lets go of a file without handles and operations.
    fn let_go(&mut self, target: Target, backend: &mut Backend, shared: &Arc<Shared>) {
        let Some(file) = self.files.get(target.0 as usize).and_then(Option::as_ref) else { return };
        if !file.is_leaving || file.inode.has_operations() {
            return;
        }
        let mut table = shared.table();
        // What a handle asked for before it went, under this lock, was perhaps not there yet at the
        // first look.
        if file.inode.has_operations() || !table.begin_closing_direct(&file.inode) {
            return;
        }
        let File { inode, is_new, .. } =
            self.files[target.0 as usize].take().expect("just looked at");
        if is_new {
            table.unsynced.remember(inode.identity);
        }
        drop(table);
        drop(backend.detach(target));
        // A file system may block there; meanwhile who opens the same file waits.
        let (shared, aside) = (Arc::clone(shared), Arc::clone(&inode.aside));
        aside.run(move || inode.finish_closing(&shared));
    }
}

/// Ends what threads hold: the lists are theirs, and would keep it for as long as the plugs live.
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

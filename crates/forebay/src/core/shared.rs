//! The upper part of the state that all threads of an engine share: the table of open inodes, and
//! the messages to the contexts.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

use forebay_block::Target;
use forebay_lists::Until;

use crate::core::answer::Keeps;
use crate::core::base::Base;
pub(crate) use crate::core::base::{OnError, Parts};
use crate::core::context::load::Load;
use crate::core::context::senders::{Message, Senders};
use crate::core::direct::direct_inode::{ErrorSink, Handle};
use crate::core::error::{Error, Result};
use crate::core::inode::change::Changing;
use crate::core::inode::change::{After, Effect};
use crate::core::inode::state::State;
use crate::core::inode::{Inode, Locked};
use crate::core::limits::{CALL_THREADS, FLUSH_THREADS};
use crate::core::logged::IntentLog;
use crate::core::options::OfContext;
use crate::core::recovery::HeldOff;
use crate::core::sync::lead::CallerQueues;
use crate::core::table::{AnyInode, Table};
use crate::core::threads::Workers;
use crate::core::user_code;
use crate::platform::Identity;
use crate::platform::sync::{Condvar, Mutex, MutexGuard};
use crate::platform::thread;

/// State that handles, contexts and the lease watch of an engine share.
pub(crate) struct Shared {
    base: Base,
    pub(crate) table: Mutex<Table>,
    /// Notified when an open or the close of a file ends, and when the engine stops.
    opening_ended: Condvar,
    pub(crate) contexts: Senders,
    /// Finds the number of contexts.
    pub(crate) load: Load,
    /// Held while files are spread anew, before the settings.
    pub(crate) spreading: Mutex<()>,
    /// Starts contexts.
    starter: Box<dyn Start>,
    /// Makes blocking calls of the program for their asynchronous forms.
    pub(crate) offload: Arc<Workers>,
    /// Flushes the files of batches.
    pub(crate) flushes: Arc<Workers>,
    /// Whether a caller evicts pages ahead of need.
    pub(crate) evicting: AtomicBool,
    /// For callers that make their requests themselves.
    pub(crate) caller_queues: CallerQueues,
    /// The intent log of small syncs.
    pub(crate) log: Option<Arc<IntentLog>>,
}

/// Starts contexts. They hold a [`Shared`], which knows them only by this trait.
pub(crate) trait Start: Send + Sync {
    /// Starts the next context and enters it. Returns the system calls that it uses, in one line.
    ///
    /// # Errors
    /// If it could not be started, with the reason; `Shutdown` once no more may start.
    fn start(&self, shared: &Arc<Shared>, knobs: OfContext) -> Result<String>;

    /// Lets no more contexts start.
    fn stop(&self);
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Deref for Shared {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Shared {
    pub(crate) fn new(parts: Parts, starter: Box<dyn Start>, log: Option<Arc<IntentLog>>) -> Self {
        Self {
            log,
            base: Base::new(parts),
            table: Mutex::new(Table::default()),
            opening_ended: Condvar::new(),
            contexts: Senders::new(),
            load: Load::new(),
            spreading: Mutex::default(),
            starter,
            offload: Arc::new(Workers::for_calls(CALL_THREADS)),
            flushes: Arc::new(Workers::for_calls(FLUSH_THREADS)),
            evicting: AtomicBool::new(false),
            caller_queues: CallerQueues::default(),
        }
    }

    /// Sends a message to the context, or contexts, that it concerns.
    pub(crate) fn send(&self, message: Message) {
        self.contexts.send(message);
    }

    /// Registers a caller to wake when a page of the file, or its size, has changed, and unlocks
    /// the file. If writes of it are completed and held, its context looks at them.
    pub(crate) fn wait_for_pages(&self, inode: &Arc<Inode>, mut state: Locked<'_>, waker: Waker) {
        state.service.wait_for_pages(waker);
        let is_held = state.service.is_held();
        drop(state);
        if is_held {
            self.send(Message::Inode(Arc::clone(inode)));
        }
    }

    /// Changes a file under its lock, and carries out the effects once it is unlocked.
    #[inline]
    pub(crate) fn change<T>(
        &self,
        inode: &Arc<Inode>,
        change: impl FnOnce(&mut Changing<'_>) -> T,
    ) -> T {
        self.finishing(|after| inode.change(self, after, change))
    }

    /// Runs several changes, and then carries out all effects. No lock may be held.
    #[inline]
    pub(crate) fn finishing<T>(&self, changes: impl FnOnce(&mut After) -> T) -> T {
        let was_panicking = thread::panicking();
        let mut finishing = Finishing { shared: self, after: After::default(), was_panicking };
        changes(&mut finishing.after)
    }

    /// Carries out effects of changes. No lock may be held.
    #[inline]
    pub(crate) fn finish(&self, after: &mut After) {
        if !after.is_empty() || self.level.has_waiters() {
            self.carry_out(after);
        }
    }

    #[inline(never)]
    fn carry_out(&self, after: &mut After) {
        after.settle(self);
        let effects = after.effects();
        for effect in effects.of_contexts() {
            match effect {
                Effect::LookSoon(inode) => {
                    let message = Message::Soon(Arc::clone(&inode));
                    self.contexts.send_quietly(&inode, message, Until::Tick);
                }
                effect => self.send(effect.into()),
            }
        }
        user_code::wake_all(effects.wakers.drain(..));
        debug_assert!(effects.wakers.is_empty(), "a waiting task is forgotten");
    }

    /// Starts another context; see [`Start::start`].
    pub(crate) fn start_context(self: &Arc<Self>, knobs: OfContext) -> Result<String> {
        self.starter.start(self, knobs)
    }

    /// Stops all contexts once they have nothing in flight. No more can be started.
    pub(crate) fn stop_contexts(&self) {
        self.starter.stop();
        self.send(Message::Stop);
    }

    /// Stops serving calls, and refuses writers that wait for room. Returns true for the first
    /// caller. No lock may be held.
    pub(crate) fn stop(&self) -> bool {
        let is_first = self.refuse_calls();
        // An open that checked before, under the lock, is waiting by now.
        drop(self.table());
        self.wake_opening();
        self.level.close();
        is_first
    }

    /// Ends every wait for a context: the last one has ended, on request or because of a bug.
    pub(crate) fn orphan(&self) {
        self.stop();
        self.mark_orphaned();
        // Without the lock of the table: a waker is the caller's code, and may call the engine.
        let inodes = self.table().all();
        inodes.iter().for_each(|inode| inode.wake_closing());
        inodes.into_iter().filter_map(AnyInode::cached).for_each(|inode| inode.orphan());
        self.pool.wake_all();
    }

    /// Releases every lease. No context is left that would release one on request, or write under
    /// it.
    pub(crate) fn release_leases(&self) {
        let inodes = self.table().inodes();
        inodes.iter().for_each(|inode| inode.file.release_lease());
    }

    /// Leaves unwritten data to the keeper, if one runs. Locks and leases stay with the open files,
    /// which the keeper has, too. So no other program gets the files before it is done, and no
    /// context closes a file.
    pub(crate) fn leave_files(&self) {
        if !self.keeper.as_ref().is_some_and(|keeper| keeper.is_there()) {
            return;
        }
        self.mark_left();
        let inodes = self.table().inodes();
        inodes.iter().for_each(|inode| inode.file.leave());
    }

    /// Holds off a keeper while a caller makes writes itself. `None` if one has taken over.
    pub(crate) fn hold_off_keeper(&self) -> Option<HeldOff> {
        HeldOff::new(self.keeper.as_deref())
    }

    /// Gives up unwritten data in this process. The keeper, if one runs, writes it now.
    pub(crate) fn leave_to_keeper(&self) {
        self.leave_files();
        if let Some(log) = &self.log {
            log.end(Some(crate::platform::clock::instant()));
        }
        self.caller_queues.close();
        if let Some(keeper) = &self.keeper {
            keeper.leave_it();
        }
    }

    /// Divides the level among the file systems that are being written.
    pub(crate) fn share_out(&self) {
        let volumes = self.table().volumes();
        if let Some(volumes) = volumes {
            let written: Vec<_> = volumes
                .iter()
                .map(|volume| &**volume)
                .filter(|volume| volume.share.is_written())
                .collect();
            self.level.share_out(&written);
        }
    }

    /// Returns whether a file may be changed in place now. With live records that is limited to the
    /// time that the intent log has promised: a recovery takes later changes for those of others.
    #[inline]
    pub(crate) fn may_change(&self, state: &State) -> bool {
        !state.logging.is_live()
            || self.log.as_ref().is_none_or(|log| log.may_change(&state.logging))
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Waits until an open has ended, or the engine stops.
    pub(crate) fn wait_for_opening<'a>(
        &self,
        mut table: MutexGuard<'a, Table>,
    ) -> MutexGuard<'a, Table> {
        // A wake is a system call even if nobody waits.
        table.waiting += 1;
        let mut table = self.opening_ended.wait(table);
        assert!(table.waiting > 0, "an open would not be woken");
        table.waiting -= 1;
        table
    }

    /// Wakes opens that wait for another one.
    pub(crate) fn wake_opening(&self) {
        if self.table().waiting > 0 {
            self.opening_ended.notify_all();
        }
    }

    /// Returns the table once a file is not being closed, so that an open finds it either closed or
    /// open. Waits as long as the closing takes, or until the engine stops; no context calls this.
    pub(crate) fn table_unless_closing(&self, identity: Identity) -> MutexGuard<'_, Table> {
        let mut table = self.table();
        while table.is_closing(identity) && self.check().is_ok() {
            table = self.wait_for_opening(table);
        }
        table
    }

    /// Notes that a file is closed, and wakes the callers that wait to open it.
    pub(crate) fn end_closing(&self, identity: Identity, target: Target) {
        self.table().end_closing(identity, target);
        self.wake_opening();
    }
}

/// Effects of changes, carried out when this is dropped.
struct Finishing<'a> {
    shared: &'a Shared,
    after: After,
    was_panicking: bool,
}

impl Drop for Finishing<'_> {
    #[inline]
    fn drop(&mut self) {
        // Changes that ended before a panic count. They may belong to other files.
        if !self.after.is_empty() && thread::panicking() && !self.was_panicking {
            self.after.forget_frames();
        }
        self.shared.finish(&mut self.after);
    }
}

impl Keeps for Arc<Shared> {
    fn keep(&self, error: Error) {
        self.report(&error);
    }
}

impl ErrorSink for Shared {
    fn ask(&self, handle: &Arc<Handle>) {
        self.send(Message::Lost(Arc::clone(handle)));
        // Otherwise a context was left after the message was sent. It takes the message, at its end
        // at the latest.
        if self.is_orphaned() {
            handle.leave();
        }
    }

    fn report(&self, error: &Error) {
        self.base.report(error);
    }
}

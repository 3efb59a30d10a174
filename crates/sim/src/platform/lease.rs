//! The watch for broken leases, with the methods of `forebay_uring::LeaseWatch`: a task that calls
//! back when another program opens a leased file.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::world::machine::{self, Turn, call};
use crate::world::{self, Reason};

type OnBreak = Box<dyn Fn(u64) + Send>;

/// Watch for broken leases of the files of one engine, on a task of its own.
pub struct LeaseWatch {
    number: u64,
    /// The callback, until the first lease starts the task.
    on_break: Mutex<Option<OnBreak>>,
}

impl LeaseWatch {
    /// Makes a watch that calls `on_break` with the key of each lease that another program breaks.
    ///
    /// # Errors
    /// If the process was killed.
    pub fn new(on_break: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let number = call(|machine| Ok(machine.add_watch(world::process())))?;
        Ok(Self { number, on_break: Mutex::new(Some(Box::new(on_break))) })
    }

    /// Releases all leases and ends the task. Later leases are refused.
    pub fn shutdown(&self) {
        world::preempt();
        if !world::has_world() || world::is_dead() {
            return;
        }
        if !machine::with(|machine| machine.stop_watch(self.number)) {
            return;
        }
        let on = Reason { what: machine::WATCH_END, number: self.number };
        while machine::with(|machine| machine.is_watching(self.number)) && !world::is_dead() {
            world::block(on, None);
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Starts the task for the first lease.
    pub(super) fn start(&self) -> io::Result<()> {
        if !call(|machine| machine.begin_watch(self.number))? {
            return Ok(());
        }
        let mut on_break = self.on_break.lock().unwrap_or_else(PoisonError::into_inner);
        let on_break = on_break.take().expect("a watch starts once");
        let number = self.number;
        world::spawn(world::process(), "lease watch", move || watch(number, &*on_break));
        Ok(())
    }
}

fn watch(number: u64, on_break: &dyn Fn(u64)) {
    machine::with(|machine| machine.note_watcher(number));
    loop {
        match machine::with(|machine| machine.next_turn(number)) {
            Turn::Report(keys) => keys.into_iter().for_each(on_break),
            Turn::Wait => {
                world::block(Reason { what: machine::WATCH, number }, None);
            }
            Turn::End => break,
        }
        if world::is_dead() {
            return;
        }
    }
    machine::with(|machine| machine.end_watch(number));
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeaseWatch").field("number", &self.number).finish_non_exhaustive()
    }
}

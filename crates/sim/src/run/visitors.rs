//! Other programs that open the files of the engine: they read, map and keep them open, and write
//! nothing.
//!
//! An open of a leased file waits until the engine has written out everything that it had accepted,
//! so the program finds all of it. From then on the file is shared.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::platform::thread;
use crate::random::Random;
use crate::run::stage::Stage;
use crate::stored::Keep;
use crate::world::others::{Patience, Visit};
use crate::world::{self, machine};

/// Longest time that another program waits for a lease: the engine gives it up within a second, and
/// the device needs its time.
const RELEASED_WITHIN: Duration = Duration::from_secs(20);

/// Time between two looks for programs that wait.
const LOOK: Duration = Duration::from_millis(10);

impl Stage {
    /// Waits until other programs have opened their files. The close of the last handle would
    /// release the lease. Called by a task of the engine's process.
    pub(super) fn wait_for_visitors(&self) {
        while self.waiting_visitors.get() > 0 {
            thread::sleep(LOOK);
        }
    }

    /// Another program visits a file.
    pub(super) fn send_visitor(self: &Rc<Self>, random: &mut Random) {
        let number = random.below(u64::from(self.plan.files)) as usize;
        let visit = Visit::draw(random);
        if machine::identity(self.plan.path(number)).is_none() {
            return;
        }
        let process = world::new_process("visitor");
        self.visitors.borrow_mut().push(process);
        let stage = Rc::clone(self);
        world::spawn(process, "visitor", move || stage.visit(number, &visit));
    }

    fn visit(&self, number: usize, visit: &Visit) {
        let path = self.plan.path(number);
        // Of a lease that is being given up already, later data is not promised. An open that does
        // not wait finds a file whose lease had ended before, perhaps one that was taken on trial.
        let was_leased =
            machine::is_leased_alone(&path) && visit.how.patience != Patience::NonBlocking;
        // Bytes of a shared file are written one by one, so each is judged alone.
        self.model.borrow_mut().files[number].ledger.share();
        let (asked, life) = (self.begin_sync(number), self.lives.get());
        world::trace(format_args!("visits file {number}: {visit:?}"));
        let begin = world::now();
        self.waiting_visitors.set(self.waiting_visitors.get() + 1);
        let is_waiting = Cell::new(true);
        let end_wait = || {
            let ended = usize::from(is_waiting.replace(false) && self.lives.get() == life);
            self.waiting_visitors.set(self.waiting_visitors.get() - ended);
        };
        let opened = visit.make(&path, |found| {
            end_wait();
            let waited = Duration::from_nanos(world::now().nanoseconds_since(begin));
            assert!(
                waited < RELEASED_WITHIN,
                "contract 6: the lease of file {number} is not released: another program waited \
                 {waited:?}"
            );
            let is_alive = !world::is_killed(self.engine.get());
            let is_same_life = is_alive && self.lives.get() == life;
            if is_same_life {
                // After a death nobody may open a file before the recovery.
                self.check_no_records(number);
            }
            // A lease is given up in time, even if the device does not take the data.
            if was_leased
                && self.plan.disturbance.hang.0 == 0
                && is_same_life
                && self.is_as_asked(number, &asked)
                && !machine::has_failed(&path)
            {
                let model = self.model.borrow();
                assert!(
                    found == model.files[number].ledger.bytes(),
                    "contract 6: another program finds other bytes in file {number}"
                );
                drop(model);
                self.hit("seen by others");
            }
        });
        end_wait();
        match opened {
            Ok(true) if was_leased => self.hit("lease broken"),
            Ok(true) => self.hit("visited"),
            Ok(false) => self.hit("visitor refused"),
            Err(error) => panic!("file {number} cannot be visited: {error}"),
        }
    }

    /// Another program has opened a file: a replay of the log would undo its changes.
    fn check_no_records(&self, number: usize) {
        if self.plan.log_blocks.is_none() {
            return;
        }
        let path = self.plan.path(number);
        let mut found = machine::survivors(Keep::Everything, &mut self.crashes.borrow_mut());
        assert_eq!(
            found.replay_into(super::logged::LOG, Some(&path)),
            0,
            "contract 24: another program has file {number} open while records of it count"
        );
    }

    /// Ends all other programs: the power is cut.
    pub(super) fn kill_visitors(&self) {
        let visitors = self.visitors.take();
        visitors.into_iter().for_each(machine::kill);
    }
}

//! The death of the engine's process, and a loss of power: the data that is left, and the next
//! process.
//!
//! ```text
//! kill --> requests in flight end, at random in part --> compare with the ledger
//!   with a keeper: its plan from the arena is carried out first, and everything accepted is there
//!   with the power: the machine starts with a survivor of each file
//! --> the model starts from the files as found --> the next process
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::core::recovery::inherited::{headers, known_of};
use crate::core::recovery::plan::{Plan as Recovery, plan};
use crate::core::shared::Shared;
use crate::platform::Arena;
use crate::random::{PerMille, Random};
use crate::run::keeper::finish_files;
use crate::run::recovery::saved;
use crate::run::stage::Stage;
use crate::stored::{Keep, SECTOR, Survivor};
use crate::world::{self, Reason, machine, memory};

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    /// Killed, and a keeper finishes the writing.
    Kept,
    /// Killed, and the next engine adopts the files from the keeper.
    Adopted,
    /// The whole machine stops.
    PowerCut,
}

/// The end of the keeper.
const KEEPER: Reason = Reason { what: "end of the keeper", number: 0 };

impl Stage {
    /// Ends the engine's process in the middle of its work.
    pub(super) fn die(self: &Rc<Self>, random: &mut Random) {
        let shared = self.shared.borrow_mut().take();
        // The process is starting, or ends by itself.
        let Some(shared) = shared else { return };
        let is_kept = self.plan.is_survived && !self.plan.are_devices;
        let end = match random.below(3) {
            0 => End::PowerCut,
            _ if self.plan.adopts && random.below(4) > 0 => End::Adopted,
            1 if is_kept && !self.plan.adopts => End::Kept,
            _ => End::Killed,
        };
        self.lives.set(self.lives.get() + 1);
        self.waiting_visitors.set(0);
        world::trace(format_args!("the process ends: {end:?}"));
        let snapshot = || shared.pool.arena().snapshot().expect("memory");
        let arena = matches!(end, End::Kept | End::Adopted).then(snapshot);
        drop(shared);
        let keeps = [Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some];
        let keep = (end == End::PowerCut).then(|| *random.pick(&keeps));
        machine::kill(self.engine.get());
        self.forget_calls();
        self.end_hang();
        if end != End::Adopted
            && let Some(keeper) = self.keeper.take()
        {
            // It ends with the power, or dies, too.
            keeper.end();
        }
        match keep {
            Some(keep) => {
                self.hit("power cut");
                self.kill_visitors();
                let found = machine::survivors(keep, &mut self.crashes.borrow_mut());
                machine::cut_power(found);
                self.recover(random);
                self.start_from(Self::found_after_power_cut);
            }
            None => {
                self.wait_for_requests();
                let mut is_kept = false;
                match (end, arena) {
                    (End::Kept, Some(arena)) => {
                        self.hit("kept");
                        is_kept = self.run_keeper(arena, random);
                    }
                    (End::Adopted, Some(arena)) => {
                        self.check_arena(&arena);
                        self.hand_over(arena, random);
                    }
                    _ => self.hit("killed"),
                }
                if is_kept {
                    self.check_kept();
                }
                let is_cut = self.recover(random);
                if is_kept && !is_cut {
                    // The recovery of the log has put nothing over it.
                    self.check_kept();
                }
                self.start_from(Self::found_after_death);
            }
        }
        // The engine of a dead process reports while it is unwound.
        self.heard.clear();
        self.owed_errors.set(0);
        self.start_process();
    }

    /// Waits until the requests of the dead process have ended, as a keeper does.
    fn wait_for_requests(&self) {
        while machine::in_flight() > 0 {
            world::sleep(Duration::from_millis(1));
        }
    }

    /// Makes the model start from the files as they are.
    fn start_from(&self, found: impl Fn(&Self, usize)) {
        for number in 0..self.plan.files as usize {
            found(self, number);
            let path = self.plan.path(number);
            let is_there = machine::identity(&path).is_some();
            let failed = if is_there { machine::failed_flushes(&path) } else { 0 };
            let is_adopted = self.is_adopted(number);
            let mut model = self.model.borrow_mut();
            let file = &mut model.files[number];
            let is_created = file.is_created;
            file.restart(is_there, failed);
            if is_adopted {
                // The next engine has a handle, and owes the flush of the directory if this one
                // did.
                (file.handles, file.is_created) = (1, is_created);
                file.opened();
            }
        }
    }

    /// The power was cut: the file is one of the survivors.
    fn found_after_power_cut(&self, number: usize) {
        let found = self.survivor_now(number);
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        let restored = file.saved.take().map(|saved| saved::restored(&found, &saved));
        if let Err(wrong) = file.ledger.check(restored.as_ref().unwrap_or(&found)) {
            panic!("contract 3: after a power cut, file {number}: {wrong}");
        }
        file.ledger = crate::ledger::Ledger::found(&found);
        if !self.plan.are_devices && self.plan.volume(number).is_shared() {
            file.ledger.share();
        }
    }

    /// The process died, the machine did not.
    fn found_after_death(&self, number: usize) {
        if let Some(bytes) = self.adopted_bytes(number) {
            self.note_failed_flushes(number);
            let ledger = &mut self.model.borrow_mut().files[number].ledger;
            ledger.pass_on(&bytes);
            if self.may_fail() {
                // The keeper may have written one of two parts of a sector, and not the other.
                ledger.share();
            }
            return;
        }
        let found = self.survivor_now(number);
        let model = self.model.borrow();
        let file = &model.files[number];
        let is_known = file.direct_handles > 0 && file.is_quiet() && !file.is_verifying;
        drop(model);
        if is_known {
            self.check_contents(number, "contract 4: after the death of a process with it direct");
        }
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        // The engine could not write the file: its owner has the saved bytes.
        let restored = file.saved.take().map(|saved| saved::restored(&found, &saved));
        if let Err(wrong) = file.ledger.check(restored.as_ref().unwrap_or(&found)) {
            panic!("contract 4: after the death of the process, file {number}: {wrong}");
        }
        file.ledger.die(&bytes_of(&found));
    }

    /// The file as the kernel has it.
    fn survivor_now(&self, number: usize) -> Survivor {
        let path = self.plan.path(number);
        if machine::identity(&path).is_none() {
            return Survivor { exists: false, size: 0, sectors: Vec::new() };
        }
        let bytes = machine::stored(&path, |stored| stored.read(0, stored.size()));
        let sectors = bytes.chunks(SECTOR).map(|chunk| {
            let mut sector = [0; SECTOR];
            sector[..chunk.len()].copy_from_slice(chunk);
            Some(Rc::new(sector))
        });
        Survivor { exists: true, size: bytes.len() as u64, sectors: sectors.collect() }
    }

    /// A keeper finishes the writing, in a process of its own. Returns false if the power was cut
    /// meanwhile.
    fn run_keeper(self: &Rc<Self>, arena: Arena, random: &mut Random) -> bool {
        self.get_well();
        if self.plan.log_blocks.is_some() {
            // It has the leases of the engine.
            self.kill_visitors();
        }
        let keeper = world::new_process("keeper");
        let stage = Rc::clone(self);
        let is_done = Rc::new(std::cell::Cell::new(false));
        let done = Rc::clone(&is_done);
        world::spawn(keeper, "keeper", move || {
            finish_files(&arena, stage.plan.log_blocks.is_some());
            done.set(true);
            world::wake(KEEPER);
        });
        if self.plan.log_blocks.is_some() && random.happens(PerMille(300)) {
            for _ in 0..random.below(40) {
                if is_done.get() {
                    break;
                }
                world::sleep(Duration::from_micros(random.below(200)));
            }
            machine::kill(keeper);
            let keep = *random.pick(&[Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some]);
            let found = machine::survivors(keep, &mut self.crashes.borrow_mut());
            machine::cut_power(found);
            self.hit("keeper cut");
            return false;
        }
        while !is_done.get() {
            world::block(KEEPER, None);
        }
        true
    }

    /// A keeper has written everything that was accepted, and synced it.
    fn check_kept(&self) {
        for number in 0..self.plan.files as usize {
            let path = self.plan.path(number);
            let model = self.model.borrow();
            let file = &model.files[number];
            let is_known = file.handles + file.closing > 0 && file.is_quiet() && !file.is_poisoned;
            drop(model);
            // Dirty data that could not be written was dropped with its last handle.
            if is_known && machine::identity(&path).is_some() && !machine::has_failed(&path) {
                self.check_contents(number, "contract 4: after the keeper");
            }
        }
    }

    /// Every open file as a keeper would leave it if the process died now.
    pub(super) fn check_process_death(&self) {
        let shared = self.shared.borrow();
        let Some(shared) = shared.as_ref().filter(|_| self.plan.is_survived) else { return };
        self.check_arena(shared.pool.arena());
    }

    /// Every open file as a keeper would leave it that has this arena.
    fn check_arena(&self, arena: &Arena) {
        self.hit("process death");
        for number in 0..self.plan.files as usize {
            if let Some(plan) = self.recovery_of(number, arena) {
                self.check_survived(number, arena, &plan);
            }
        }
    }

    /// Returns the plan of a keeper for a file; `None` if the arena has no record of it.
    fn recovery_of(&self, number: usize, arena: &Arena) -> Option<Recovery> {
        let path = self.plan.path(number);
        let (target, record) = arena.files().find(|(_, record)| record.path == path)?;
        let known = BTreeMap::from([(target, known_of(&record))]);
        plan(&known, headers(arena), |frame| arena.written_of(frame)).remove(&target)
    }

    /// Whether the next engine adopts a file.
    fn is_adopted(&self, number: usize) -> bool {
        self.adopted_bytes(number).is_some()
    }

    /// The bytes of a file that the next engine adopts, with those that are not written yet.
    fn adopted_bytes(&self, number: usize) -> Option<Vec<u8>> {
        let handed = self.handed.borrow();
        // An open enters its file into the arena before the keeper has it. If the process dies in
        // between, there is a record, but the next engine gets no handle.
        let handed = handed.as_ref().filter(|handed| handed.has(&self.plan.path(number)))?;
        let plan = self.recovery_of(number, &handed.arena)?;
        Some(self.recovered(number, &handed.arena, &plan))
    }

    /// The bytes of a file after a keeper has carried out its plan.
    fn recovered(&self, number: usize, arena: &Arena, plan: &Recovery) -> Vec<u8> {
        let path = self.plan.path(number);
        let mut found = machine::stored(&path, |stored| stored.read(0, stored.size()));
        if let Some(cut) = plan.cut {
            found.resize(cut as usize, 0);
        }
        for piece in &plan.pieces {
            let (start, end) = (piece.offset as usize, piece.end() as usize);
            if found.len() < end {
                found.resize(end, 0);
            }
            memory::read_part(arena, piece.frame, piece.at, &mut found[start..end]);
        }
        found
    }

    /// The accepted bytes are in the file after the plan. Its clean pages, which the next engine
    /// adopts, are as the file. A page that a call is copying to is not clean, because a death may
    /// leave a part of the copy.
    fn check_survived(&self, number: usize, arena: &Arena, plan: &Recovery) {
        let path = self.plan.path(number);
        let model = self.model.borrow();
        let file = &model.files[number];
        if file.is_changing > 0 || file.is_verifying || file.is_poisoned || file.ledger.appends() {
            return;
        }
        let kernel = machine::stored(&path, |stored| stored.read(0, stored.size()));
        let found = self.recovered(number, arena, plan);
        let undone = machine::undone(&path);
        let failed: BTreeSet<u64> = machine::failed_pages(&path);
        let writing = file.ledger.under_way();
        let accepted = file.ledger.bytes();
        let is_free = |at: usize| {
            let (at, page) = (at as u64, at as u64 / forebay_cache::limits::PAGE);
            undone.contains(&page)
                || failed.contains(&page) && file.handles == 0
                || writing
                    .iter()
                    .any(|(start, data)| (*start..start + data.len() as u64).contains(&at))
        };
        let length = found.len().max(accepted.len());
        // A write under way may leave a hole behind the end.
        let ends = writing.iter().map(|(start, data)| *start as usize + data.len());
        let end = ends.max().unwrap_or(0);
        let is_hole = |at: usize| at >= accepted.len() && at < end && found.get(at) == Some(&0);
        let byte = |bytes: &[u8], at: usize| bytes.get(at).copied();
        let is_right = |at: usize| byte(&found, at) == byte(accepted, at);
        let mut wrong = None;
        // Byte by byte takes long, and most files are equal.
        if found[..] != accepted[..] {
            wrong = (0..length).find(|&at| !is_right(at) && !is_free(at) && !is_hole(at));
        }
        assert_eq!(
            wrong,
            None,
            "contract 4: byte of file {number} ({} of {} bytes found) after the process's death",
            found.len(),
            accepted.len()
        );
        if !machine::has_failed(&path) {
            for (frame, header) in &plan.clean {
                let start = header.page * forebay_cache::limits::PAGE;
                let bytes = found.get(start as usize..).unwrap_or_default();
                let mut clean = vec![0; bytes.len().min(usize::from(header.length))];
                memory::read_part(arena, *frame, 0, &mut clean);
                assert!(
                    bytes.starts_with(&clean) || undone.contains(&header.page),
                    "contract 4: page {} of file {number} counts as clean and is not as the file",
                    header.page
                );
            }
        }
        self.hit(if found == kernel { "nothing to be saved" } else { "saved" });
    }

    /// Keeps the engine's parts, for looks at its arena.
    pub(super) fn keep(&self, shared: &Arc<Shared>) {
        *self.shared.borrow_mut() = Some(Arc::clone(shared));
    }
}

/// Returns the bytes of a file that was found.
pub(super) fn bytes_of(found: &Survivor) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        found.sectors.iter().flat_map(|sector| *crate::stored::bytes_of(sector)).collect();
    bytes.resize(found.size as usize, 0);
    bytes
}

//! The kernel's own paths at a depth: one io_uring, owned by the thread that uses it.
//!
//! Operations are staged as they are started and handed over together when the lane is reaped. A
//! job hands them over in a call of its own, before it waits. Requests are handed over by the call
//! that waits, in batches: with a depth of 128 and a batch of 32 a quarter is handed over and a
//! quarter waited for. The kernel begins a plug of its own if more than two are handed over
//! together, so batches of two and three are apart by more than one.
//!
//! The ring runs its task work on its own thread (`DEFER_TASKRUN`, since Linux 6.1), which is the
//! cheapest form the kernel offers; older kernels get a plain ring. Operations that end short, or
//! would have blocked, go out again for the rest.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use forebay_block::Moment;
use forebay_uring::{AlignedMemory, clock};
use io_uring::{IoUring, opcode, squeue, types};

use super::error::{CellError, Context};
use super::kernel::KernelFiles;
use super::lane::{Lane, LaneCounters, Serial, Wait, sleep_until};
use super::sequence::{Kind, Operation};
use crate::job::{FinalSync, YesNo};

/// Sets up a ring for `depth` operations in flight; a polled one only for direct I/O.
pub(crate) fn set_up(depth: u32, polled: YesNo) -> io::Result<IoUring> {
    let entries = depth.next_power_of_two();
    if polled == YesNo::Yes {
        return IoUring::builder().setup_iopoll().setup_single_issuer().build(entries);
    }
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match best {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        best => best,
    }
}

/// How operations are handed to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandOver {
    /// In a call of its own; that many go out together, if not as many as there are. A call that
    /// waits as well finds the first of a burst, hands over one for it, and finds the rest: from
    /// then on one and all but one take turns, and the device runs dry between them.
    Apart(Option<u32>),
    /// By the call that waits, from buffers that are registered, on files that are or are not.
    WithWait { fixed_files: YesNo },
}

impl HandOver {
    fn with_wait(self) -> bool {
        matches!(self, Self::WithWait { .. })
    }

    fn has_fixed_files(self) -> bool {
        self == Self::WithWait { fixed_files: YesNo::Yes }
    }
}

/// Operations on files over a ring.
pub(crate) struct RingLane {
    ring: IoUring,
    buffers: Vec<AlignedMemory>,
    files: KernelFiles,
    hand_over: HandOver,
    slots: Vec<Option<Flight>>,
    in_flight: usize,
    /// Pushed and not yet taken by the kernel.
    staged: usize,
    counters: LaneCounters,
}

#[derive(Clone, Copy)]
struct Flight {
    operation: Operation,
    done: u32,
}

impl Drop for RingLane {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // After a failure. The kernel may still write into the buffers: they are given up.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

impl RingLane {
    /// Makes a lane on the thread that set the ring up.
    pub(crate) fn new(
        ring: IoUring,
        mut buffers: Vec<AlignedMemory>,
        files: KernelFiles,
        hand_over: HandOver,
    ) -> Result<Self, CellError> {
        if hand_over.with_wait() {
            let vector = |buffer: &mut AlignedMemory| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            };
            let vectors: Vec<_> = buffers.iter_mut().map(vector).collect();
            // SAFETY: the buffers are freed when nothing is in flight, or never.
            unsafe { ring.submitter().register_buffers(&vectors) }.map_err(|error| {
                CellError::unavailable(format!(
                    "buffers could not be registered: {error} (raise the limit of locked memory: \
                     ulimit -l)"
                ))
            })?;
        }
        if hand_over.has_fixed_files() {
            let registered = ring.submitter().register_files(&files.descriptors());
            registered.context("could not register the file")?;
        }
        let slots = vec![None; buffers.len()];
        let counters = LaneCounters::default();
        Ok(Self { ring, buffers, files, hand_over, slots, in_flight: 0, staged: 0, counters })
    }

    fn stage(&mut self, slot: usize, flight: Flight) -> Result<(), CellError> {
        let entry = self.entry(slot, flight);
        self.slots[slot] = Some(flight);
        loop {
            // SAFETY: the buffer and the descriptor live until nothing is in flight (see `drop`;
            // the kernel holds files of its own), and the slot's buffer is not touched until it has
            // ended.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                break;
            }
            self.enter(0)?;
        }
        self.staged += 1;
        Ok(())
    }

    fn entry(&mut self, slot: usize, Flight { operation, done }: Flight) -> squeue::Entry {
        debug_assert!(done < operation.bytes, "an operation without a rest is staged");
        let rest = done as usize..operation.bytes as usize;
        let address = self.buffers[slot][rest].as_mut_ptr();
        let (left, offset) = (operation.bytes - done, operation.offset + u64::from(done));
        let rw = self.files.flags().bits() as i32;
        let (file, flags) = match self.hand_over.has_fixed_files() {
            true => (operation.file as i32, squeue::Flags::FIXED_FILE),
            false => (self.files.descriptor(operation.file), squeue::Flags::empty()),
        };
        let (file, fixed) = (types::Fd(file), slot as u16);
        macro_rules! entry {
            ($operation:ident $(, $fixed:expr)?) => {
                opcode::$operation::new(file, address, left $(, $fixed)?)
                    .offset(offset).rw_flags(rw).build()
            };
        }
        let entry = match (operation.kind, self.hand_over.with_wait()) {
            (Kind::Read, false) => entry!(Read),
            (Kind::Write, false) => entry!(Write),
            (Kind::Read, true) => entry!(ReadFixed, fixed),
            (Kind::Write, true) => entry!(WriteFixed, fixed),
        };
        entry.flags(flags).user_data(slot as u64)
    }

    /// Hands over staged operations, and waits for completions, in one call.
    fn enter(&mut self, least: usize) -> Result<(), CellError> {
        let entered = self.ring.submit_and_wait(least);
        self.entered(entered)
    }

    /// Hands over staged operations and has the kernel post completions, without waiting.
    fn hand_over(&mut self) -> Result<(), CellError> {
        /// `IORING_ENTER_GETEVENTS`: deferred task work runs in no other enter.
        const GET_EVENTS: u32 = 1;
        let staged = self.ring.submission().len() as u32;
        // SAFETY: `staged` entries are staged, and each may be taken (see `stage`); there is no
        // argument.
        let entered = unsafe { self.ring.submitter().enter::<()>(staged, 0, GET_EVENTS, None) };
        self.entered(entered)
    }

    /// Hands over staged operations, and waits for one completion, no longer than that.
    fn enter_within(&mut self, most: Duration) -> Result<(), CellError> {
        let most = types::Timespec::from(most);
        let within = types::SubmitArgs::new().timespec(&most);
        let entered = self.ring.submitter().submit_with_args(1, &within);
        self.entered(entered)
    }

    fn entered(&mut self, entered: io::Result<usize>) -> Result<(), CellError> {
        const NO_FAILURE: [i32; 4] = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ETIME];
        let number = entered.as_ref().err().and_then(io::Error::raw_os_error);
        if number.is_some_and(|number| NO_FAILURE.contains(&number)) {
            return Ok(());
        }
        let taken = entered.context("could not enter the ring")?;
        // A call that only waits counts for requests, as in Forebay's queue.
        let rings = taken > 0 || self.hand_over.with_wait();
        self.counters.doorbells += u64::from(rings);
        self.counters.requests += taken as u64;
        self.staged -= taken.min(self.staged);
        Ok(())
    }

    /// Ends the operations on the completion queue, and stages partial ones again.
    fn collect(&mut self, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let mut found = 0;
        loop {
            let next = self.ring.completion().next();
            let Some(completion) = next else { break };
            found += 1;
            let slot = completion.user_data() as usize;
            let flight = self.slots[slot].take().expect("a completion for a slot in flight");
            let Flight { operation, done } = flight;
            match completion.result() {
                moved if moved > 0 => {
                    let done = done + moved as u32;
                    if done < operation.bytes {
                        self.stage(slot, Flight { operation, done })?;
                        continue;
                    }
                    self.in_flight -= 1;
                    ended.push(slot);
                    self.files.count_moved(operation.bytes)?;
                }
                again if [-libc::EINTR, -libc::EAGAIN].contains(&again) => {
                    self.stage(slot, flight)?;
                }
                failed => {
                    self.in_flight -= 1;
                    let error = match failed {
                        0 => io::ErrorKind::UnexpectedEof.into(),
                        number => io::Error::from_raw_os_error(-number),
                    };
                    return Err(self.files.failed(&operation, &error));
                }
            }
        }
        self.counters.runs += u64::from(found > 0);
        self.counters.completions += found;
        Ok(())
    }

    /// Hands over in a call of its own, then waits. Asked for nothing in particular, it still
    /// enters once.
    fn reap_apart(&mut self, least: usize, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let had = ended.len();
        let mut entered = self.staged == 0 && least > 0;
        while self.staged > 0 || !entered {
            self.hand_over()?;
            self.collect(ended)?;
            entered = true;
        }
        self.collect(ended)?;
        while self.staged > 0 || ended.len() - had < least {
            self.enter(least.saturating_sub(ended.len() - had))?;
            self.collect(ended)?;
        }
        Ok(())
    }

    fn reap_until(&mut self, until: Moment, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let had = ended.len();
        loop {
            if self.in_flight == 0 {
                sleep_until(until);
                return Ok(());
            }
            let left = until - clock::now();
            self.enter_within(left)?;
            self.collect(ended)?;
            if ended.len() > had || left.is_zero() {
                return Ok(());
            }
        }
    }
}

impl Lane for RingLane {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn together(&self) -> usize {
        match self.hand_over {
            HandOver::Apart(Some(batch)) => batch.max(1) as usize,
            _ => self.slots(),
        }
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        assert!(self.slots[slot].is_none(), "the buffer of slot {slot} is in flight");
        &mut self.buffers[slot]
    }

    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        self.in_flight += 1;
        self.stage(slot, Flight { operation, done: 0 })
    }

    fn reap(&mut self, wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let least = wait.least().min(self.in_flight);
        match (wait, self.hand_over) {
            (Wait::Until(until), _) => self.reap_until(until, ended),
            (_, HandOver::Apart(_)) => self.reap_apart(least, ended),
            (_, HandOver::WithWait { .. }) => {
                self.enter(least)?;
                self.collect(ended)
            }
        }
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        self.files.sync(file, how)
    }

    fn counters(&self) -> LaneCounters {
        self.counters
    }
}

/// Calls fdatasync on all files through one ring, with at most `depth` in flight.
pub(crate) fn sync_data(files: &[File], depth: u32) -> io::Result<()> {
    let mut ring = set_up(depth, YesNo::No)?;
    let (mut waiting, mut in_flight, mut result) = (files.iter(), 0, Ok(()));
    loop {
        for file in waiting.by_ref().take(depth as usize - in_flight) {
            let file = types::Fd(file.as_raw_fd());
            let entry = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build();
            // SAFETY: the operation uses no memory. The descriptor is open until it is submitted,
            // and from then on the kernel holds the file.
            unsafe { ring.submission().push(&entry) }.expect("the ring has room for the depth");
            in_flight += 1;
        }
        if in_flight == 0 {
            return result;
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for completion in ring.completion() {
            in_flight -= 1;
            if completion.result() < 0 {
                result = Err(io::Error::from_raw_os_error(-completion.result()));
            }
        }
    }
}

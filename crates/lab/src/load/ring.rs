//! The kernel's own paths at a depth: one io_uring per job.
//!
//! Operations are staged as they are started and handed over together when the job has to wait, so
//! that the batch is all that became free meanwhile; `iodepth_batch` hands over earlier. The ring
//! is owned by its job's thread alone and runs its task work there (`DEFER_TASKRUN`, since Linux
//! 6.1), which is the cheapest form the kernel offers; older kernels get a plain ring. Operations
//! that end short, or would have blocked, go out again for the rest.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use super::CellError;
use super::kernel::KernelFiles;
use super::lane::{Buffers, Lane, LaneCounters};
use super::sequence::{Kind, Operation};
use super::window::Window;
use crate::job::{FinalSync, Job, YesNo};
use crate::manifest::mount;

/// A ring for `depth` operations in flight; a polled one only for direct I/O.
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

/// Returns why the device that a place is or lies on has no queues for polling.
pub(crate) fn device_polls(place: &Path) -> Result<(), String> {
    let queue =
        mount::queue_directory_of(place).ok_or("the file is on no block device of its own")?;
    let path = queue.join("io_poll");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(_) => Err(format!("{} says 0", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Registers the first `bytes` bytes of each buffer with the ring, under the number of its slot.
///
/// # Safety
/// The buffers outlive the ring.
pub(crate) unsafe fn register(
    ring: &IoUring,
    buffers: &Buffers,
    bytes: usize,
) -> Result<(), CellError> {
    let vector = |slot| libc::iovec { iov_base: buffers.address(slot).cast(), iov_len: bytes };
    let vectors: Vec<_> = (0..buffers.count()).map(vector).collect();
    // SAFETY: the caller promises it.
    unsafe { ring.submitter().register_buffers(&vectors) }.map_err(|error| {
        CellError::unavailable(format!(
            "buffers could not be registered: {error} (raise the limit of locked memory: ulimit -l)"
        ))
    })
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

/// A ring, and the buffers of its operations. They are freed together, and only if nothing is in
/// flight: after a failure the kernel may still write into the buffers, and then they are given up.
pub(crate) struct RingMemory {
    pub(crate) ring: ManuallyDrop<IoUring>,
    pub(crate) buffers: ManuallyDrop<Buffers>,
    pub(crate) in_flight: usize,
}

impl RingMemory {
    pub(crate) fn new(ring: IoUring, buffers: Buffers) -> Self {
        let (ring, buffers) = (ManuallyDrop::new(ring), ManuallyDrop::new(buffers));
        Self { ring, buffers, in_flight: 0 }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            return;
        }
        // SAFETY: dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // SAFETY: dropped here and nowhere else, with nothing in flight that could reach it.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }
}

/// A job's operations over its ring.
pub(crate) struct RingLane {
    memory: RingMemory,
    files: KernelFiles,
    window: Option<Window>,
    slots: Vec<Option<Flight>>,
    staged: usize,
    submit_batch: usize,
    counters: LaneCounters,
}

#[derive(Clone, Copy)]
struct Flight {
    operation: Operation,
    done: u32,
}

impl RingLane {
    /// Made and used on the thread that set the ring up. With at most two windows of these bytes in
    /// memory, if any.
    pub(crate) fn new(
        ring: IoUring,
        buffers: Buffers,
        files: KernelFiles,
        window_bytes: Option<u64>,
        job: &Job,
    ) -> Self {
        Self {
            slots: vec![None; buffers.count()],
            memory: RingMemory::new(ring, buffers),
            files,
            window: window_bytes.map(Window::new),
            staged: 0,
            submit_batch: job.submit_batch.map_or(usize::MAX, |batch| batch as usize),
            counters: LaneCounters::default(),
        }
    }

    fn stage(&mut self, slot: usize, flight: Flight) -> Result<(), CellError> {
        let Flight { operation, done } = flight;
        let descriptor: RawFd = self.files.descriptor(operation.file);
        let entry = self.entry(slot, flight, types::Fd(descriptor));
        self.slots[slot] = Some(Flight { operation, done });
        loop {
            // SAFETY: the buffer and the descriptor live until nothing is in flight (see
            // `RingMemory`), and the slot's buffer is not touched until it has ended.
            let pushed = unsafe { self.memory.ring.submission().push(&entry) };
            if pushed.is_ok() {
                break;
            }
            self.enter(0)?;
        }
        self.staged += 1;
        Ok(())
    }

    fn entry(&self, slot: usize, flight: Flight, file: types::Fd) -> squeue::Entry {
        let Flight { operation, done } = flight;
        let address = self.memory.buffers.address(slot).wrapping_add(done as usize);
        let left = operation.bytes - done;
        let offset = operation.offset + u64::from(done);
        let flags = self.files.flags().bits() as i32;
        macro_rules! entry {
            ($operation:ident) => {
                opcode::$operation::new(file, address, left).offset(offset).rw_flags(flags).build()
            };
        }
        let entry = match operation.kind {
            Kind::Read => entry!(Read),
            Kind::Write => entry!(Write),
        };
        entry.user_data(slot as u64)
    }

    fn enter(&mut self, least: usize) -> Result<(), CellError> {
        let entered = self.memory.ring.submit_and_wait(least);
        self.entered(entered)
    }

    /// Hands over what is staged and has the kernel post what has ended by then, without waiting.
    fn hand_over(&mut self) -> Result<(), CellError> {
        /// `IORING_ENTER_GETEVENTS`: deferred task work runs in no other enter.
        const GET_EVENTS: u32 = 1;
        let staged = self.memory.ring.submission().len() as u32;
        // SAFETY: `staged` entries are staged, and each may be taken (see `stage`); there is no
        // argument.
        let entered =
            unsafe { self.memory.ring.submitter().enter::<()>(staged, 0, GET_EVENTS, None) };
        self.entered(entered)
    }

    /// Waits for one completion, no longer than that.
    fn enter_within(&mut self, most: Duration) -> Result<(), CellError> {
        // Before Linux 5.11 an enter has no time limit, so the queue is polled.
        const LOOK_AGAIN: Duration = Duration::from_micros(50);
        if !self.memory.ring.params().is_feature_ext_arg() {
            self.enter(0)?;
            thread::sleep(most.min(LOOK_AGAIN));
            return Ok(());
        }
        let most = types::Timespec::from(most);
        let within = types::SubmitArgs::new().timespec(&most);
        let entered = self.memory.ring.submitter().submit_with_args(1, &within);
        self.entered(entered)
    }

    fn entered(&mut self, entered: io::Result<usize>) -> Result<(), CellError> {
        const NO_FAILURE: [i32; 4] = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ETIME];
        match entered {
            Ok(taken) => {
                self.counters.doorbells += u64::from(taken > 0);
                self.counters.requests += taken as u64;
                self.counters.batches.count(taken);
                self.staged -= taken.min(self.staged);
                Ok(())
            }
            Err(error)
                if error.raw_os_error().is_some_and(|number| NO_FAILURE.contains(&number)) =>
            {
                Ok(())
            }
            Err(error) => Err(CellError::failed("could not enter the ring", &error)),
        }
    }

    /// Ends the operations on the completion queue; partial ones go out again.
    fn collect(&mut self, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let mut found = 0;
        loop {
            let next = self.memory.ring.completion().next();
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
                    self.memory.in_flight -= 1;
                    ended.push(slot);
                    if let Some(window) = &mut self.window {
                        window.moved(operation.bytes, &self.files)?;
                    }
                }
                again if [-libc::EINTR, -libc::EAGAIN].contains(&again) => {
                    self.stage(slot, flight)?;
                }
                failed => {
                    self.memory.in_flight -= 1;
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
}

impl Lane for RingLane {
    fn slots(&self) -> usize {
        self.memory.buffers.count()
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        assert!(self.slots[slot].is_none(), "the buffer of slot {slot} is in flight");
        self.memory.buffers.slot(slot)
    }

    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        self.memory.in_flight += 1;
        self.stage(slot, Flight { operation, done: 0 })?;
        if self.staged >= self.submit_batch {
            self.enter(0)?;
        }
        Ok(())
    }

    fn reap(&mut self, least: usize, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let least = least.min(self.memory.in_flight);
        let had = ended.len();
        // Handed over in a call of its own. One that waits as well finds the first of a burst,
        // hands over one for it, and finds the rest: from then on one and all but one take turns,
        // and the device runs dry between them. Asked for nothing in particular, it still enters
        // once.
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

    fn hands_over_together(&self) -> bool {
        true
    }

    fn reap_until(&mut self, until: Instant, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let had = ended.len();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.memory.in_flight == 0 {
                thread::sleep(left);
                return Ok(());
            }
            self.enter_within(left)?;
            self.collect(ended)?;
            if ended.len() > had || left.is_zero() {
                return Ok(());
            }
        }
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        self.files.sync(file, how)
    }

    fn close(self: Box<Self>) -> Result<(), CellError> {
        Ok(())
    }

    fn counters(&self) -> LaneCounters {
        self.counters
    }
}

//! Contract 9: the space that a growing file reserves ahead of its data.

use std::ops::Range;

use forebay_block::{Frame, Operation, Target};
use forebay_cache::file::{Entry, Origin};
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Caching, FrameRuns, Liberties, Reason, Settled, TicketKind, WriteStop,
};

const MIB: u64 = 1 << 20;
const FRAMES: u32 = 4096;

/// A new file that grows at its end, with its requests as a device would see them.
struct Stream {
    file: CachedFile,
    free: FrameRuns,
    settled: Settled,
    reserved: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

impl Stream {
    fn new(free_bytes: u64) -> Self {
        let origin = Origin::Empty { entry: Entry::Old };
        let mut file = CachedFile::new(Target(0), origin, Liberties::Exclusive);
        file.set_free_bytes(free_bytes);
        let mut free = FrameRuns::default();
        (0..FRAMES).for_each(|frame| free.push(Frame(frame)));
        let settled = Settled::default();
        Self { file, free, settled, reserved: Vec::new(), written: Vec::new() }
    }

    fn append(&mut self, bytes: u64) {
        let mut left = bytes as usize;
        while left > 0 {
            let (mut copies, end) = (Vec::new(), self.file.size());
            let (planned, _, stop) = self.file.begin_write(end, left, &mut self.free, &mut copies);
            assert_eq!(stop, WriteStop::Done);
            self.file.publish(&copies, Caching::Cached, &mut self.settled);
            left -= planned;
        }
    }

    /// Makes one request, and ends it. Returns its operation.
    fn step(&mut self, reason: Reason) -> Option<Operation> {
        // A file sends nothing once at the end of each sweep.
        let bio = self.file.next_bio(reason).or_else(|| self.file.next_bio(reason))?;
        match bio.operation {
            Operation::Allocate => self.reserved.push(bio.offset..bio.end()),
            Operation::Write => self.written.push(bio.offset..bio.end()),
            _ => {}
        }
        self.file.settle(&bio, Ok(bio.length), Keep::Nothing, &mut self.settled);
        std::mem::take(&mut self.settled).freed.frames().for_each(|frame| self.free.push(frame));
        Some(bio.operation)
    }

    fn write_out(&mut self, reason: Reason) {
        while self.step(reason).is_some() {}
    }

    fn sync(&mut self) {
        let ticket = self.file.ask(TicketKind::FlushData);
        self.write_out(Reason::Sync);
        assert_eq!(self.file.fetch(ticket), Some(Ok(())));
    }

    fn is_reserved(&self, range: &Range<u64>) -> bool {
        self.reserved.iter().any(|found| found.start <= range.start && range.end <= found.end)
    }
}

#[test]
fn contract_09_a_stream_takes_one_reservation_each_time_it_doubles() {
    let mut stream = Stream::new(1 << 40);
    for piece in 0..64 {
        // Pieces of unequal lengths, so that runs do not end where reserved space does.
        stream.append(MIB + piece % 3 * 65_536);
        stream.write_out(Reason::Background);
        let (size, end) = (stream.file.size(), stream.reserved.last().unwrap().end);
        assert!(end <= size + size.min(64 * MIB), "{end} bytes reserved for {size}");
    }
    assert_eq!(stream.written.len(), 64);
    for run in &stream.written {
        assert!(stream.is_reserved(run), "{run:?} lies in no single one of {:?}", stream.reserved);
    }
    assert_eq!(stream.reserved.len(), 7, "{:?}", stream.reserved);
}

#[test]
fn contract_09_beyond_64_mebibytes_a_stream_reserves_no_more_at_once() {
    let mut stream = Stream::new(1 << 40);
    for _ in 0..200 {
        stream.append(MIB);
        stream.write_out(Reason::Background);
    }
    let (size, end) = (stream.file.size(), stream.reserved.last().unwrap().end);
    assert!(size < end && end <= size + 64 * MIB, "{end} bytes reserved for {size}");
}

#[test]
fn contract_09_a_short_run_of_a_stream_is_no_scattered_one() {
    let mut stream = Stream::new(1 << 40);
    stream.append(MIB);
    stream.write_out(Reason::Background);
    // The first run that goes beyond the reserved space is short, and begins in the middle of the
    // second mebibyte.
    stream.append(MIB - 262_144);
    stream.write_out(Reason::Background);
    stream.append(524_288);
    stream.write_out(Reason::Background);
    let size = stream.file.size();
    assert_eq!(stream.reserved.last().unwrap().end, 2 * size, "{:?}", stream.reserved);
}

#[test]
fn a_run_that_grows_while_its_space_is_reserved_is_sent() {
    // With a hundredth of this, nothing is reserved beyond the end.
    let mut stream = Stream::new(100);
    stream.append(MIB);
    assert_eq!(stream.step(Reason::Background), Some(Operation::Allocate));
    // The run goes beyond its space now, and gets the rest once.
    stream.append(MIB);
    assert_eq!(stream.step(Reason::Background), Some(Operation::Allocate));
    stream.append(MIB);
    assert_eq!(stream.step(Reason::Background), Some(Operation::Write));
    assert_eq!((stream.written.len(), stream.written[0].clone()), (1, 0..3 * MIB));
}

#[test]
fn a_small_new_file_that_is_synced_reserves_nothing() {
    let mut stream = Stream::new(1 << 40);
    stream.append(512 << 10);
    stream.sync();
    assert_eq!((stream.written.len(), stream.reserved.len()), (1, 0));
    // It goes on to grow.
    stream.append(512 << 10);
    stream.sync();
    assert_eq!(stream.reserved.len(), 1);
    let mut large = Stream::new(1 << 40);
    large.append(4 * MIB);
    large.sync();
    assert_eq!(large.reserved.len(), 1);
}

#[test]
fn a_request_has_at_most_the_pages_that_it_may() {
    let written = |most| {
        let mut stream = Stream::new(0);
        stream.file.set_request_pages(1, most);
        stream.append(3 * MIB + 100);
        stream.sync();
        let sizes: Vec<_> = stream.written.iter().map(|bytes| bytes.end - bytes.start).collect();
        assert_eq!(sizes.iter().sum::<u64>(), 3 * MIB, "the last bytes go through the page cache");
        sizes
    };
    assert_eq!(written(u64::MAX), [3 * MIB]);
    // Of requests that move the end of the file one is in flight at a time, so they may be larger.
    assert_eq!(written(64), [256 << 10; 12]);
}

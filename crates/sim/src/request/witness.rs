//! Observer between the queue and the layers. It follows each tag and checks which requests are in
//! flight together.
//!
//! The device at the bottom cannot see this: a layer may complete a request that never reached the
//! device, or delay the completion of one that the device has served.

use forebay_block::limits::{REQUEST_BYTES, REQUEST_SEGMENTS, TAGS};
use forebay_block::{Bio, Completion, Device, Errno, Moment, Operation, Refused, Tag, Wait};

use super::stack::Stack;

/// Device that checks all requests and completions and passes them on.
#[derive(Debug)]
pub struct Witness {
    /// The layers and the device.
    pub stack: Stack,
    /// Calls to the device.
    pub doorbells: u64,
    /// Requests taken.
    pub taken: u64,
    /// Requests refused.
    pub refused: u64,
    /// Reads and writes that ended short.
    pub short: u64,
    /// Requests interrupted, or that would have blocked.
    pub passing: u64,
    active: Vec<(Tag, Bio)>,
    /// Requests that failed.
    failed: Vec<(Bio, Errno)>,
}

impl Witness {
    /// Observes a stack.
    #[must_use]
    pub fn new(stack: Stack) -> Self {
        Self {
            stack,
            doorbells: 0,
            taken: 0,
            refused: 0,
            short: 0,
            passing: 0,
            active: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Returns the number of requests taken and not reaped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.active.len()
    }

    /// Checks that a bio failed with its own error: some request with bytes of this bio only has
    /// failed with `errno`.
    pub fn account_for(&self, bio: &Bio, errno: Errno) {
        let is_own = |(request, with): &(Bio, Errno)| {
            let is_inside = bio.offset <= request.offset && request.end() <= bio.end();
            *with == errno && request.target == bio.target && is_inside
        };
        assert!(
            self.failed.iter().any(is_own),
            "contract 16: {bio:?} ended with {errno}, the error of another bio"
        );
    }

    fn check(&self, tag: Tag, request: &Bio) {
        assert!(usize::from(tag.0) < TAGS, "contract 16: {tag:?} is outside the set");
        for (other, bio) in &self.active {
            assert!(*other != tag, "contract 16: {tag:?} is in two places");
            assert!(
                !are_bound(bio, request),
                "contract 15: {request:?} is in flight together with {bio:?}"
            );
        }
        if request.operation.moves_bytes() {
            let sum: u64 = request.segments.iter().map(|segment| u64::from(segment.length())).sum();
            assert_eq!(sum, request.length, "{request:?}");
            let is_one =
                request.length <= REQUEST_BYTES && request.segments.len() <= REQUEST_SEGMENTS;
            assert!(is_one, "contract 18: more than one request carries: {request:?}");
        }
    }
}

/// Returns whether two bios must take effect one after the other.
fn are_bound(one: &Bio, other: &Bio) -> bool {
    let range = |bio: &Bio| match bio.operation {
        Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory => None,
        Operation::WriteBuffered | Operation::SetLength => Some(0..u64::MAX),
        _ => Some(bio.offset..bio.end()),
    };
    let both_read = one.operation == Operation::Read && other.operation == Operation::Read;
    let (Some(mine), Some(its)) = (range(one), range(other)) else { return false };
    one.target == other.target && !both_read && mine.start < its.end && its.start < mine.end
}

impl Device for Witness {
    fn now(&mut self) -> Moment {
        self.stack.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.check(tag, request);
        let taken = self.stack.prepare(tag, request);
        match taken {
            Ok(()) => {
                self.taken += 1;
                self.active.push((tag, request.clone()));
            }
            Err(Refused) => self.refused += 1,
        }
        taken
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.doorbells += 1;
        self.stack.doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.stack.reap(completions);
        for &Completion { tag, result } in &completions[before..] {
            let place = self.active.iter().position(|(other, _)| *other == tag);
            let Some(place) = place else {
                panic!("contract 16: {tag:?} completed but is not in flight")
            };
            let (_, bio) = self.active.swap_remove(place);
            match result {
                Ok(bytes) => self.short += u64::from(bytes < bio.bytes()),
                Err(errno) if errno.is_passing() => self.passing += 1,
                Err(Errno::UNSUPPORTED) if bio.operation == Operation::WriteZeroes => {}
                Err(errno) => self.failed.push((bio, errno)),
            }
        }
    }
}

//! Resubmission: a merged request transfers some bytes, a later bio writes those bytes, and then
//! the rest of the request fails.

use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Completion, Device, Ended, Errno, Frame, Moment, Operation, Queue, Refused, Segment, Tag,
    Wait,
};

use crate::recorder::bio;

const BLOCK: u64 = PAGE as u64;

/// Ends each request at the doorbell with the next result of a list, and successfully after the
/// last.
#[derive(Debug, Default)]
struct Scripted {
    results: Vec<Result<u64, Errno>>,
    taken: Vec<Bio>,
    completed: Vec<Completion>,
}

impl Device for Scripted {
    fn now(&mut self) -> Moment {
        Moment::default()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let next =
            if self.results.is_empty() { Ok(request.bytes()) } else { self.results.remove(0) };
        self.taken.push(request.clone());
        self.completed.push(Completion { tag, result: next });
        Ok(())
    }

    fn doorbell(&mut self, _: Wait) -> Result<(), Errno> {
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

fn turn(queue: &mut Queue, device: &mut Scripted, ended: &mut Vec<Ended>) {
    queue.dispatch(device, Wait::Something(None)).unwrap();
    queue.run(device, ended);
}

fn write(owner: u64, page: u64, pages: u64) -> Bio {
    let bio = bio(Operation::Write, 0, page, pages);
    let segment = Segment::frames(Frame(100 * owner as u32), bio.length as u32);
    Bio { owner, segments: [segment].into_iter().collect(), ..bio }
}

/// Once bytes are transferred, a later bio may overwrite them. To transfer them again would undo
/// that write.
#[test]
fn contract_15_transferred_bytes_are_not_written_again_when_the_rest_fails() {
    let (mut queue, mut ended) = (Queue::new(), Vec::new());
    // Pages 0 to 4 and 4 to 8, merged. Two pages are transferred and a later bio writes them. Then
    // the rest fails, and each bio is submitted again by itself.
    let results = vec![Ok(2 * BLOCK), Err(Errno::IO)];
    let mut device = Scripted { results, ..Scripted::default() };
    queue.submit(write(0, 0, 4));
    queue.submit(write(1, 4, 4));
    turn(&mut queue, &mut device, &mut ended);
    queue.submit(write(2, 0, 2));
    while queue.staged() + queue.in_flight() > 0 {
        turn(&mut queue, &mut device, &mut ended);
    }
    let mut results: Vec<_> = ended.iter().map(|end| (end.bio.owner, end.result)).collect();
    results.sort_unstable_by_key(|(owner, _)| *owner);
    assert_eq!(results, [(0, Ok(4 * BLOCK)), (1, Ok(4 * BLOCK)), (2, Ok(2 * BLOCK))]);
    let later = device.taken.iter().position(|bio| bio.owner == 2).expect("it ended");
    for bio in &device.taken[later + 1..] {
        assert!(bio.offset >= 2 * BLOCK, "{bio:?} writes pages that a later bio has written since");
    }
}

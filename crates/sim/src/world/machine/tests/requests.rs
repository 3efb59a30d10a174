//! Faults of the device, and requests that must not be there together.

use super::*;
use crate::faults::Faults;
use crate::world::machine::{set_bad, set_faults, stored, undone};
use crate::world::others::{OpenAs, Program};

/// The message of a run that must fail.
fn failure(body: impl FnOnce() + 'static) -> String {
    let run = run(settings(1), move || {
        install(MachinePlan::default());
        body();
    });
    run.expect_err("the check must stop the run").message
}

fn rig() -> Rig {
    let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
    rig.write(0, 0..8, 1).unwrap();
    rig
}

#[test]
fn contract_13_short_and_interrupted_requests_do_a_part_and_no_more() {
    let faults = Faults { shorten: PerMille(400), interrupt: PerMille(200), ..Faults::NONE };
    let (mut short, mut again) = (0, 0);
    for seed in 0..20 {
        let plan = MachinePlan { faults, ..MachinePlan::default() };
        let found = on(plan, seed, || {
            let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
            match rig.write(0, 0..4, 5) {
                Ok(written) => {
                    let bytes = stored("/a", |file| file.read(0, 1 << 20));
                    assert_eq!(bytes, vec![5; written as usize]);
                    (usize::from(written < 4 * 4096), 0)
                }
                Err(errno) => {
                    assert!(errno.is_passing());
                    assert_eq!(stored("/a", crate::stored::StoredFile::size), 0);
                    (0, 1)
                }
            }
        });
        (short, again) = (short + found.0, again + found.1);
    }
    assert!(short > 2 && again > 0, "{short} {again}");
}

#[test]
fn contract_13_a_short_direct_request_ends_at_a_block_and_a_read_at_an_odd_end_ends_there() {
    let plan = VolumePlan {
        direct: Some(forebay_uring::Alignment { memory: 512, offset: 4096 }),
        ..VolumePlan::xfs()
    };
    let faults = Faults { shorten: PerMille(700), ..Faults::NONE };
    for seed in 0..20 {
        let plan = MachinePlan { faults, ..MachinePlan::calm(vec![plan.clone()]) };
        on(plan, seed, || {
            let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
            let written = rig.write(0, 0..8, 5).unwrap();
            assert!(written > 0 && written.is_multiple_of(4096), "{written}");
            rig.file.truncate(100).unwrap();
            assert_eq!(rig.act(&pages(Operation::Read, 0, 8..9)), Ok(100));
            let segment = Segment::Frames { first: Frame(8), offset: 100, length: 3996 };
            let rest = bio(Operation::Read, 100, 3996, [segment].into_iter().collect());
            assert_eq!(rig.act(&rest), Ok(0));
        });
    }
}

#[test]
fn contract_02_bad_pages_fail_and_a_failed_flush_is_reported_once() {
    calm(|| {
        let mut rig = rig();
        set_bad("/a", 2..3);
        assert_eq!(rig.write(2, 0..1, 2), Err(Errno::IO));
        set_bad("/a", 0..0);
        assert_eq!(rig.write(2, 0..1, 2), Ok(4096));
        rig.flush().unwrap();
        rig.write(0, 0..1, 3).unwrap();
        set_faults(Faults { flush: PerMille(1000), ..Faults::NONE });
        assert_eq!(rig.flush(), Err(Errno::IO));
        set_faults(Faults::NONE);
        assert_eq!(rig.flush(), Ok(0), "Linux reports it once");
    });
}

#[test]
fn contract_06_a_mapping_of_another_program_undoes_a_direct_write() {
    calm(|| {
        let mut rig = rig();
        rig.flush().unwrap();
        set_faults(Faults { invalidate: PerMille(1000), ..Faults::NONE });
        assert_eq!(rig.write(1, 0..1, 2), Ok(4096));
        assert!(undone("/a").is_empty(), "nobody has it mapped");
        let mut program = Program::open("/a", OpenAs::READER).unwrap();
        program.map().unwrap();
        assert_eq!(rig.write(1, 0..1, 3), Ok(4096));
        assert_eq!(undone("/a").into_iter().collect::<Vec<_>>(), [1]);
        assert_eq!(program.read(4096..4100).unwrap(), [2; 4]);
        assert_eq!(rig.flush(), Err(Errno::IO));
        assert_eq!(rig.flush(), Ok(0));
        drop(program);
        assert_eq!(rig.write(1, 0..1, 3), Ok(4096));
        assert!(undone("/a").is_empty());
    });
}

#[test]
fn direct_requests_must_be_aligned_and_buffered_ones_need_not_be() {
    calm(|| {
        let mut rig = rig();
        let part = |operation, offset, length: u32| {
            let segment = Segment::frames(Frame(0), length);
            bio(operation, offset, u64::from(length), [segment].into_iter().collect())
        };
        assert_eq!(rig.act(&part(Operation::Read, 100, 512)), Err(Errno::INVALID));
        assert_eq!(rig.act(&part(Operation::Read, 512, 512)), Ok(512));
        assert_eq!(rig.act(&part(Operation::WriteBuffered, 8 * 4096, 100)), Ok(100));
        assert_eq!(rig.file.length().unwrap(), 8 * 4096 + 100);
        assert_eq!(rig.act(&part(Operation::Read, 100, 512)), Err(Errno::INVALID), "direct again");
        let file = make("/b");
        assert_eq!(errno(&file.write_all_at(&[1; 100], 0).unwrap_err()), libc::EINVAL);
        file.set_direct(forebay_uring::Mode::Buffered).unwrap();
        file.write_all_at(&[1; 100], 0).unwrap();
    });
}

#[test]
fn contract_11_a_frame_that_changes_in_flight_stops_the_run() {
    let message = failure(|| {
        let mut rig = rig();
        rig.prepare(&pages(Operation::Write, 0, 0..1));
        rig.backend.doorbell(Wait::Not).unwrap();
        rig.fill(0, 99);
        rig.wait(1);
    });
    assert!(message.contains("contract 11: a frame has changed in flight"), "{message}");
    let message = failure(|| {
        let mut rig = rig();
        rig.prepare(&pages(Operation::Write, 0, 0..2));
        rig.prepare(&pages(Operation::Read, 4, 1..2));
    });
    assert!(message.contains("contract 11: frames"), "{message}");
}

#[test]
fn contract_15_requests_that_overlap_stop_the_run() {
    let message = failure(|| {
        let mut rig = rig();
        rig.prepare(&pages(Operation::Write, 0, 0..2));
        rig.prepare(&pages(Operation::Read, 1, 8..9));
    });
    assert!(message.contains("contract 15"), "{message}");
    // Through another backend of the same engine, too.
    let message = failure(|| {
        let mut one = rig();
        let mut two = Rig::new(Choice::Auto, Arc::clone(&one.file));
        one.prepare(&pages(Operation::Write, 0, 0..2));
        one.backend.doorbell(Wait::Not).unwrap();
        two.prepare(&pages(Operation::Write, 1, 0..2));
    });
    assert!(message.contains("contract 15"), "{message}");
    let message = failure(|| {
        let mut rig = rig();
        rig.prepare(&pages(Operation::Write, 0, 0..2));
        let _ = rig.file.write_all_at(&[1; 4096], 4096);
    });
    assert!(message.contains("contract 15"), "{message}");
}

#[test]
fn contract_08_what_must_be_alone_stops_the_run_if_it_is_not() {
    let beside = |first: Operation| {
        failure(move || {
            let mut rig = rig();
            rig.prepare(&pages(Operation::Read, 0, 0..1));
            let segments: Segments = [Segment::frames(Frame(9), 100)].into_iter().collect();
            let second = match first {
                Operation::WriteBuffered => bio(first, 8 * 4096, 100, segments),
                _ => plain(first, 4096, 0),
            };
            rig.prepare(&second);
        })
    };
    for operation in [Operation::WriteBuffered, Operation::SetLength] {
        let message = beside(operation);
        assert!(message.contains("contract 8"), "{message}");
    }
    let message = failure(|| {
        let mut rig = rig();
        rig.prepare(&pages(Operation::Write, 8, 0..1));
        rig.prepare(&pages(Operation::Write, 9, 1..2));
    });
    assert!(message.contains("contract 8: two requests move the end"), "{message}");
    let message = failure(|| {
        let mut rig = rig();
        let segments: Segments = [Segment::frames(Frame(0), 512)].into_iter().collect();
        rig.prepare(&bio(Operation::Write, 0, 512, segments));
    });
    assert!(message.contains("contract 8: not whole pages"), "{message}");
}

#[test]
fn contract_06_zeroes_and_holes_need_the_lease() {
    let zeroes = || {
        let segments: Segments = [Segment::Zeroes { length: 4096 }].into_iter().collect();
        bio(Operation::Write, 0, 4096, segments)
    };
    for request in [zeroes(), plain(Operation::Punch, 8 * 4096, 4096)] {
        let message = failure(move || {
            rig().prepare(&request);
        });
        assert!(message.contains("contract 6: needs the lease"), "{message}");
    }
    calm(move || {
        let watch = crate::platform::LeaseWatch::new(|_| {}).unwrap();
        let mut rig = rig();
        rig.file.try_lease(&watch, 1).unwrap();
        assert_eq!(rig.act(&zeroes()), Ok(4096));
        assert_eq!(rig.act(&plain(Operation::Punch, 0, 4096)), Ok(0));
        assert_eq!(rig.file.allocated_bytes().unwrap(), 7 * 4096);
    });
}

#[test]
fn contract_16_a_tag_is_in_one_place() {
    let message = failure(|| {
        let mut rig = rig();
        rig.prepare(&pages(Operation::Read, 0, 0..1));
        rig.tag -= 1;
        rig.prepare(&pages(Operation::Read, 1, 1..2));
    });
    assert!(message.contains("contract 16"), "{message}");
}

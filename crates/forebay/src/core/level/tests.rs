use super::*;
use crate::core::limits::GRANT_PATIENCE;

fn level() -> Arc<Level> {
    Arc::new(Level::new(Throttle::new(1024, 512)))
}

fn poll(queued: &mut Queued) -> Poll<u64> {
    queued.poll(&Context::from_waker(Waker::noop()))
}

fn queue(level: &Arc<Level>, target: Target, volume: &Arc<Volume>, of_file: u64) -> Queued {
    level.queue(&Writer { target, volume, of_file, patience: GRANT_PATIENCE })
}

fn add(level: &Level, volume: &Volume, pages: u64) -> Crossed {
    let _ = volume.share.recount(0, pages);
    level.add(pages)
}

fn remove(level: &Level, volume: &Volume, pages: u64, wakers: &mut Vec<Waker>) {
    let _ = volume.share.recount(pages, 0);
    level.remove(pages, wakers);
}

#[test]
fn contract_15_room_goes_to_the_longest_waiter() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    assert_eq!(add(&level, &volume, 1024), Crossed::Background);
    assert_eq!(level.admit(&volume, 900), Admission::Wait);
    let (mut first, mut second) =
        (queue(&level, Target(0), &volume, 900), queue(&level, Target(0), &volume, 900));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    let mut wakers = Vec::new();
    remove(&level, &volume, 16, &mut wakers);
    assert_eq!(wakers.len(), 1);
    assert_eq!(poll(&mut first), Poll::Ready(16));
    assert!(poll(&mut second).is_pending());
    remove(&level, &volume, 16, &mut wakers);
    assert_eq!(poll(&mut second), Poll::Ready(16));
    assert_eq!(level.dirty(), 1024);
}

#[test]
fn contract_15_pages_that_are_taken_off_twice_do_not_make_writers_wait_for_ever() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    let slips: [&dyn Fn(); 5] = [
        &|| assert_eq!(volume.share.recount(1, 0), Crossed::Nothing),
        &|| level.remove(1, &mut Vec::new()),
        &|| level.change_beyond(1, 0, &mut Vec::new()),
        &|| volume.failing.change(1, 0),
        &|| volume.end_reserving(1),
    ];
    for slip in slips {
        let is_noticed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(slip)).is_err();
        assert!(is_noticed);
    }
    assert_eq!(level.admit(&volume, 900), Admission::Granted);
    assert_eq!((volume.failing.pages(), volume.free_bytes()), (0, 0));
    add(&level, &volume, 1024);
    assert_eq!(level.admit(&volume, 900), Admission::Wait);
}

#[test]
fn contract_15_a_small_file_waits_for_room_beyond_the_limit_alone() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    let spare = 64 + 16;
    add(&level, &volume, 1024 + spare);
    assert_eq!(level.admit(&volume, 1), Admission::Wait);
    let mut large = queue(&level, Target(0), &volume, 900);
    let mut small = queue(&level, Target(1), &volume, 1);
    assert!(poll(&mut large).is_pending() && poll(&mut small).is_pending());
    remove(&level, &volume, 16, &mut Vec::new());
    assert_eq!(poll(&mut small), Poll::Ready(1));
    assert_eq!(level.admit(&volume, 1), Admission::Granted, "those behind it need not wait");
    assert!(poll(&mut large).is_pending(), "the limit is not reached from above");
}

#[test]
fn contract_02_a_waiter_is_woken_by_a_failure_of_its_file() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    add(&level, &volume, 1024);
    let (mut mine, mut other) =
        (queue(&level, Target(1), &volume, 900), queue(&level, Target(2), &volume, 900));
    assert!(poll(&mut mine).is_pending() && poll(&mut other).is_pending());
    let mut wakers = Vec::new();
    level.look_again(Target(1), &mut wakers);
    assert_eq!(wakers.len(), 1);
    remove(&level, &volume, 16, &mut wakers);
    assert_eq!(poll(&mut mine), Poll::Ready(16), "its place is kept");
}

#[test]
fn contract_02_pages_of_a_dead_device_do_not_count_against_others() {
    let (level, volume, dead) =
        (level(), Arc::new(Volume::new(0, Arc::default())), Volume::new(1, Arc::default()));
    add(&level, &dead, 960);
    add(&level, &volume, 64);
    let mut elsewhere = queue(&level, Target(1), &volume, 900);
    assert!(poll(&mut elsewhere).is_pending());
    let mut wakers = Vec::new();
    level.change_beyond(0, 768, &mut wakers);
    assert_eq!(wakers.len(), 1, "the waiter looks again");
    assert_eq!(poll(&mut elsewhere), Poll::Ready(16), "and has room");
    assert_eq!(level.admit(&volume, 900), Admission::Granted);
    level.change_beyond(768, 0, &mut wakers);
    assert_eq!(level.admit(&volume, 900), Admission::Wait);
}

#[test]
fn a_place_given_up_gives_its_share_to_the_next() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    add(&level, &volume, 1024);
    let (first, mut second) =
        (queue(&level, Target(0), &volume, 900), queue(&level, Target(0), &volume, 900));
    remove(&level, &volume, 16, &mut Vec::new());
    drop(first);
    assert_eq!(poll(&mut second), Poll::Ready(16));
    drop(queue(&level, Target(0), &volume, 900));
    assert_eq!(level.queued.load(Ordering::Relaxed), 0);
}

#[test]
fn contract_15_a_slow_file_system_delays_no_other() {
    let level = level();
    let [slow, fast] = [0, 1].map(|number| Arc::new(Volume::new(number, Arc::default())));
    slow.share.set_rate(0, 10);
    fast.share.set_rate(0, 100_000);
    level.share_out(&[&slow, &fast]);
    // The slow one has its part, 32 pages, and a writer that waits for more.
    level.add(32);
    let _ = slow.share.recount(0, 32);
    assert_eq!(level.admit(&slow, 32), Admission::Wait);
    let mut first = queue(&level, Target(0), &slow, 900);
    assert!(poll(&mut first).is_pending(), "the free room is not for this file system");
    // The fast one fills the rest. Its writer came later, and continues as soon as some pages
    // are written.
    level.add(992);
    let _ = fast.share.recount(0, 992);
    let mut second = queue(&level, Target(1), &fast, 900);
    assert!(poll(&mut second).is_pending());
    let mut wakers = Vec::new();
    let _ = fast.share.recount(64, 0);
    level.remove(64, &mut wakers);
    assert_eq!(poll(&mut second), Poll::Ready(16), "a 64th of the limit");
    assert!(poll(&mut first).is_pending());
    // A page that the slow one has written is granted to its own writer.
    let _ = slow.share.recount(1, 0);
    level.remove(1, &mut wakers);
    assert_eq!(poll(&mut first), Poll::Ready(1));
    // A single file system may use all free room.
    let third = queue(&level, Target(0), &slow, 900);
    drop(second);
    level.share_out(&[&slow]);
    level.remove(0, &mut wakers);
    assert_eq!(third.waiter.granted.lock().pages, 1);
}

#[test]
fn contract_12_a_grant_that_is_not_taken_in_time_goes_to_others_that_wait() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    add(&level, &volume, 1024);
    let mut kept = queue(&level, Target(0), &volume, 900);
    let mut wakers = Vec::new();
    remove(&level, &volume, 16, &mut wakers);
    let granted = clock::now();
    let after =
        |time: Duration| Moment::from_nanoseconds(granted.nanoseconds() + time.as_nanos() as u64);
    level.take_back(|| after(GRANT_PATIENCE), &mut wakers);
    let mut other = queue(&level, Target(1), &volume, 900);
    assert!(poll(&mut other).is_pending(), "nobody waited");
    level.take_back(|| after(GRANT_PATIENCE / 2), &mut wakers);
    assert!(poll(&mut other).is_pending(), "it may still be taken");
    level.take_back(|| after(GRANT_PATIENCE), &mut wakers);
    assert_eq!((poll(&mut other), poll(&mut kept)), (Poll::Ready(16), Poll::Ready(0)));
    assert_eq!((level.dirty(), volume.share.dirty()), (1024, 1008), "16 go to its file");
    drop((kept, other));
    assert_eq!(level.dirty(), 1024, "nothing is given back twice");
}

#[test]
fn a_grant_that_is_not_taken_is_given_back() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    volume.share.set_rate(0, 100_000);
    add(&level, &volume, 1024);
    let queued = queue(&level, Target(0), &volume, 900);
    remove(&level, &volume, 100, &mut Vec::new());
    assert_eq!((level.dirty(), volume.share.dirty()), (940, 940));
    drop(queued);
    assert_eq!((level.dirty(), volume.share.dirty()), (924, 924));
}

#[test]
fn contract_12_no_writer_waits_or_holds_room_once_the_engine_stops() {
    let (level, volume) = (level(), Arc::new(Volume::new(0, Arc::default())));
    add(&level, &volume, 1024);
    let [mut granted, mut waiting] =
        [0, 1].map(|number| queue(&level, Target(number), &volume, 900));
    remove(&level, &volume, 16, &mut Vec::new());
    assert_eq!((level.dirty(), level.has_waiters()), (1024, true), "one has the room");
    level.close();
    assert_eq!((level.dirty(), volume.share.dirty(), level.has_waiters()), (1008, 1008, false));
    let mut late = queue(&level, Target(2), &volume, 900);
    let refused = [&mut granted, &mut waiting, &mut late].map(poll);
    assert_eq!(refused, [Poll::Ready(0); 3]);
    drop((granted, waiting, late));
    assert_eq!((level.dirty(), level.has_waiters()), (1008, false));
}

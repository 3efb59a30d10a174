//! Leases and locks.

use std::sync::Mutex;

use super::*;
use crate::platform::{LeaseWatch, Lock};
use crate::world::machine::{is_leased, opened};
use crate::world::others::{OpenAs, Patience, Program};

/// A watch that collects the keys it hears.
fn watch() -> (LeaseWatch, Arc<Mutex<Vec<u64>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&heard);
    let watch = LeaseWatch::new(move |key| report.lock().unwrap().push(key)).unwrap();
    (watch, heard)
}

fn sleep_until(done: impl Fn() -> bool) {
    while !done() {
        world::sleep(micros(100));
    }
}

#[test]
fn contract_06_an_open_breaks_the_lease_and_waits_for_its_release() {
    calm(|| {
        let (watch, heard) = watch();
        let file = make("/a");
        file.try_lease(&watch, 9).unwrap();
        assert!(file.has_lease() && file.is_leased());
        let begin = world::now();
        spawn_other("reader", || {
            drop(Program::open("/a", OpenAs::READER).unwrap());
        });
        sleep_until(|| !heard.lock().unwrap().is_empty());
        assert_eq!(*heard.lock().unwrap(), [9]);
        assert!(!file.has_lease() && file.has_lease_still());
        world::sleep(micros(5000));
        assert_eq!(opened("/a"), 1, "the reader still waits");
        file.release_lease();
        sleep_until(|| opened("/a") == 2 || !is_leased("/a"));
        assert!(!file.has_lease_still());
        assert!(world::now() - begin < Duration::from_secs(1));
        watch.shutdown();
        assert!(file.try_lease(&watch, 9).is_err(), "the watch is shut down");
    });
}

#[test]
fn a_lease_that_is_not_released_is_taken_away() {
    calm(|| {
        let (watch, _) = watch();
        let file = make("/a");
        file.try_lease(&watch, 9).unwrap();
        let begin = world::now();
        let program = Program::open("/a", OpenAs::WRITER).unwrap();
        let waited = world::now() - begin;
        assert!(waited >= Duration::from_secs(45) && waited < Duration::from_secs(46));
        assert!(!file.has_lease() && !file.has_lease_still());
        file.release_lease();
        assert_eq!(errno(&file.try_lease(&watch, 9).unwrap_err()), libc::EAGAIN);
        drop(program);
        file.try_lease(&watch, 9).unwrap();
    });
}

#[test]
fn an_open_without_blocking_breaks_the_lease_all_the_same() {
    calm(|| {
        let (watch, heard) = watch();
        let file = make("/a");
        file.try_lease(&watch, 3).unwrap();
        let how = OpenAs { patience: Patience::NonBlocking, ..OpenAs::READER };
        assert_eq!(errno(&Program::open("/a", how).unwrap_err()), libc::EAGAIN);
        sleep_until(|| !heard.lock().unwrap().is_empty());
        assert!(!file.has_lease());
        file.release_lease();
        drop(Program::open("/a", how).unwrap());
        // No other program has it open now: the lease can be taken again.
        file.try_lease(&watch, 4).unwrap();
        assert!(file.has_lease());
    });
}

#[test]
fn the_callback_may_shut_its_watch_down() {
    calm(|| {
        let slot: Arc<Mutex<Option<Arc<LeaseWatch>>>> = Arc::default();
        let own = Arc::clone(&slot);
        let watch = LeaseWatch::new(move |_| {
            let watch = own.lock().unwrap().take();
            watch.expect("one lease is broken once").shutdown();
        });
        let watch = Arc::new(watch.unwrap());
        *slot.lock().unwrap() = Some(Arc::clone(&watch));
        let file = make("/a");
        file.try_lease(&watch, 1).unwrap();
        drop(Program::open("/a", OpenAs::READER).unwrap());
        assert!(!file.has_lease_still());
        watch.shutdown();
    });
}

#[test]
fn a_lease_is_refused_while_the_file_is_open_elsewhere() {
    calm(|| {
        let (watch, _) = watch();
        let file = make("/a");
        let other = Program::open("/a", OpenAs::READER).unwrap();
        assert_eq!(errno(&file.try_lease(&watch, 1).unwrap_err()), libc::EAGAIN);
        drop(other);
        file.try_lease(&watch, 1).unwrap();
    });
    on(MachinePlan::calm(vec![VolumePlan::nfs()]), 1, || {
        let (watch, _) = watch();
        let refused = make("/a").try_lease(&watch, 1).unwrap_err();
        assert_eq!(errno(&refused), libc::EINVAL);
    });
}

#[test]
fn a_ring_keeps_the_old_open_file_until_it_is_renewed() {
    for (choice, is_kept) in [(Choice::IoUring, true), (Choice::Threads, false)] {
        calm(move || {
            let (watch, _) = watch();
            drop(make("/a"));
            let read = How { access: Access::Read, ..how(Create::No) };
            let file = Arc::new(OpenFile::open(Path::new("/a"), &read).unwrap().file);
            let mut rig = Rig::new(choice, Arc::clone(&file));
            assert_eq!(rig.write(0, 0..1, 1), Err(Errno(libc::EBADF)));
            file.make_writable(open("/a", Create::No).unwrap().file).unwrap();
            assert_eq!(file.access(), Access::ReadWrite);
            assert_eq!(file.try_lease(&watch, 1).is_err(), is_kept);
            rig.backend.renew(TARGET);
            file.try_lease(&watch, 1).unwrap();
            assert_eq!(rig.write(0, 0..1, 1), Ok(4096));
        });
    }
}

#[test]
fn a_lock_keeps_other_writers_away_until_its_last_descriptor_is_closed() {
    calm(|| {
        let file = make("/a");
        let reader =
            || OpenFile::open(Path::new("/a"), &How { access: Access::Read, ..how(Create::No) });
        let (one, two) = (reader().unwrap().file, reader().unwrap().file);
        assert_eq!(one.try_ofd_lock().unwrap(), Lock::Taken);
        assert_eq!(two.try_ofd_lock().unwrap(), Lock::Taken);
        assert_eq!(file.try_ofd_lock().unwrap(), Lock::HeldElsewhere);
        drop((one, two));
        assert_eq!(file.try_ofd_lock().unwrap(), Lock::Taken);
        // Another process has the same open file, and keeps the lock if this one leaves it.
        let keeper = file.sent_to(world::new_process("keeper")).unwrap();
        let other = reader().unwrap().file;
        file.leave();
        drop(file);
        assert_eq!(other.try_ofd_lock().unwrap(), Lock::HeldElsewhere);
        drop(keeper);
        assert_eq!(other.try_ofd_lock().unwrap(), Lock::Taken);
    });
}

//! Losses of power, and processes that are killed.

use std::collections::BTreeSet;

use super::*;
use crate::platform::{Alive, files};
use crate::random::Random;
use crate::stored::{Keep, Survivor};
use crate::world::machine::{
    cut_power, in_flight, kill, make_device, mark, opened, set_mounted, stored, survivors, unlink,
};

fn found(path: &str, keep: Keep, seed: u64) -> Survivor {
    survivors(keep, &mut Random::new(seed)).at(path)
}

#[test]
fn contract_01_a_file_survives_once_it_and_its_directory_are_flushed() {
    calm(|| {
        let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
        rig.write(0, 0..1, 1).unwrap();
        rig.flush().unwrap();
        assert!(!found("/a", Keep::Nothing, 0).exists, "its name is not durable");
        rig.act(&plain(Operation::FlushDirectory, 0, 0)).unwrap();
        let survivor = found("/a", Keep::Nothing, 0);
        assert_eq!((survivor.exists, survivor.size), (true, 4096));
        rig.write(1, 0..1, 2).unwrap();
        assert_eq!(found("/a", Keep::Nothing, 0).size, 4096);
        assert_eq!(found("/a", Keep::Everything, 0).size, 8192);
        unlink("/a").unwrap();
        assert!(found("/a", Keep::Nothing, 0).exists && !found("/a", Keep::Everything, 0).exists);
        files::sync_directory_of(Path::new("/dev")).unwrap();
        assert!(!found("/a", Keep::Nothing, 0).exists);
    });
}

#[test]
fn contract_03_a_write_that_was_under_way_may_be_torn() {
    calm(|| {
        let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
        rig.write(0, 0..2, 1).unwrap();
        rig.flush().unwrap();
        files::sync_directory_of(Path::new("/a")).unwrap();
        (0..2).for_each(|frame| rig.fill(frame, 2));
        rig.prepare(&pages(Operation::Write, 0, 0..2));
        rig.backend.doorbell(Wait::Not).unwrap();
        let mut torn = 0;
        for seed in 0..20 {
            let survivor = found("/a", Keep::Some, seed);
            let bytes: BTreeSet<u8> =
                survivor.sectors.iter().map(|sector| crate::stored::bytes_of(sector)[0]).collect();
            assert!(bytes.iter().all(|byte| [1, 2].contains(byte)));
            torn += usize::from(bytes.len() == 2);
        }
        assert!(torn > 3, "{torn}");
        rig.wait(1);
    });
}

#[test]
fn after_a_loss_of_power_the_machine_goes_on_with_what_survived() {
    calm(|| {
        let engine = world::new_process("engine");
        world::spawn(engine, "engine", || {
            let file = make("/a");
            file.set_reservation_mark(3 * 4096).unwrap();
            let mut rig = Rig::new(Choice::Auto, Arc::new(file));
            rig.write(0, 0..1, 1).unwrap();
            rig.act(&plain(Operation::Allocate, 0, 3 * 4096)).unwrap();
            rig.flush().unwrap();
            rig.act(&plain(Operation::FlushDirectory, 0, 0)).unwrap();
            rig.write(1, 0..1, 2).unwrap();
            drop(make("/lost"));
            rig.prepare(&pages(Operation::Write, 0, 0..1));
            rig.backend.doorbell(Wait::Not).unwrap();
            world::sleep(Duration::from_secs(3600));
        });
        while in_flight() == 0
            || opened("/a") == 0
            || stored("/a", crate::stored::StoredFile::size) < 8192
        {
            world::sleep(micros(20));
        }
        kill(engine);
        cut_power(survivors(Keep::Nothing, &mut Random::new(1)));
        assert_eq!((in_flight(), opened("/a")), (0, 0));
        let file = open("/a", Create::No).unwrap().file;
        assert_eq!((file.length().unwrap(), file.allocated_bytes().unwrap()), (4096, 3 * 4096));
        assert_eq!(mark("/a").as_deref(), Some("12288"));
        assert!(open("/lost", Create::New).unwrap().created);
    });
}

#[test]
fn a_killed_process_leaves_its_writes_in_part_and_its_end_is_reported() {
    let mut sizes = BTreeSet::new();
    for seed in 0..40 {
        let size = on(MachinePlan::default(), seed, || {
            let (alive, gone) = Alive::pair().unwrap();
            let engine = world::new_process("engine");
            world::spawn(engine, "engine", move || {
                let file = make("/a");
                file.try_ofd_lock().unwrap();
                let mut rig = Rig::new(Choice::Auto, Arc::new(file));
                assert!(rig.backend.set_alive(&alive));
                drop(alive);
                (0..4).for_each(|frame| rig.fill(frame, 7));
                rig.prepare(&pages(Operation::Write, 0, 0..4));
                rig.backend.doorbell(Wait::Something(None)).unwrap();
                world::sleep(Duration::from_secs(3600));
            });
            while in_flight() == 0 {
                world::sleep(micros(1));
            }
            kill(engine);
            let is_gone = || gone.wait(Some(Duration::ZERO)).unwrap();
            if in_flight() > 0 {
                assert!(!is_gone() && opened("/a") == 1, "the ring still has the file");
            }
            while in_flight() > 0 {
                world::sleep(micros(20));
            }
            assert!(is_gone() && opened("/a") == 0);
            let file = open("/a", Create::No).unwrap().file;
            assert_eq!(file.try_ofd_lock().unwrap(), crate::platform::Lock::Taken);
            let bytes = stored("/a", |file| file.read(0, 1 << 20));
            assert!(bytes.iter().all(|byte| *byte == 7));
            bytes.len()
        });
        sizes.insert(size);
    }
    assert!(sizes.contains(&0) && sizes.contains(&16384) && sizes.len() > 3, "{sizes:?}");
}

#[test]
fn contract_10_a_device_is_held_exclusively_and_keeps_its_size() {
    calm(|| {
        make_device("/dev/disk", 10 * 4096 + 512, 512);
        assert!(files::is_device(Path::new("/dev/disk")));
        let file = open("/dev/disk", Create::No).unwrap().file;
        assert_eq!(file.length().unwrap(), 10 * 4096 + 512);
        assert_eq!(file.logical_block().unwrap(), 512);
        assert_eq!(file.free_bytes().unwrap(), u64::MAX);
        assert_eq!(errno(&open("/dev/disk", Create::No).unwrap_err()), libc::EBUSY);
        let mut rig = Rig::new(Choice::Auto, Arc::new(file));
        rig.write(9, 0..1, 3).unwrap();
        assert_eq!(found("/dev/disk", Keep::Nothing, 0).size, 10 * 4096 + 512);
        assert_eq!(rig.act(&plain(Operation::Discard, 0, 4096)), Ok(0));
        assert_eq!(rig.act(&pages(Operation::Read, 0, 5..6)), Ok(4096));
        assert_eq!(rig.frame(5)[0], crate::stored::DISCARDED);
        drop(rig);
        set_mounted("/dev/disk", true);
        assert_eq!(errno(&open("/dev/disk", Create::No).unwrap_err()), libc::EBUSY);
        assert!(files::mounted_at(Path::new("/dev/disk")).is_some());
    });
}

/// A request that ends meanwhile may make the removal of a name durable, and its file is forgotten.
#[test]
#[should_panic(expected = "the state was drawn before a later change")]
fn a_state_from_before_the_end_of_a_request_is_refused() {
    calm(|| {
        let file = make("/a");
        let found = survivors(Keep::Everything, &mut Random::new(1));
        file.sync().unwrap();
        cut_power(found);
    });
}

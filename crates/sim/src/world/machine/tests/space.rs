//! Space, reservations and attributes.

use super::*;
use crate::faults::NO_SPACE;
use crate::world::machine::{free_pages, mark, set_space_pages};

#[test]
fn contract_09_space_is_allocated_refused_and_given_back() {
    let plan = VolumePlan { space_pages: 10, ..VolumePlan::xfs() };
    on(MachinePlan::calm(vec![plan]), 1, || {
        let file = make("/a");
        assert_eq!(file.free_bytes().unwrap(), 10 * 4096);
        file.allocate(0, 3 * 4096).unwrap();
        assert_eq!((file.length().unwrap(), file.allocated_bytes().unwrap()), (0, 3 * 4096));
        assert!(file.has_space_from(2 * 4096).unwrap() && !file.has_space_from(3 * 4096).unwrap());
        assert_eq!(file.extents().unwrap().count, 1);
        assert_eq!(errno(&file.allocate(0, 11 * 4096).unwrap_err()), libc::ENOSPC);
        file.truncate(0).unwrap();
        assert_eq!(free_pages(0), 10);
        let mut rig = Rig::new(Choice::Auto, Arc::new(file));
        assert_eq!(rig.write(0, 0..8, 1), Ok(8 * 4096));
        assert_eq!(rig.write(8, 0..4, 1), Ok(2 * 4096), "as far as there is space");
        assert_eq!(rig.write(10, 0..1, 1), Err(NO_SPACE));
        set_space_pages(0, 11);
        assert_eq!(rig.write(10, 0..1, 1), Ok(4096));
        assert_eq!(rig.act(&plain(Operation::SetLength, 4096, 0)), Ok(0));
        assert_eq!(free_pages(0), 10);
    });
}

#[test]
fn ext4_keeps_what_is_punched_beyond_the_end_and_xfs_does_not() {
    for (plan, left) in [(VolumePlan::xfs(), 1), (VolumePlan::ext4(), 3)] {
        on(MachinePlan::calm(vec![plan]), 1, move || {
            let file = make("/a");
            file.write_all_at(&[1; 4096], 0).unwrap();
            file.allocate(0, 3 * 4096).unwrap();
            file.punch(4096, 2 * 4096).unwrap();
            assert_eq!(file.allocated_bytes().unwrap(), left * 4096);
        });
    }
}

#[test]
fn a_file_system_refuses_what_it_does_not_have() {
    let plans = vec![VolumePlan::xfs(), VolumePlan::tmpfs(), VolumePlan::ext4()];
    on(MachinePlan::calm(plans), 1, || {
        let (xfs, tmpfs, ext4) = (make("/a"), make("/volume1/a"), make("/volume2/a"));
        xfs.set_reservation_mark(17).unwrap();
        assert_eq!(xfs.reservation_mark().unwrap(), Some(17));
        assert_eq!(mark("/a").as_deref(), Some("17"));
        xfs.remove_reservation_mark().unwrap();
        assert_eq!(xfs.reservation_mark().unwrap(), None);
        assert_eq!(errno(&tmpfs.allocate(0, 1).unwrap_err()), libc::EOPNOTSUPP);
        assert_eq!(errno(&tmpfs.extents().unwrap_err()), libc::EOPNOTSUPP);
        assert_eq!(errno(&tmpfs.reservation_mark().unwrap_err()), libc::EOPNOTSUPP);
        assert!(xfs.can_hold(1 << 50) && !ext4.can_hold(1 << 50));
        assert_eq!(errno(&ext4.truncate(1 << 50).unwrap_err()), libc::EFBIG);
        ext4.write_all_at(&[1; 512], 4096).unwrap();
        assert_eq!((ext4.physical_at(0).unwrap(), ext4.length().unwrap()), (None, 4608));
        assert!(ext4.physical_at(4196).unwrap().is_some_and(|at| at % 4096 == 100));
    });
}

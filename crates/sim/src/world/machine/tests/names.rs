//! Paths, names and identities.

use std::path::PathBuf;

use super::*;
use crate::platform::files;
use crate::world::machine::{
    link, make_device, make_directory, make_link, rename, set_protected, unlink,
};

#[test]
fn files_are_made_found_and_removed() {
    calm(|| {
        assert_eq!(errno(&open("/a", Create::No).unwrap_err()), libc::ENOENT);
        let file = make("/a");
        assert_eq!(errno(&open("/a", Create::New).unwrap_err()), libc::EEXIST);
        assert!(!open("/a", Create::IfMissing).unwrap().created);
        assert!(open("/b", Create::IfMissing).unwrap().created);
        assert_eq!(files::identity_of(Path::new("//./dev/../a")).unwrap(), file.identity());
        assert_eq!(errno(&open("/a/b", Create::New).unwrap_err()), libc::ENOTDIR);
        assert_eq!(errno(&open("/no/b", Create::New).unwrap_err()), libc::ENOENT);
        assert_eq!(errno(&open("/dev", Create::No).unwrap_err()), libc::EISDIR);
        // Open, and without a name: it is there until it is closed.
        file.write_all_at(&[7; 4096], 0).unwrap();
        unlink("/a").unwrap();
        assert_eq!(file.length().unwrap(), 4096);
        assert_eq!(errno(&open("/a", Create::No).unwrap_err()), libc::ENOENT);
    });
}

#[test]
fn links_lead_to_their_target_and_an_exclusive_open_follows_none() {
    calm(|| {
        make_directory("/d");
        make_link("/d/link", "../target");
        make_link("/loop", "loop");
        let path = Path::new("/d/link");
        assert_eq!(errno(&open("/d/link", Create::No).unwrap_err()), libc::ENOENT);
        assert_eq!(errno(&open("/d/link", Create::New).unwrap_err()), libc::EEXIST);
        assert_eq!(files::end_of_links(path), PathBuf::from("/d/../target"));
        let made = open("/d/link", Create::IfMissing).unwrap();
        assert!(made.created);
        assert_eq!(files::identity_of(Path::new("/target")).unwrap(), made.file.identity());
        assert_eq!(errno(&open("/loop", Create::No).unwrap_err()), libc::ELOOP);
        assert_eq!(files::absolute(Path::new("target")).unwrap(), PathBuf::from("/target"));
    });
}

#[test]
fn names_of_one_file_share_its_identity() {
    calm(|| {
        let file = make("/a");
        link("/a", "/b").unwrap();
        rename("/a", "/c").unwrap();
        let identity = |path: &str| files::identity_of(Path::new(path)).ok();
        assert_eq!(
            (identity("/b"), identity("/c")),
            (Some(file.identity()), Some(file.identity()))
        );
        assert_eq!(identity("/a"), None);
        make("/other");
        rename("/other", "/c").unwrap();
        assert_ne!(identity("/c"), Some(file.identity()));
        assert_eq!(link("/no", "/d"), Err(Errno(libc::ENOENT)));
        assert_eq!(link("/b", "/c"), Err(Errno(libc::EEXIST)));
    });
}

#[test]
fn a_protected_file_or_device_opens_for_reading_alone() {
    calm(|| {
        drop(make("/a"));
        make_device("/dev/disk", 8192, 512);
        for path in ["/a", "/dev/disk"] {
            set_protected(path, true);
            assert_eq!(errno(&open(path, Create::No).unwrap_err()), libc::EACCES);
            let read = How { access: Access::Read, ..how(Create::No) };
            let file = OpenFile::open(Path::new(path), &read).unwrap().file;
            assert_eq!(file.access(), Access::Read);
            assert_eq!(errno(&file.write_all_at(&[1; 4096], 0).unwrap_err()), libc::EBADF);
        }
    });
}

#[test]
fn file_systems_have_devices_of_their_own() {
    on(MachinePlan::calm(vec![VolumePlan::xfs(), VolumePlan::tmpfs()]), 1, || {
        let (one, two) = (make("/a"), make("/volume1/a"));
        assert_ne!(one.identity().device, two.identity().device);
        assert_eq!(rename("/a", "/volume1/b"), Err(Errno(libc::EXDEV)));
        assert_eq!(link("/a", "/volume1/b"), Err(Errno(libc::EXDEV)));
        assert_eq!(files::identity_of(Path::new("/volume1/../a")).unwrap(), one.identity());
        assert!(matches!(two.direct(), forebay_uring::Direct::Refused(_)));
        assert!(two.geometry().is_none() && one.geometry().is_some());
    });
}

#[test]
fn an_inode_number_is_used_again_and_a_file_keeps_its_own() {
    let mut reused = 0;
    for seed in 0..20 {
        reused += on(MachinePlan::default(), seed, || {
            let first = make("/a").identity();
            files::sync_directory_of(Path::new("/a")).unwrap();
            unlink("/a").unwrap();
            // The name can still come back: its number is taken.
            assert_ne!(make("/b").identity(), first);
            files::sync_directory_of(Path::new("/b")).unwrap();
            usize::from(make("/c").identity() == first)
        });
    }
    assert!((1..20).contains(&reused), "{reused}");
}

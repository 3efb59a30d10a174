//! Rights of callers: files that may only grow, and owners of what is made.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use crate::place::{Place, bytes};

fn protect(path: &std::path::Path, attribute: &str) -> bool {
    let set = Command::new("chattr").arg(attribute).arg(path).output();
    set.is_ok_and(|set| set.status.success())
}

#[test]
fn a_file_with_the_attribute_a_is_appended_to_and_changed_in_no_other_way() {
    let Some(place) = Place::new() else { return };
    let content = bytes(300_000);
    let (log, kept) = (place.source.join("log"), place.source.join("kept"));
    fs::write(&log, &content).unwrap();
    if !protect(&log, "+a") {
        eprintln!("skipped: no chattr, or this file system has no attribute a");
        return;
    }
    place.mount(&[]);
    let append = |name: &str, text: &[u8]| {
        let file = File::options().append(true).open(place.mount.join(name));
        file.and_then(|mut file| file.write_all(text))
    };
    append("log", b"one").unwrap();
    append("log", b"two").unwrap();
    let refused = |name: &str| {
        let path = place.mount.join(name);
        let write = File::options().write(true).open(&path).map(drop);
        let cut = File::options().append(true).open(&path).and_then(|file| file.set_len(3));
        [write, cut].map(|done| done.unwrap_err().raw_os_error())
    };
    let of_log = refused("log");
    // The mount has this one open still when it gets the attribute.
    let file = File::create(place.mount.join("kept")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    drop(file);
    // chattr does not wait until the mount has released its lease.
    assert!(fs::read(&kept).unwrap() == content);
    assert!(protect(&kept, "+a"));
    let of_kept = refused("kept");
    append("kept", b"three").unwrap();
    place.unmount();
    assert!(protect(&log, "-a") && protect(&kept, "-a"));
    assert_eq!((of_log, of_kept), ([Some(libc::EPERM); 2], [Some(libc::EPERM); 2]));
    assert!(fs::read(&log).unwrap() == [&content[..], b"onetwo"].concat());
    assert!(fs::read(&kept).unwrap() == [&content[..], b"three"].concat());
    assert_eq!(place.log(), "");
}

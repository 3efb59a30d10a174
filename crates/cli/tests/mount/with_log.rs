//! A mount with an intent log in its source.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::place::{Place, bytes, forebay};

const OPTIONS: [&str; 2] = ["--no-survive", "--intent-log=always"];
const WITH_KEEPER: [&str; 1] = ["--intent-log=always"];
const LOG: &str = ".forebay-log";

const PAGE: usize = 4096;

/// Syncs that were logged, as the control socket says.
fn logged_syncs(socket: &str) -> u64 {
    let (code, out, err) = forebay(&["ctl", socket, "stats", "logged_syncs"]);
    assert_eq!(code, Some(0), "{err}");
    out.trim().parse().unwrap()
}

#[test]
fn contract_23_the_next_mount_has_what_a_killed_one_has_logged() {
    // Without the option the log is put back as well.
    for options in [&OPTIONS[..], &[], &["--plain"]] {
        let Some(place) = Place::new() else { return };
        mount_again(&place, &OPTIONS, options);
    }
}

#[test]
fn contract_25_the_next_mount_takes_over_from_the_keeper_of_a_killed_one_with_a_log() {
    let Some(place) = Place::new() else { return };
    mount_again(&place, &WITH_KEEPER, &WITH_KEEPER);
}

/// Kills a mount with records in its log, and mounts its source with other options.
fn mount_again(place: &Place, killed: &[&str], options: &[&str]) {
    let socket = place.directory.path().join("control");
    let socket = socket.to_str().unwrap();
    place.mount(&[killed, &["--control", socket]].concat());
    let file = File::create_new(place.mount.join("file")).unwrap();
    let mut expected = bytes(256 * PAGE);
    file.write_all_at(&expected, 0).unwrap();
    file.sync_all().unwrap();
    let mut synced = 0;
    while logged_syncs(socket) < 20 {
        assert!(synced < 10_000, "no sync is logged");
        let page = bytes(synced % 200 + PAGE)[synced % 200..].to_vec();
        let at = synced * 7 % 256 * PAGE;
        expected[at..at + PAGE].copy_from_slice(&page);
        file.write_all_at(&page, at as u64).unwrap();
        file.sync_data().unwrap();
        synced += 1;
    }
    if killed == WITH_KEEPER {
        // Not synced, and older bytes of it are in a record.
        let page = bytes(3 * PAGE)[2 * PAGE..].to_vec();
        expected[..PAGE].copy_from_slice(&page);
        file.write_all_at(&page, 0).unwrap();
    }
    place.kill();
    drop(file);
    place.mount(options);
    let says = place.log().contains("put bytes of the intent log back into 1 file");
    assert!(says || options == killed, "{}", place.log());
    assert!(fs::read(place.mount.join("file")).unwrap() == expected);
    place.unmount();
    assert!(fs::read(place.source.join("file")).unwrap() == expected);
    assert!(place.source.join(LOG).exists());
}

#[test]
fn programs_do_not_see_the_log_and_cannot_remove_it() {
    let Some(place) = Place::new() else { return };
    place.mount(&OPTIONS);
    let log = place.mount.join(LOG);
    assert!(place.source.join(LOG).exists());
    fs::write(place.mount.join("file"), b"data").unwrap();
    fs::create_dir(place.mount.join("directory")).unwrap();
    let names = |directory: &Path| -> Vec<_> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&place.mount), ["directory", "file"]);
    let missing = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotFound);
    };
    missing(fs::metadata(&log).map(drop));
    missing(fs::remove_file(&log));
    missing(fs::rename(&log, place.mount.join("other")));
    let refused = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    };
    refused(fs::write(&log, b"not a log"));
    refused(fs::create_dir(&log));
    refused(fs::rename(place.mount.join("file"), &log));
    refused(fs::hard_link(place.mount.join("file"), &log));
    // Elsewhere it is a name as any other.
    fs::write(place.mount.join("directory").join(LOG), b"data").unwrap();
    assert_eq!(names(&place.mount.join("directory")), [LOG]);
    place.unmount();
    assert!(place.source.join(LOG).exists());
    // A mount that does not use it hides it, too: a copy of the files has no log.
    place.mount(&[]);
    assert_eq!(names(&place.mount), ["directory", "file"]);
    place.unmount();
}

#[test]
fn a_log_that_cannot_be_used_is_refused_with_the_reason() {
    let Some(place) = Place::new() else { return };
    fs::write(place.source.join(LOG), vec![7; 1 << 20]).unwrap();
    for options in [&OPTIONS[..], &[]] {
        let (source, mount) = (place.source.to_str().unwrap(), place.mount.to_str().unwrap());
        let (code, _, err) = forebay(&[&["mount", source, mount], options].concat());
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains("this file is no intent log"), "{err}");
    }
}

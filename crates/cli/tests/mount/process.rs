//! The process of a mount: the signals that it takes.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::place::{FOREBAY, Place, run, wait_until};

/// Starts a mount in the foreground by a script that sets something before.
fn started_by(script: &str, place: &Place) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!(r#"{script}; exec "$@""#), "sh", FOREBAY, "mount"]);
    command.args([&place.source, &place.mount]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn().unwrap();
    wait_until("it mounts", || is_mounted(place));
    started
}

fn is_mounted(place: &Place) -> bool {
    run(&["mountpoint", "-q", place.mount.to_str().unwrap()]).0 == Some(0)
}

fn signal(process: u32, signal: &str) {
    assert_eq!(run(&["kill", "-s", signal, &process.to_string()]).0, Some(0));
}

#[test]
fn a_signal_that_was_ignored_at_the_start_does_not_end_a_mount() {
    let Some(place) = Place::new() else { return };
    let mut started = started_by("trap '' HUP INT", &place);
    signal(started.id(), "HUP");
    signal(started.id(), "INT");
    std::thread::sleep(std::time::Duration::from_millis(500));
    fs::write(place.mount.join("file"), b"after the hangup").unwrap();
    signal(started.id(), "TERM");
    assert!(started.wait().unwrap().success());
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"after the hangup");
}

#[test]
fn a_hangup_ends_a_mount_that_does_not_ignore_it() {
    let Some(place) = Place::new() else { return };
    let mut started = started_by("trap - HUP", &place);
    fs::write(place.mount.join("file"), b"before").unwrap();
    signal(started.id(), "HUP");
    assert!(started.wait().unwrap().success());
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"before");
}

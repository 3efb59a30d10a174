//! The process of a mount: the signals that it takes, and all that it leaves to its caller.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::place::{FOREBAY, Place, has_ended, run, wait_until};

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

/// Mounts in the background by a script with relative paths, and returns its process.
fn in_background(script: &str, place: &Place, options: &[&str]) -> i32 {
    let script = format!(r#"{script}; "$@""#);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", FOREBAY, "mount", "source", "mount", "--background"]);
    command.args(["--log", "log", "--control", "control"]).args(options);
    // The output is a pipe, whose end this waits for.
    let output = command.current_dir(place.directory.path()).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(output.status.success(), "{out:?} {err:?}");
    let places = format!("{} is mounted at {}", place.source.display(), place.mount.display());
    assert!(out.as_ref().unwrap().starts_with(&places), "{out:?}");
    // Its command line names the mount point as it was typed.
    let listed = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let open = fs::read_link(entry.path().join("fd/2")).ok()?;
        let program = fs::read_to_string(entry.path().join("comm")).ok()?;
        let is_it = open == place.directory.path().join("log") && program.trim() == "forebay";
        is_it.then_some(number)
    });
    let listed: Vec<_> = listed.collect();
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed[0]
}

#[test]
fn a_mount_in_the_background_keeps_nothing_of_its_caller() {
    let Some(place) = Place::new() else { return };
    let lock = place.directory.path().join("lock");
    let script = format!("exec 9>'{}'; flock -n 9; umask 027; exec 8>&1", lock.display());
    let server = in_background(&script, &place, &[]);
    let at = |name: &str| PathBuf::from(format!("/proc/{server}/{name}"));
    let link = |name: &str| fs::read_link(at(name)).unwrap();
    assert_eq!(run(&["flock", "-n", lock.to_str().unwrap(), "true"]).0, Some(0));
    assert_eq!(link("cwd"), Path::new("/"));
    assert_eq!((link("fd/0"), link("fd/1")), ("/dev/null".into(), "/dev/null".into()));
    assert_eq!(link("fd/2"), place.directory.path().join("log"));
    let open: Vec<_> = fs::read_dir(at("fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .collect();
    assert!(!open.contains(&lock), "{open:?}");
    let stat = fs::read_to_string(at("stat")).unwrap();
    let stat: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!((stat[3], stat[4]), (server.to_string().as_str(), "0"), "session and terminal");
    let status = fs::read_to_string(at("status")).unwrap();
    assert!(status.contains("Umask:\t0000\n") && status.contains("SigBlk:\t0000000000000000\n"));
    // The keeper does the same.
    let keepers = fs::read_dir(at("task")).unwrap().filter_map(|task| {
        let children = fs::read_to_string(task.unwrap().path().join("children")).ok()?;
        children.trim().parse::<u32>().ok()
    });
    let keeper = PathBuf::from(format!("/proc/{}", keepers.last().unwrap()));
    assert_eq!(fs::read_link(keeper.join("cwd")).unwrap(), Path::new("/"));
    let status = fs::read_to_string(keeper.join("status")).unwrap();
    assert!(status.contains("Umask:\t0000\n"), "{status}");
    place.unmount();
}

#[test]
fn odd_limits_and_umasks_of_the_caller_do_not_reach_a_mount() {
    let Some(place) = Place::new() else { return };
    let script = "umask 0777; ulimit -S -n 64; ulimit -S -f 1";
    let server = in_background(script, &place, &[]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.directory.path().join("control")), 0o600);
    assert_eq!(mode(Path::new("/run/forebay")), 0o700);
    // Many open files, and one that is longer than the limit.
    let files: Vec<_> = (0..200)
        .map(|number| fs::File::create(place.mount.join(number.to_string())).unwrap())
        .collect();
    fs::write(place.mount.join("long"), vec![7; 3 << 20]).unwrap();
    assert_eq!(mode(&place.mount.join("long")), mode(&place.mount.join("0")));
    assert_ne!(mode(&place.mount.join("long")), 0, "the umask is that of this process");
    drop(files);
    place.unmount();
    assert!(has_ended(server));
    assert_eq!(fs::metadata(place.source.join("long")).unwrap().len(), 3 << 20);
    assert_eq!(place.log(), "");
}

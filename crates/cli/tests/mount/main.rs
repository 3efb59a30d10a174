//! A mounted directory: files behave as those of its source, and nothing acknowledged is lost.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

mod accessed;
mod appends;
mod descriptors;
mod faults;
mod listed;
mod longest;
mod map;
mod passed;
mod place;
mod point;
mod process;
mod programs;
#[path = "../../../forebay/tests/support/refused.rs"]
#[expect(dead_code, reason = "a program that is started has one thread")]
mod refused;
mod rights;
mod rings;
mod small;
mod times;
mod unnamed;
mod upgrade;
mod with_log;

use place::{Place, bytes, forebay};

#[test]
fn files_of_a_mount_are_those_of_its_source() {
    let Some(place) = Place::new() else { return };
    fs::create_dir(place.source.join("sub")).unwrap();
    fs::write(place.source.join("sub/before"), b"written before").unwrap();
    let said = place.mount(&[]);
    assert!(said.contains("is mounted at"), "{said}");
    let path = |name: &str| place.mount.join(name);
    assert_eq!(fs::read(path("sub/before")).unwrap(), b"written before");

    let content = bytes(3_000_001);
    fs::write(path("new"), &content).unwrap();
    assert_eq!(fs::read(path("new")).unwrap(), content);
    assert_eq!(path("new").metadata().unwrap().len(), content.len() as u64);
    let file = File::options().read(true).write(true).open(path("new")).unwrap();
    file.write_all_at(b"over", 1_000_000).unwrap();
    file.set_len(2_000_000).unwrap();
    file.sync_data().unwrap();
    let mut expected = content[..2_000_000].to_vec();
    expected[1_000_000..1_000_004].copy_from_slice(b"over");
    // A sync is visible in the source.
    assert_eq!(fs::read(place.source.join("new")).unwrap(), expected);

    let synchronous = 0o10000; // O_DSYNC
    let mut each = File::options();
    each.write(true).create_new(true).custom_flags(synchronous);
    each.open(path("each")).unwrap().write_all(b"durable").unwrap();
    let source = fs::metadata(place.source.join("each")).unwrap();
    assert_eq!(source.len(), 7, "a synchronous write is in the source when it returns");

    let mut log = File::options().append(true).create(true).open(path("log")).unwrap();
    for _ in 0..3 {
        log.write_all(b"line\n").unwrap();
    }
    assert_eq!(fs::read(path("log")).unwrap(), b"line\nline\nline\n");

    fs::write(path("next"), b"next").unwrap();
    fs::rename(path("next"), path("new")).unwrap();
    assert_eq!(fs::read(place.source.join("new")).unwrap(), b"next");
    let mut read = Vec::new();
    (&file).read_to_end(&mut read).unwrap();
    assert_eq!(read, expected, "the replaced file is still open");
    drop(file);

    fs::hard_link(path("new"), path("link")).unwrap();
    symlink("new", path("symbolic")).unwrap();
    assert_eq!(path("new").metadata().unwrap().nlink(), 2);
    assert_eq!(fs::read(path("symbolic")).unwrap(), b"next");
    fs::set_permissions(path("new"), fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(place.source.join("new").metadata().unwrap().mode() & 0o7777, 0o4711);
    fs::remove_file(path("new")).unwrap();
    assert_eq!(fs::read(place.source.join("link")).unwrap(), b"next");

    let mut names: Vec<_> =
        fs::read_dir(&place.mount).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["each", "link", "log", "sub", "symbolic"]);
    drop(log);
    place.unmount();
    assert_eq!(fs::read(place.source.join("log")).unwrap(), b"line\nline\nline\n");
    assert_eq!(place.log(), "");
}

#[test]
fn the_time_of_a_write_is_that_of_the_write_before_and_after_the_end() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let path = place.mount.join("file");
    let before = SystemTime::now();
    fs::write(&path, bytes(100_000)).unwrap();
    let after = SystemTime::now();
    let written = path.metadata().unwrap().modified().unwrap();
    assert!((before..=after).contains(&written), "{before:?} {written:?} {after:?}");
    // Longer than until the data is written out.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(path.metadata().unwrap().modified().unwrap(), written);
    assert_eq!(path.metadata().unwrap().blocks(), 200);
    let kept = place.mount.join("kept");
    fs::write(&kept, b"text").unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    File::options().write(true).open(&kept).unwrap().set_modified(then).unwrap();
    assert_eq!(kept.metadata().unwrap().modified().unwrap(), then);
    place.unmount();
    let modified = |name| place.source.join(name).metadata().unwrap().modified().unwrap();
    assert_eq!(modified("file"), written);
    assert_eq!(modified("kept"), then);
}

#[test]
fn what_was_written_survives_kill_9_and_the_next_mount_goes_on() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let content = bytes(5_000_000);
    let file = File::create(place.mount.join("file")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    // The mount point is dead until the next mount.
    let server = place.kill();
    drop(file);
    let said = place.mount(&[]);
    assert!(said.contains(&format!("with the files of process {server}")), "{said}");
    assert_eq!(fs::read(place.mount.join("file")).unwrap(), content);
    place.unmount();
    assert_eq!(fs::read(place.source.join("file")).unwrap(), content);
}

#[test]
fn a_file_that_replaces_another_survives_kill_9_without_a_keeper() {
    let Some(place) = Place::new() else { return };
    place.mount(&["--no-survive"]);
    let (next, name) = (place.mount.join("next"), place.mount.join("name"));
    let content = bytes(8 << 20);
    fs::write(&name, b"replaced").unwrap();
    fs::write(&next, &content).unwrap();
    fs::rename(next, name).unwrap();
    // Nobody has opened the file in the source, so the engine had no other reason to write it.
    place.kill();
    assert!(fs::read(place.source.join("name")).unwrap() == content);
}

#[test]
fn a_change_of_the_source_is_seen_within_a_second_or_two() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let (here, there) = (place.mount.join("file"), place.source.join("file"));
    fs::write(&here, b"from the mount").unwrap();
    // Another program's open has the engine write out what it holds.
    assert_eq!(fs::read(&there).unwrap(), b"from the mount");
    fs::write(&there, b"from another program").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(fs::read(&here).unwrap(), b"from another program");
    fs::write(place.source.join("more"), b"").unwrap();
    assert!(place.mount.join("more").exists());
    place.unmount();
}

#[test]
fn removed_files_give_their_space_back_and_are_not_written() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let path = place.mount.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&bytes(1 << 20), 0).unwrap();
    fs::remove_file(&path).unwrap();
    let mut read = vec![0; 1 << 20];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, bytes(1 << 20));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    let server = place.server();
    let begin = Instant::now();
    loop {
        let held = fs::read_dir(format!("/proc/{server}/fd")).unwrap().flatten();
        let mut names = held.filter_map(|entry| fs::read_link(entry.path()).ok());
        if !names.any(|name| name.starts_with(&place.source) && name != place.source) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "the removed file is still open");
        std::thread::sleep(Duration::from_millis(20));
    }
    place.unmount();
}

#[test]
fn a_write_of_another_user_removes_the_bit_for_the_identity_of_the_owner() {
    use std::os::unix::process::CommandExt as _;
    let Some(mut place) = Place::new() else { return };
    // The directories above may be closed to other users.
    let away = tempfile::tempdir().unwrap();
    fs::set_permissions(away.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place.mount = away.path().join("mount");
    fs::create_dir(&place.mount).unwrap();
    place.mount(&[]);
    let path = place.mount.join("program");
    let mode = || path.metadata().unwrap().mode() & 0o7777;
    let append = |user| {
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", "printf x >> program"]).current_dir(&place.mount).uid(user);
        assert!(written.status().unwrap().success());
    };
    fs::write(&path, b"text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    append(0);
    assert_eq!(mode(), 0o6777, "root keeps them");
    append(1);
    assert_eq!(mode(), 0o777);
    place.unmount();
}

#[test]
fn a_mount_in_use_stays_and_a_signal_ends_it_with_everything_written() {
    let Some(place) = Place::new() else { return };
    place.mount(&["--no-survive"]);
    let file = File::create(place.mount.join("file")).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("have files of it open"), "{err}");
    let server = place.server();
    Command::new("kill").arg(server.to_string()).status().unwrap();
    let begin = Instant::now();
    while Path::new(&format!("/proc/{server}/exe")).exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"written");
    assert_eq!(fs::read_dir(&place.mount).unwrap().count(), 0);
    let log = place.log();
    assert!(log.contains("without a keeper"), "{log}");
}

#[test]
fn unsuitable_arguments_are_refused_in_one_line() {
    let Some(place) = Place::new() else { return };
    let (source, mount) = (place.source.to_str().unwrap(), place.mount.to_str().unwrap());
    let inside = place.source.join("inside");
    fs::create_dir(&inside).unwrap();
    let file = place.source.join("file");
    fs::write(&file, b"").unwrap();
    let (inside, file) = (inside.to_str().unwrap(), file.to_str().unwrap());
    for (words, expected) in [
        (&["mount", "missing", mount][..], "No such file"),
        (&["mount", file, mount], "is not a directory"),
        (&["mount", source, "missing"], "No such file"),
        (&["mount", source, file], "is not a directory"),
        (&["mount", source, inside], "inside of the source"),
        (&["mount", inside, source], "contains the source"),
        (&["mount", source, mount, "--set", "cache_bytes=1"], "cache_bytes"),
        (&["mount", source, mount, "--set", "cache_bytes=1", "--background"], "cache_bytes"),
        (&["mount", source, mount, "--plain", "--set", "plug=none"], "--plain"),
        (&["unmount", mount], "is not a mount point"),
        (&["unmount", "/proc"], "not by forebay"),
    ] {
        let (code, _, err) = forebay(words);
        assert_eq!(code, Some(2), "{words:?}: {err}");
        assert!(err.contains(expected) && err.trim_end().lines().count() == 1, "{words:?}: {err}");
    }
    place.mount(&[]);
    let (code, _, err) = forebay(&["mount", source, mount]);
    assert!(code == Some(2) && err.contains("is mounted already"), "{err}");
    place.unmount();
}

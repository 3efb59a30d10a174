//! Requests that come in rings: FUSE over io_uring, if root may switch it on.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::{Place, bytes, has_ended, run, wait_until};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const SAYS: &str = "requests come over io_uring";

/// The parameter with a value, until dropped.
struct Parameter {
    before: String,
}

impl Parameter {
    /// Returns `None`, after a message, if the kernel has no such parameter.
    fn set(value: &str) -> Option<Self> {
        let Ok(before) = fs::read_to_string(PARAMETER) else {
            eprintln!("skipped: no {PARAMETER}");
            return None;
        };
        fs::write(PARAMETER, value).unwrap();
        Some(Self { before })
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        let _ = fs::write(PARAMETER, &self.before);
    }
}

/// A place beside which no other test mounts, while the parameter has a value.
fn with(value: &str) -> Option<(Place, Parameter)> {
    let place = Place::alone()?;
    Some((place, Parameter::set(value)?))
}

#[test]
fn files_are_the_same_by_rings_and_without_and_the_mount_says_which() {
    for value in ["Y", "N"] {
        let permits = value == "Y";
        let Some((place, _parameter)) = with(value) else { return };
        let said = place.mount(&["--rings"]);
        assert_eq!(said.contains(SAYS), permits, "{said}");
        let content = bytes(3_000_001);
        fs::write(place.mount.join("file"), &content).unwrap();
        assert!(fs::read(place.mount.join("file")).unwrap() == content);
        // The longest name, whose request and entry have it beside their fields.
        let longest = "n".repeat(255);
        fs::write(place.mount.join(&longest), b"short").unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&place.mount).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["file", &*longest]);
        // Its answer has a value, and the request a name.
        let set = rustix::fs::setxattr(
            place.mount.join("file"),
            "user.test",
            b"value",
            rustix::fs::XattrFlags::empty(),
        );
        set.unwrap();
        let mut value = [0; 16];
        let found = rustix::fs::getxattr(place.mount.join("file"), "user.test", &mut value);
        assert_eq!(&value[..found.unwrap()], b"value");
        assert_eq!(fs::metadata(place.mount.join("none")).unwrap_err().kind(), NOT_FOUND);
        place.unmount();
        assert!(fs::read(place.source.join("file")).unwrap() == content);
        let says_why = place.log().contains("the kernel does not offer it");
        assert_eq!((says_why, place.log().lines().count()), (!permits, usize::from(!permits)));
    }
}

const NOT_FOUND: std::io::ErrorKind = std::io::ErrorKind::NotFound;

/// More callers than a queue has threads, all on one processor, so all in one queue.
#[test]
fn many_syncs_of_one_processor_end() {
    let Some((place, _parameter)) = with("Y") else { return };
    place.mount(&["--rings"]);
    let path = place.mount.to_str().unwrap();
    let script = "for i in $(seq 40); do \
                  dd if=/dev/zero of=\"$0/f$i\" bs=64k count=4 conv=fsync 2>&- & done; wait";
    let (code, _, err) = run(&["taskset", "-c", "0", "sh", "-c", script, path]);
    assert_eq!(code, Some(0), "{err}");
    for number in 1..=40 {
        let length = place.source.join(format!("f{number}")).metadata().unwrap().len();
        assert_eq!(length, 4 << 16, "f{number}");
    }
    place.unmount();
}

#[test]
fn a_mount_by_rings_ends_by_kill_9_and_by_a_signal_with_files_in_use() {
    let Some((place, _parameter)) = with("Y") else { return };
    place.mount(&["--rings"]);
    let content = bytes(5_000_000);
    let file = File::create(place.mount.join("file")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    let server = place.kill();
    assert!(file.metadata().is_err(), "nobody serves it");
    drop(file);
    let said = place.mount(&["--rings"]);
    assert!(said.contains(&format!("with the files of process {server}")), "{said}");
    assert!(said.contains(SAYS) && fs::read(place.mount.join("file")).unwrap() == content);
    // A program that writes when the mount is detached gets an error, and does not hang.
    let mut writer = Command::new("sh")
        .args(["-c", "while printf xxxxxxxx; do :; done >> more 2>/dev/null"])
        .current_dir(&place.mount)
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let server = place.server();
    let begin = Instant::now();
    assert_eq!(run(&["kill", &server.to_string()]).0, Some(0));
    wait_until("the process ends", || has_ended(server));
    let number = writer.id().cast_signed();
    wait_until("the writer fails", || has_ended(number));
    writer.wait().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert!(place.source.join("more").metadata().unwrap().len() > 0);
}

/// The kernel sends names to forget by the device, and takes notifications there.
#[test]
fn names_are_forgotten_beside_the_rings() {
    let Some((place, _parameter)) = with("Y") else { return };
    let words = ["prlimit", "--nofile=512:512", "setpriv", "--bounding-set=-sys_resource", "--"];
    let said = place.mount_by(&words, &["--rings"]);
    assert!(said.contains(SAYS), "{said}");
    for number in 0..600 {
        let mut file = File::create(place.mount.join(format!("file-{number}"))).unwrap();
        file.write_all(b"text").unwrap();
    }
    assert_eq!(fs::read_dir(&place.mount).unwrap().count(), 600);
    for number in 0..600 {
        assert_eq!(fs::read(place.mount.join(format!("file-{number}"))).unwrap(), b"text");
    }
    place.unmount();
}

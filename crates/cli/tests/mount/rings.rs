//! Requests that come in rings: FUSE over io_uring, if root may switch it on.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::{FOREBAY, Place, bytes, has_ended, run, wait_until};
use crate::refused::{self, Threads};
use crate::rights::Others;

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

#[test]
fn a_user_has_rings_too() {
    let Some((place, parameter)) = with("Y") else { return };
    let others = Others::of(place);
    // Dropped first: other tests wait for the place.
    let _parameter = parameter;
    let Some(said) = others.use_mount_of_user("--rings") else { return };
    assert!(said.contains(SAYS), "{said}");
}

/// A filter may permit a ring, and no request to it.
#[test]
fn without_io_uring_requests_come_by_the_device_and_the_log_says_why() {
    // The engine takes a ring that it may make.
    let of_engine: &[&str] = &[];
    for (number, data) in
        [(libc::SYS_io_uring_setup, of_engine), (libc::SYS_io_uring_enter, &["--plain"])]
    {
        let Some((place, _parameter)) = with("Y") else { return };
        let log = place.directory.path().join("log");
        let mut mount = Command::new(FOREBAY);
        mount.arg("mount").args([&place.source, &place.mount]).args(data);
        mount.args(["--rings", "--background", "--log"]).arg(&log);
        // SAFETY: until it becomes another program, the process makes system calls alone.
        unsafe {
            mount.pre_exec(move || {
                refused::system_call(number, libc::EPERM, Threads::This);
                Ok(())
            });
        }
        let said = mount.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        assert!(!String::from_utf8(said.stdout).unwrap().contains(SAYS));
        let content = bytes(3_000_001);
        fs::write(place.mount.join("file"), &content).unwrap();
        assert!(fs::read(place.mount.join("file")).unwrap() == content);
        place.unmount();
        assert!(fs::read(place.source.join("file")).unwrap() == content);
        let why = "requests do not come over io_uring: Operation not permitted";
        assert!(place.log().contains(why), "{}", place.log());
    }
}

/// Each of the threads of a queue has a ring of its own.
#[test]
fn with_few_descriptors_many_callers_are_served() {
    let Some((place, _parameter)) = with("Y") else { return };
    let words = ["prlimit", "--nofile=256:256", "setpriv", "--bounding-set=-sys_resource", "--"];
    let said = place.mount_by(&words, &["--rings"]);
    assert!(said.contains(SAYS), "{said}");
    let name = |number| format!("file-{number}");
    std::thread::scope(|scope| {
        for number in 0..40 {
            let path = place.mount.join(name(number));
            scope.spawn(move || {
                let file = File::create(&path).unwrap();
                file.write_all_at(&bytes(300_000), 0).unwrap();
                file.sync_all().unwrap();
                assert!(fs::read(&path).unwrap() == bytes(300_000));
            });
        }
    });
    place.unmount();
    for number in 0..40 {
        let content = fs::read(place.source.join(name(number))).unwrap();
        assert!(content == bytes(300_000), "{number}");
    }
}

/// Memory of rings counts as locked. The kernel may have some of the queues by then.
#[test]
fn a_mount_without_memory_for_its_rings_works_by_the_device() {
    let Some((place, _parameter)) = with("Y") else { return };
    let file = place.mount.join("file");
    for limit in (1..64).rev() {
        let limit = format!("--memlock={0}:{0}", limit * 8192);
        let words = ["prlimit", &limit, "setpriv", "--bounding-set=-ipc_lock", "--"];
        // The engine takes no less then.
        let Some(said) = place.try_to_mount_by(&words, &["--rings"]) else { break };
        fs::write(&file, &said).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), said);
        place.unmount();
        if !said.contains(SAYS) {
            let why = "requests do not come over io_uring: Cannot allocate memory";
            assert!(place.log().contains(why), "{}", place.log());
            return;
        }
    }
    eprintln!("skipped: the engine has no memory where a mount has none for its rings");
}

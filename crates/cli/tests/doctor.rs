//! `forebay doctor` as it is built, on real file systems and devices, beside what their own
//! programs say of them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn forebay(words: &[&str], path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("doctor").args(words).arg(path);
    command
}

/// The code and the document.
fn examined(command: &mut Command) -> (i32, Value) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert_eq!(stderr, "");
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    let code = status.code().unwrap();
    // The code is that of the findings.
    let levels: Vec<_> =
        findings(&report).iter().map(|finding| finding["level"].as_str().unwrap()).collect();
    let is_less = levels.iter().any(|level| ["degraded", "missing"].contains(level));
    let expected = match report["strength"].as_str().unwrap() {
        "full" => 0,
        "degraded" => 1,
        _ => 2,
    };
    assert_eq!((code, is_less), (expected, code != 0), "{report:#}");
    (code, report)
}

fn report(path: &Path) -> Value {
    examined(&mut forebay(&["--json"], path)).1
}

fn findings(report: &Value) -> &Vec<Value> {
    report["findings"].as_array().unwrap()
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = findings(report).iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

fn level<'a>(report: &'a Value, name: &str) -> &'a str {
    finding(report, name)["level"].as_str().unwrap()
}

/// Returns whether there is no finding of these names.
fn has_none_of(report: &Value, names: &[&str]) -> bool {
    findings(report).iter().all(|finding| names.iter().all(|name| finding["name"] != *name))
}

fn found<'a>(report: &'a Value, name: &str) -> &'a str {
    finding(report, name)["found"].as_str().unwrap()
}

/// The command that a finding's remedy is.
fn remedy<'a>(report: &'a Value, name: &str) -> &'a str {
    finding(report, name)["remedy"]["command"]["line"]
        .as_str()
        .unwrap_or_else(|| panic!("{name}: no command"))
}

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn said(program: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } =
        output.map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(format!("{program}: {status}: {}", String::from_utf8_lossy(&stderr)))
}

/// Does as a remedy says.
fn obey(line: &str) {
    said("/bin/sh", &[OsStr::new("-ec"), OsStr::new(line)])
        .unwrap_or_else(|error| panic!("{line}: {error}"));
}

fn is_root() -> bool {
    said("id", &[OsStr::new("-u")]).unwrap() == "0\n"
}

/// Makes a thing that only root can make. Without root or the programs it prints a skip. In
/// continuous integration it must be possible.
fn made_by_root<T>(test: &str, make: impl FnOnce() -> Result<T, String>) -> Option<T> {
    if !is_root() {
        println!("skipped {test}: only root can make file systems and devices");
        return None;
    }
    match make() {
        Ok(made) => Some(made),
        Err(error) if std::env::var_os("CI").is_some_and(|value| value == "true") => {
            panic!("{test} must run here, and cannot: {error}")
        }
        Err(error) => {
            println!("skipped {test}: {error}");
            None
        }
    }
}

/// A file system of a test's own on a loop device; unmounted when dropped.
struct Mount {
    directory: TempDir,
    /// The device, which goes with its last user: so it stays while a remedy mounts it anew.
    device: Option<fs::File>,
    is_mounted: bool,
}

impl Mount {
    fn new(kind: &str, make: &[&str], options: &str, bytes: u64) -> Result<Self, String> {
        let mut mount = Self { directory: directory(), device: None, is_mounted: false };
        fs::create_dir(mount.point()).unwrap();
        if kind == "tmpfs" {
            let words = ["-t", "tmpfs", "-o", options, "tmpfs"].map(OsStr::new);
            said("mount", &[&words, &[mount.point().as_os_str()][..]].concat())?;
            mount.is_mounted = true;
            return Ok(mount);
        }
        let image = mount.directory.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let words: Vec<_> = make.iter().map(OsStr::new).chain([image.as_os_str()]).collect();
        said(&format!("mkfs.{kind}"), &words)?;
        let options = format!("loop,{options}");
        let point = mount.point();
        let words = ["-o".as_ref(), options.as_ref(), image.as_os_str(), point.as_os_str()];
        said("mount", &words)?;
        mount.is_mounted = true;
        mount.device = Some(fs::File::open(mount.device()).unwrap());
        Ok(mount)
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn device(&self) -> PathBuf {
        let point = self.point();
        let words = ["-n", "-o", "SOURCE", "--mountpoint"].map(OsStr::new);
        said("findmnt", &[&words, &[point.as_os_str()][..]].concat()).unwrap().trim().into()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.is_mounted {
            return;
        }
        let gone = || said("umount", &[self.point().as_os_str()]);
        // Where a remedy has mounted it anew the loop device may be closed a moment late.
        let is_gone = (0..50).any(|_| {
            gone().is_ok() || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                false
            }
        });
        assert!(is_gone || std::thread::panicking(), "{:?}", gone());
    }
}

#[test]
fn a_directory_a_file_and_nothing_are_places() {
    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let of_directory = report(directory.path());
    let of_file = report(&file);
    assert_eq!(
        (of_directory["kind"].as_str(), of_file["kind"].as_str()),
        (Some("directory"), Some("file"))
    );
    assert_eq!(of_directory["schema"], 1);
    for name in [
        "kernel",
        "engine",
        "io_uring",
        "ring features",
        "processors",
        "memory",
        "huge pages",
        "descriptors",
        "type",
        "free space",
        "access",
        "direct I/O",
        "write lease",
        "reservation",
        "reservation mark",
    ] {
        finding(&of_directory, name);
        finding(&of_file, name);
    }
    // Nothing is left, and nothing changed.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(fs::read(&file).unwrap(), vec![7; 1 << 20]);

    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["doctor", "--verbose"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nKernel and io_uring\n") && text.contains("\nFiles there\n"), "{text}");
    // But for words that cannot be broken.
    for line in text.lines().filter(|line| line.chars().count() > 72) {
        assert!(
            line.trim_start().trim_start_matches(['#', '$', ' ']).split(' ').count() <= 2,
            "{line}"
        );
    }
}

#[test]
fn what_is_no_place_is_refused_in_one_line() {
    for (path, expected) in [
        (
            "/no/such/place",
            "cannot look at /no/such/place: No such file or directory (os error 2); give an existing \
             file, directory or block device",
        ),
        ("/dev/null", "/dev/null: not a file, directory or block device; give one of these"),
    ] {
        let Output { status, stdout, stderr } = forebay(&[], Path::new(path)).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{stderr}");
        assert_eq!(stderr, format!("forebay: {expected}\n"));
    }
}

#[test]
fn the_queue_is_reported_as_sys_reports_it() {
    let directory = directory();
    let report = report(directory.path());
    let Some(scheduler) = findings(&report).iter().find(|finding| finding["name"] == "scheduler")
    else {
        println!("skipped: the directory is on no block device of its own");
        return;
    };
    let number = said(
        "findmnt",
        &["-n", "-o", "MAJ:MIN", "--target"]
            .map(OsStr::new)
            .into_iter()
            .chain([directory.path().as_os_str()])
            .collect::<Vec<_>>(),
    );
    let Ok(number) = number else { return };
    let disk = PathBuf::from(format!("/sys/dev/block/{}", number.trim())).canonicalize().unwrap();
    let disk = if disk.join("queue").is_dir() { disk } else { disk.parent().unwrap().to_owned() };
    let reported =
        |file: &str| fs::read_to_string(disk.join("queue").join(file)).unwrap().trim().to_owned();
    assert!(reported("scheduler").contains(scheduler["found"].as_str().unwrap()));
    assert!(
        found(&report, "request size")
            .starts_with(&format!("up to {} KiB", reported("max_sectors_kb")))
    );
}

#[test]
fn a_new_xfs_is_full() {
    let made = || Mount::new("xfs", &["-q", "-f"], "rw", 320 * MIB);
    let Some(mount) = made_by_root("a_new_xfs", made) else { return };
    let report = report(&mount.point());
    assert_eq!(found(&report, "type"), "xfs");
    for name in ["type", "direct I/O", "write lease", "reservation", "reservation mark"] {
        assert_eq!(level(&report, name), "full", "{report:#}");
    }
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 0);
}

#[test]
fn options_of_xfs_are_found_and_remedied() {
    let test = "options_of_xfs";
    let options = "wsync,sync,dirsync,discard";
    let made = || Mount::new("xfs", &["-q", "-f", "-d", "agcount=2"], options, 320 * MIB);
    let Some(mount) = made_by_root(test, made) else { return };
    let point = mount.point();
    let before = report(&point);
    assert_eq!(found(&before, "wsync"), "mounted with wsync");
    for name in ["wsync", "sync", "dirsync", "discard", "free space"] {
        assert_eq!(level(&before, name), "degraded", "{before:#}");
    }
    obey(remedy(&before, "sync"));
    let after = report(&point);
    assert!(has_none_of(&after, &["sync"]), "{after:#}");
    // One new mount removes all options that a remount does not change.
    obey(remedy(&after, "wsync"));
    let last = report(&point);
    assert!(has_none_of(&last, &["wsync", "dirsync", "discard"]), "{last:#}");
}

#[test]
fn ext4_that_journals_data_has_no_direct_io_until_it_is_remedied() {
    let test = "ext4_that_journals_data";
    let made = || Mount::new("ext4", &["-q", "-F"], "data=journal,barrier=0", 64 * MIB);
    let Some(mount) = made_by_root(test, made) else { return };
    let before = report(&mount.point());
    assert_eq!((level(&before, "data"), level(&before, "barrier")), ("degraded", "degraded"));
    assert_eq!(level(&before, "direct I/O"), "missing");
    obey(remedy(&before, "barrier"));
    let after = report(&mount.point());
    assert!(has_none_of(&after, &["barrier"]), "{after:#}");
    obey(remedy(&after, "data"));
    assert_eq!(level(&report(&mount.point()), "direct I/O"), "full");
}

#[test]
fn tmpfs_is_memory_and_can_be_mounted_read_only() {
    let test = "tmpfs_is_memory";
    let Some(mount) = made_by_root(test, || Mount::new("tmpfs", &[], "ro,size=64m", 0)) else {
        return;
    };
    let before = report(&mount.point());
    assert_eq!((found(&before, "type"), level(&before, "type")), ("tmpfs", "degraded"));
    assert_eq!((level(&before, "ro"), level(&before, "access")), ("missing", "degraded"));
    assert_eq!(level(&before, "trial"), "not_known");
    assert!(findings(&before).iter().all(|finding| finding["part"] != "device"), "{before:#}");
    obey(remedy(&before, "ro"));
    assert_eq!(level(&report(&mount.point()), "access"), "full");
}

#[test]
fn a_device_is_read_and_never_written_and_one_in_use_is_refused() {
    let test = "a_device_is_read";
    let made = || Mount::new("ext4", &["-q", "-F"], "rw", 64 * MIB);
    let Some(mount) = made_by_root(test, made) else { return };
    let device = mount.device();
    let (code, mounted) = examined(&mut forebay(&["--json"], &device));
    assert_eq!((code, mounted["kind"].as_str()), (2, Some("device")));
    assert_eq!(found(&mounted, "access"), format!("mounted at {}", mount.point().display()));
    assert!(found(&mounted, "below it").contains(mount.directory.path().to_str().unwrap()));

    let image = mount.directory.path().join("other");
    fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    let words = ["--find".as_ref(), "--show".as_ref(), "--read-only".as_ref(), image.as_os_str()];
    let device = PathBuf::from(said("losetup", &words).unwrap().trim());
    // The device is read-only, so an attempt to write shows as an error.
    let (code, free) = examined(&mut forebay(&["--json"], &device));
    let detached = said("losetup", &["--detach".as_ref(), device.as_os_str()]);
    assert_eq!(
        (code, level(&free, "access"), found(&free, "access")),
        (1, "degraded", "read only")
    );
    assert_eq!(remedy(&free, "access"), format!("blockdev --setrw {}", device.display()));
    detached.unwrap();
}

#[test]
fn who_forbids_io_uring_is_reported() {
    let directory = directory();
    for (errno, expected) in
        [(libc::EPERM, "forbidden by a seccomp filter"), (libc::ENOSYS, "seccomp filter")]
    {
        let mut command = forebay(&["--json"], directory.path());
        // SAFETY: between fork and exec nothing but system calls with memory of this function's
        // own.
        unsafe { command.pre_exec(move || refuse_io_uring(errno)) };
        let (code, report) = examined(&mut command);
        assert_eq!(code, 1);
        assert!(found(&report, "io_uring").contains(expected), "{report:#}");
        assert_eq!((level(&report, "io_uring"), level(&report, "engine")), ("missing", "degraded"));
        assert!(found(&report, "engine").starts_with("thread pool: "), "{report:#}");
    }
}

/// Makes the kernel answer `io_uring_setup` with this error, in this thread and in the program that
/// it becomes.
fn refuse_io_uring(errno: i32) -> io::Result<()> {
    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    // Offsets of the call's number and of the architecture in the data that the filter reads.
    const NUMBER: u32 = 0;
    const NUMBERS_OF: u32 = 4;
    let load = |offset: u32| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    // Skips `skip` instructions if the word is not `value`.
    let unless = |value: u32, skip: u8| libc::sock_filter { code: 0x15, jt: 0, jf: skip, k: value };
    let answer = |action: u32| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: action };
    let mut filter = [
        load(NUMBERS_OF),
        unless(ARCHITECTURE, 3),
        load(NUMBER),
        unless(libc::SYS_io_uring_setup as u32, 1),
        answer(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers alone.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its instructions, as many as it says, are read during the call.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn another_user_learns_what_he_may() {
    let test = "another_user_learns";
    let made = || {
        let directory = tempfile::Builder::new()
            .prefix("forebay-")
            .tempdir()
            .map_err(|error| error.to_string())?;
        said("setpriv", &["--version".as_ref()]).map(|_| directory)
    };
    let Some(directory) = made_by_root(test, made) else { return };
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    obey(&format!(
        "chmod 755 {0}; chmod 644 {0}/file; chown 65534 {0}/file",
        directory.path().display()
    ));
    // The program itself may lie where nobody else may go.
    let program = directory.path().join("forebay");
    fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65533", "--regid=65533", "--clear-groups", "--inh-caps=-all"]);
    let (code, report) = examined(command.arg(&program).args(["doctor", "--json"]).arg(&file));
    assert_eq!(code, 1);
    assert_eq!((level(&report, "access"), level(&report, "trial")), ("degraded", "not_known"));
    assert!(found(&report, "trial").contains("Permission denied"), "{report:#}");
}

//! Programs: one that is closed in the mount runs in the source, and one that runs is not cut.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::place::{Place, run, wait_until};

/// Limit from the last close on, with time for a busy machine.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs a program as soon as no descriptor of it is open for writing.
fn runs_within(path: &Path, closed: Instant, meanwhile: impl Fn()) {
    loop {
        meanwhile();
        let error = match Command::new(path).status() {
            Ok(status) => return assert!(status.success(), "{path:?}"),
            Err(error) => error,
        };
        assert_eq!(error.raw_os_error(), Some(libc::ETXTBSY), "{path:?}: {error}");
        assert!(closed.elapsed() < LIMIT, "{path:?} is busy after {:?}", closed.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A script is a small file.
fn copy_programs(place: &Place, name: &str) -> [String; 2] {
    let (script, program) = (format!("{name}-script"), format!("{name}-program"));
    let script_here = place.mount.join(&script);
    fs::write(&script_here, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&script_here, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy("/bin/bash", place.mount.join(&program)).unwrap();
    [script, program]
}

#[test]
fn a_program_that_was_copied_runs_in_the_source_soon_after() {
    let Some(place) = Place::new() else { return };
    if !Path::new("/bin/bash").exists() {
        return eprintln!("skipped: no program to copy");
    }
    place.mount(&[]);
    let mut names = copy_programs(&place, "copied").to_vec();
    // Written again when it had been in the source before.
    for name in copy_programs(&place, "changed") {
        let path = place.source.join(&name);
        runs_within(&path, Instant::now(), || {});
        let mut file = OpenOptions::new().append(true).open(place.mount.join(&name)).unwrap();
        file.write_all(b"\n").unwrap();
        file.sync_all().unwrap();
        names.push(name);
    }
    let closed = Instant::now();
    names.iter().for_each(|name| runs_within(&place.source.join(name), closed, || {}));

    // A mount that takes over the files of a process that has died.
    let names = copy_programs(&place, "adopted");
    let killed = Command::new("kill").args(["-9", &place.server().to_string()]).status();
    assert!(killed.unwrap().success());
    while place.mount.metadata().is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    place.mount(&[]);
    let adopted = Instant::now();
    names.iter().for_each(|name| runs_within(&place.source.join(name), adopted, || {}));

    // A program that reads them again and again opens a file that is open for writing.
    let names = copy_programs(&place, "read");
    let read = |name: &String| drop(fs::read(place.mount.join(name)).unwrap());
    let closed = Instant::now();
    for name in &names {
        runs_within(&place.source.join(name), closed, || names.iter().for_each(read));
    }
    place.unmount();
}

/// Opens that a running program forbids: for writing, or with a cut.
const FORBIDDEN: [OFlags; 4] = [
    OFlags::WRONLY,
    OFlags::WRONLY.union(OFlags::TRUNC),
    OFlags::RDWR.union(OFlags::TRUNC),
    OFlags::RDONLY.union(OFlags::TRUNC),
];

/// Returns the errors of these opens.
fn refused(path: &Path) -> [Option<i32>; 4] {
    FORBIDDEN.map(|flags| {
        let opened = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        opened.err().map(rustix::io::Errno::raw_os_error)
    })
}

/// Starts a copy of the shell, which waits for its input.
fn waiting(path: &Path) -> Child {
    let mut shell = Command::new(path);
    shell.args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_program_that_runs_is_not_cut_by_any_open() {
    for options in [&[][..], &["--plain"]] {
        let Some(place) = Place::new() else { return };
        if !Path::new("/bin/bash").exists() {
            return eprintln!("skipped: no program to copy");
        }
        place.mount(options);
        let program = fs::read("/bin/bash").unwrap();
        for path in [place.source.join("there"), place.mount.join("here")] {
            // By another process: a child of this one might have the file open for writing.
            assert_eq!(run(&["cp", "/bin/bash", path.to_str().unwrap()]).0, Some(0));
            let [mut first, mut second] = [(); 2].map(|()| waiting(&path));
            let of_both = refused(&path);
            if path.starts_with(&place.source) && of_both[0].is_none() {
                // Linux 6.11 and 6.12 forbid none of these.
                second.kill().and_then(|()| second.wait()).unwrap();
                first.kill().and_then(|()| first.wait()).unwrap();
                place.unmount();
                return eprintln!("skipped: the kernel lets programs write one that runs");
            }
            first.kill().and_then(|()| first.wait()).unwrap();
            // The mount hears of the end later.
            std::thread::sleep(Duration::from_millis(100));
            let of_one = refused(&path);
            let left = fs::read(&path).unwrap();
            second.kill().and_then(|()| second.wait()).unwrap();
            assert_eq!(of_both, [Some(libc::ETXTBSY); 4], "{path:?} {options:?}");
            assert_eq!(of_one, of_both, "{path:?} {options:?}");
            assert!(left == program, "{path:?} {options:?}");
            wait_until("it can be cut", || refused(&path)[3].is_none());
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        }
        place.unmount();
        assert_eq!(place.log(), "");
    }
}

//! A file that is closed in the mount is closed in the source, too.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::Place;

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

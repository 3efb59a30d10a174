//! A service manager that stores descriptors, played by this program: a datagram socket that
//! receives them, and the next start of the service, which is handed them.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use forebay::{Engine, ErrorKind, Keeper, Open};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use support::kept::SOON;
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, eventually, kind_of, pattern, process};

const CHILD: &str = "child_that_is_a_service";

const LENGTH: usize = 700_001;

type Descriptors = Arc<Mutex<BTreeMap<String, OwnedFd>>>;

/// The manager's side: what it has stored.
fn manage(socket: UnixDatagram) -> Descriptors {
    let stored = Descriptors::default();
    let store = Arc::clone(&stored);
    std::thread::spawn(move || {
        loop {
            let (text, mut descriptors) = receive(&socket);
            let name =
                text.lines().find_map(|line| line.strip_prefix("FDNAME=")).map(str::to_owned);
            let mut store = store.lock().unwrap();
            if text.contains("FDSTORE=1") {
                store.insert(name.unwrap(), descriptors.pop().unwrap());
            } else if text.contains("FDSTOREREMOVE=1") {
                store.remove(&name.unwrap());
            }
            // The pipe of a barrier is closed here.
        }
    });
    stored
}

fn receive(socket: &UnixDatagram) -> (String, Vec<OwnedFd>) {
    let mut bytes = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let came =
        rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (String::from_utf8_lossy(&bytes[..came.bytes]).into_owned(), descriptors)
}

/// Starts the service; what is stored is handed to it from 3 on, behind one that is its own.
fn start(what: &str, directory: &Path, stored: &Descriptors) -> Child {
    let stored = stored.lock().unwrap();
    let names: Vec<&str> =
        std::iter::once("own").chain(stored.keys().map(String::as_str)).collect();
    let own = std::fs::File::open("/dev/zero").unwrap();
    let numbers: Vec<i32> = std::iter::once(own.as_raw_fd())
        .chain(stored.values().map(std::os::fd::AsRawFd::as_raw_fd))
        .collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", CHILD, "--nocapture", "--test-threads=1"])
        .env(process::TOLD, format!("{what}\n{}", directory.display()))
        .env("NOTIFY_SOCKET", directory.join("notify"))
        .env("LISTEN_FDS", numbers.len().to_string())
        .env("LISTEN_FDNAMES", names.join(":"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // SAFETY: between fork and exec it makes system calls alone.
    unsafe { command.pre_exec(move || hand_over(&numbers)) };
    command.spawn().unwrap()
}

/// In a new process: these descriptors are those from 3 on. They are moved out of the way first, so
/// that none is written over before it is used.
fn hand_over(numbers: &[i32]) -> std::io::Result<()> {
    let mut far = [-1; 64];
    for (number, far) in numbers.iter().zip(&mut far) {
        // SAFETY: takes numbers.
        *far = unsafe { libc::fcntl(*number, libc::F_DUPFD_CLOEXEC, 200) };
    }
    for (at, far) in far.iter().enumerate().take(numbers.len()) {
        // SAFETY: takes numbers; nothing of this process uses them before the exec.
        if unsafe { libc::dup2(*far, 3 + at as i32) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[test]
fn child_that_is_a_service() {
    let Some(task) = process::task() else { return };
    let (what, directory) = task.split_once('\n').unwrap();
    let directory = Path::new(directory);
    // What the manager would have set: a child's number is not known before it is there.
    // SAFETY: no other thread of this test looks at the environment meanwhile.
    unsafe { std::env::set_var("LISTEN_PID", std::process::id().to_string()) };
    for file in forebay::keeper::stored().unwrap() {
        if let Err(error) = file.result {
            process::tell(format_args!("failed {} {error}", file.path.display()));
            continue;
        }
        process::tell(format_args!("recovered {} {}", file.bytes, file.path.display()));
    }
    let own = std::fs::read_link("/proc/self/fd/3").unwrap();
    process::tell(format_args!("own {}", own.display()));
    let builder =
        Engine::builder().cache_bytes(16 << 20).dirty_age(std::time::Duration::from_secs(3600));
    let engine = builder.survive(Keeper::descriptor_store()).build().unwrap();
    // In a place of its own, where there is one.
    let place = directory.join("place").canonicalize().unwrap_or_else(|_| directory.to_owned());
    if let Some(to) = what.strip_prefix("changes to ") {
        let other = engine.open(directory.join("other"), Open::write()).unwrap();
        other.set_len(0).unwrap();
        other.append(to.as_bytes()).unwrap();
        other.close().unwrap();
        engine.shutdown(SOON).unwrap();
        process::tell(format_args!("done"));
        std::process::exit(0);
    }
    let file = engine.open(place.join("file"), Open::create()).unwrap();
    let other = engine.open(directory.join("other"), Open::create()).unwrap();
    if what == "first" {
        file.write_at(&pattern(3, LENGTH), 0).unwrap();
        other.append(b"other").unwrap();
    } else {
        let mut found = vec![0; LENGTH];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), LENGTH);
        assert!(found == pattern(3, LENGTH), "another content through the library");
        other.close().unwrap();
        file.close().unwrap();
        engine.shutdown(SOON).unwrap();
        process::tell(format_args!("done"));
        // Nobody reads what the harness would say.
        std::process::exit(0);
    }
    process::tell(format_args!("done"));
    std::thread::sleep(SOON);
}

/// What a child tells, up to the last of it.
fn told(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told: Vec<String> = Vec::new();
    for line in lines.filter_map(|line| process::told(&line.unwrap()).map(str::to_owned)) {
        if line == "done" {
            return told;
        }
        told.push(line);
    }
    panic!("the child ended early: {told:?}");
}

#[test]
fn contract_04_what_the_service_manager_stored_is_finished_at_the_next_start() {
    if process::task().is_some() {
        return;
    }
    let directory = directory();
    let path = directory.path().canonicalize().unwrap();
    let stored = manage(UnixDatagram::bind(path.join("notify")).unwrap());
    let mut first = start("first", &path, &stored);
    assert_eq!(told(&mut first), ["own /dev/zero"]);
    assert_eq!(stored.lock().unwrap().len(), 4, "{stored:?}");
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = start("second", &path, &stored);
    let mut said = told(&mut second);
    said.sort();
    let expected = [
        "own /dev/zero".to_owned(),
        format!("recovered 5 {}", path.join("other").display()),
        format!("recovered {LENGTH} {}", path.join("file").display()),
    ];
    assert_eq!(said, expected);
    assert!(second.wait().unwrap().success());
    assert!(
        eventually(SOON, || stored.lock().unwrap().is_empty()),
        "left with the manager: {stored:?}"
    );
    assert_on_disk(&path.join("file"), &pattern(3, LENGTH), "after the second start");
    assert_on_disk(&path.join("other"), b"other", "after the second start");
}

#[test]
fn contract_04_a_file_that_cannot_be_written_keeps_no_other_stored() {
    if process::task().is_some() {
        return;
    }
    let Some(mount) = Mount::new("store_and_failing_file", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let directory = directory();
    let path = directory.path().canonicalize().unwrap();
    let failing = mount.path().canonicalize().unwrap().join("file");
    std::os::unix::fs::symlink(mount.path(), path.join("place")).unwrap();
    let same = std::fs::File::create(&failing).unwrap();
    let stored = manage(UnixDatagram::bind(path.join("notify")).unwrap());
    let mut first = start("first", &path, &stored);
    assert_eq!(told(&mut first), ["own /dev/zero"]);
    assert_eq!(stored.lock().unwrap().len(), 4, "{stored:?}");
    // Nothing can be written to it, for good: so nothing is tried again.
    support::set_immutable(&same, true);
    first.kill().unwrap();
    first.wait().unwrap();
    for (round, content) in ["newer", "newest"].into_iter().enumerate() {
        let mut next = start(&format!("changes to {content}"), &path, &stored);
        let said = told(&mut next);
        assert!(next.wait().unwrap().success());
        let failed = format!("failed {}", failing.display());
        assert_eq!(said.iter().filter(|line| line.starts_with(&failed)).count(), 1, "{said:?}");
        let of_other = said.iter().filter(|line| line.starts_with("recovered 5 ")).count();
        assert_eq!(of_other, usize::from(round == 0), "{said:?}");
        // The arena with its end, and the one file.
        assert!(eventually(SOON, || stored.lock().unwrap().len() == 3), "{stored:?}");
        assert_on_disk(&path.join("other"), content.as_bytes(), "changed since");
    }
    support::set_immutable(&same, false);
    let mut last = start("second", &path, &stored);
    assert!(told(&mut last).contains(&format!("recovered {LENGTH} {}", failing.display())));
    assert!(last.wait().unwrap().success());
    assert!(
        eventually(SOON, || stored.lock().unwrap().is_empty()),
        "left with the manager: {stored:?}"
    );
    assert_on_disk(&failing, &pattern(3, LENGTH), "when it could be written");
    assert_on_disk(&path.join("other"), b"newest", "not written once more");
}

#[test]
fn without_a_service_manager_it_says_so() {
    if process::task().is_none() && std::env::var_os("NOTIFY_SOCKET").is_none() {
        let engine = Engine::builder().cache_bytes(8 << 20).survive(Keeper::descriptor_store());
        assert_eq!(kind_of(engine.build()), ErrorKind::Keeper);
    }
}

//! The keeper itself: it is there and costs nothing, ends when it should and not before, is
//! replaced when it dies, and handles files that it cannot write.
//!
//! If the program must die, a child of this program does. Tests that only start and end a keeper
//! run in this process.

mod support;

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use forebay::keeper::image::{Run, recover};
use forebay::{Engine, Error, ErrorKind, Keeper, Options, WhenLost};
use forebay_uring::Channel;
use forebay_uring::passing::Received;
use support::device::{Device, Shape};
use support::faulty::{Disk, Fails};
use support::kept::{self, SOON, Survived, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, directory, eventually, how, pattern, process};

const LENGTH: usize = 1_000_003;

/// Of the test with many of them.
const MANY: usize = 2500;

#[test]
fn keeper() {
    kept::serve();
}

/// Runs as the child: writes its file, and then ends or sleeps as `what` says.
fn act(what: &str, directory: &Path, file: &Path) {
    let keeper = Keeper { log: Some(directory.join("log")), ..kept::keeper() };
    let keeper = match what {
        "saving" => Keeper {
            patience: Duration::from_millis(300),
            save_to: Some(directory.into()),
            ..keeper
        },
        "impatient" => Keeper { patience: Duration::from_secs(2), ..keeper },
        "adoptable" => Keeper { socket: Some(directory.join("socket")), linger: SOON, ..keeper },
        _ => keeper,
    };
    let build = |keeper: Keeper| {
        // It stays dirty until the end.
        let engine = Engine::builder(Options {
            cache_bytes: Some(64 << 20),
            dirty_bytes: Some(48 << 20),
            background_bytes: Some(48 << 20),
            dirty_age: Duration::from_secs(3600),
            ..Options::default()
        });
        engine.survive(keeper).build().unwrap()
    };
    let report = |engine: &Engine| {
        process::report(format_args!("{}", engine.keeper().unwrap().process.unwrap()));
    };
    let engine = build(keeper);
    if what == "many" {
        write_many(&engine, directory);
        report(&engine);
        std::thread::sleep(SOON);
    }
    let here = std::env::current_dir().unwrap();
    let name = if what == "saving" {
        // A relative path: who recovers the file has another current directory.
        std::env::set_current_dir(file.parent().unwrap()).unwrap();
        Path::new(file.file_name().unwrap())
    } else {
        file
    };
    let open = engine
        .open(name, &how::create())
        .unwrap_or_else(|_| engine.open(name, &how::write()).unwrap());
    std::env::set_current_dir(here).unwrap();
    open.write_at(&pattern(5, LENGTH), 0).unwrap();
    let second = (what == "two").then(|| {
        let engine = build(Keeper { log: Some(directory.join("log-2")), ..kept::keeper() });
        let file = engine.open(directory.join("file-2"), &how::create()).unwrap();
        file.append(&pattern(6, LENGTH)).unwrap();
        (engine, file)
    });
    if what == "forks" {
        // SAFETY: the child does nothing but sleep and leave.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: as above.
            unsafe { libc::sleep(25) };
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
    }
    report(&engine);
    if let Some((engine, _)) = &second {
        report(engine);
    }
    match what {
        "exits" => std::process::exit(0),
        "execs" => {
            use std::os::unix::process::CommandExt as _;
            let error = std::process::Command::new("/bin/sleep").arg("60").exec();
            panic!("{error}");
        }
        _ => std::thread::sleep(SOON),
    }
}

fn write_many(engine: &Engine, directory: &Path) {
    for number in 0..MANY {
        let file =
            engine.open(directory.join(format!("many-{number}")), &how::create_new()).unwrap();
        file.write_at(&pattern(number as u64, 5000), 0).unwrap();
        // Open to the end.
        std::mem::forget(file);
    }
}

#[test]
fn child_that_is_survived() {
    let Some(task) = process::task() else { return };
    let [what, directory, file] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let most = libc::rlimit { rlim_cur: 20_000, rlim_max: 20_000 };
    // SAFETY: reads the limits during the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most) };
    act(what, Path::new(directory), Path::new(file));
}

fn engine(keeper: Keeper) -> (Engine, mpsc::Receiver<Error>) {
    let (report, reported) = mpsc::channel();
    let report = std::sync::Mutex::new(report);
    let report_error = move |error: &Error| {
        let _ = report.lock().unwrap().send(error.clone());
    };
    let engine = Engine::builder(Options { cache_bytes: Some(16 << 20), ..Options::default() })
        .on_error(report_error)
        .survive(keeper)
        .build()
        .unwrap();
    (engine, reported)
}

fn number(engine: &Engine) -> u32 {
    engine.keeper().unwrap().process.unwrap()
}

/// Whether every thread of a process is stopped.
fn is_stopped(process: u32) -> bool {
    let mut threads =
        std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(Result::unwrap);
    threads
        .all(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap().contains(") T "))
}

fn signal(process: u32, signal: libc::c_int) {
    // SAFETY: takes numbers.
    let result = unsafe { libc::kill(process.cast_signed(), signal) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Whether a process has a file open.
fn holds(process: u32, path: &Path) -> bool {
    let path = path.canonicalize().unwrap();
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    entries.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
}

#[test]
fn contract_16_it_costs_nothing_and_goes_with_a_goodbye() {
    let directory = directory();
    let path = directory.path().join("file");
    let log = directory.path().join("log");
    let (engine, _) = engine(Keeper { log: Some(log.clone()), ..kept::keeper() });
    let keeper = number(&engine);
    let file = engine.open(&path, &how::create()).unwrap();
    assert!(holds(keeper, &path));
    assert_eq!(engine.keeper().unwrap().files, 1);
    let of = |what: &str| std::fs::read_to_string(format!("/proc/{keeper}/{what}")).unwrap();
    assert_eq!(of("comm").trim(), "forebay-keeper");
    let ticks = || {
        of("stat")
            .split_whitespace()
            .skip(13)
            .take(2)
            .map(|n| n.parse::<u64>().unwrap())
            .sum::<u64>()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(ticks(), before, "it used the processor");
    let resident = of("statm").split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096;
    assert!(resident < 16 * MIB, "{resident} bytes");
    let other = engine.open(directory.path().join("other"), &how::create()).unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    file.close().unwrap();
    assert!(!holds(keeper, &path), "it holds what was closed");
    drop(other);
    engine.shutdown(SOON).unwrap();
    assert!(!is_there(keeper), "it is there after the engine's end");
    assert_eq!(kept::said(&log), "");
}

#[test]
fn signals_that_end_programs_do_not_end_it() {
    let (engine, reported) = engine(kept::keeper());
    let keeper = number(&engine);
    for number in
        [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGPIPE]
    {
        signal(keeper, number);
    }
    // Those of limits.
    signal(keeper, libc::SIGXCPU);
    signal(keeper, libc::SIGXFSZ);
    assert!(reported.recv_timeout(Duration::from_millis(300)).is_err());
    assert!(is_there(keeper) && number(&engine) == keeper);
}

#[test]
fn one_that_is_gone_is_noticed_and_replaced() {
    let directory = directory();
    let (engine, reported) =
        engine(Keeper { log: Some(directory.path().join("log")), ..kept::keeper() });
    let paths: Vec<PathBuf> =
        (0..100).map(|file| directory.path().join(format!("file-{file}"))).collect();
    let files: Vec<_> =
        paths.iter().map(|path| engine.open(path, &how::create()).unwrap()).collect();
    let first = number(&engine);
    for round in 1..=2 {
        let start = Instant::now();
        let before = number(&engine);
        signal(before, libc::SIGKILL);
        let error = reported.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(1), "noticed after {:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Keeper);
        assert!(error.to_string().contains("signal: 9"), "{error}");
        let is_back = || engine.keeper().unwrap().process.is_some_and(|process| process != before);
        assert!(eventually(SOON, is_back));
        assert_eq!(engine.keeper().unwrap().restarts, round);
    }
    assert_ne!(number(&engine), first);
    assert!(paths.iter().all(|path| holds(number(&engine), path)), "the new one has not all files");
    for (file, at) in files.into_iter().zip(0..) {
        file.write_at(&pattern(at, 3000), 0).unwrap();
        file.close().unwrap();
        assert_on_disk(&paths[at as usize], &pattern(at, 3000), "closed");
    }
    engine.shutdown(SOON).unwrap();
    assert!(reported.try_recv().is_err());
}

#[test]
fn without_another_one_it_goes_on_as_before() {
    let directory = directory();
    let path = directory.path().join("file");
    let (engine, reported) = engine(Keeper { when_lost: WhenLost::GoOn, ..kept::keeper() });
    let file = engine.open(&path, &how::create()).unwrap();
    signal(number(&engine), libc::SIGKILL);
    assert_eq!(reported.recv_timeout(SOON).unwrap().kind(), ErrorKind::Keeper);
    assert_eq!(engine.keeper().unwrap().process, None);
    file.append(b"after").unwrap();
    let other = engine.open(directory.path().join("other"), &how::create()).unwrap();
    other.append(b"after").unwrap();
    other.close().unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"after");
}

#[test]
fn one_that_hangs_is_taken_for_gone() {
    let directory = directory();
    let (engine, reported) = engine(kept::keeper());
    let keeper = number(&engine);
    signal(keeper, libc::SIGSTOP);
    // One of its threads takes the signal, when it next runs; the others go on until then.
    assert!(eventually(SOON, || is_stopped(keeper)));
    let start = Instant::now();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(reported.recv_timeout(SOON).unwrap().kind(), ErrorKind::Keeper);
    assert!(eventually(SOON, || engine.keeper().unwrap().process.is_some()));
    assert!(holds(number(&engine), &directory.path().join("file")));
    file.close().unwrap();
    engine.shutdown(SOON).unwrap();
}

#[test]
fn a_program_that_is_no_keeper_is_refused() {
    let build = |keeper: Keeper| {
        Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() })
            .survive(keeper)
            .build()
            .unwrap_err()
    };
    for (keeper, what) in [
        (Keeper::program("/no/such/program"), "could not start the keeper"),
        (Keeper::program("/bin/false"), "does not answer"),
        // A test of this program that does not ask to be a keeper.
        (
            Keeper {
                arguments: ["--exact", "no_such_test"].map(Into::into).to_vec(),
                ..Keeper::this_program()
            },
            "does not answer",
        ),
    ] {
        let error = build(keeper);
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Keeper);
        assert!(error.to_string().contains(what), "{error}");
    }
    for keeper in [
        Keeper { save_to: Some("/no/such/directory".into()), ..kept::keeper() },
        Keeper { socket: Some("/no/such/directory/socket".into()), ..kept::keeper() },
        Keeper { log: Some("/no/such/directory/log".into()), ..kept::keeper() },
    ] {
        assert_eq!(build(keeper).kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_file_that_it_has_no_room_for_is_not_opened() {
    let directory = directory();
    let (engine, _) = engine(kept::keeper());
    let keeper = number(&engine);
    let first = engine.open(directory.path().join("first"), &how::create()).unwrap();
    let set = |most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: 4096 };
        // SAFETY: reads the limits during the call.
        let result = unsafe {
            libc::prlimit(
                keeper.cast_signed(),
                libc::RLIMIT_NOFILE,
                &raw const limit,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    set(5);
    let error = engine.open(directory.path().join("second"), &how::create()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Keeper);
    assert!(error.to_string().contains("limit of 5 open files"), "{error}");
    assert_eq!(engine.keeper().unwrap().files, 1);
    set(4096);
    let second = engine.open(directory.path().join("second"), &how::create()).unwrap();
    assert!(holds(keeper, &directory.path().join("second")));
    second.close().unwrap();
    first.close().unwrap();
}

/// The kernel runs no program that is open for writing, here or in the keeper.
#[test]
fn contract_05_a_program_that_was_dropped_can_be_run_soon() {
    let directory = directory();
    let (with_keeper, _) = engine(kept::keeper());
    let without =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    for (name, engine) in [("with", with_keeper), ("without", without)] {
        for is_shared in [false, true] {
            let path = directory.path().join(format!("{name}-{is_shared}"));
            let file = engine.open(&path, how::create_new().mode(0o755)).unwrap();
            file.append(b"#!/bin/sh\n").unwrap();
            // An append past the cache has a descriptor of its own.
            let beside = is_shared.then(|| std::fs::File::open(&path).unwrap());
            file.append(b"exit 0\n").unwrap();
            drop((file, beside));
            let runs = || process::run(path.to_str().unwrap(), &[]);
            assert!(eventually(Duration::from_secs(5), || runs().is_ok()), "{:?}", runs());
        }
    }
}

#[test]
fn contract_10_a_device_is_free_when_it_is_closed() {
    let Some(device) = Device::new("kept_device", Shape::new(8 * MIB, 512)) else { return };
    let (engine, _) = engine(kept::keeper());
    let exclusive = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device.path());
    for _ in 0..20 {
        let file = engine.open(device.path(), &how::write()).unwrap();
        assert!(exclusive().is_err());
        file.write_at(&[7; 5000], 1000).unwrap();
        file.close().unwrap();
        exclusive().unwrap();
    }
}

#[test]
fn contract_10_what_was_written_to_a_device_survives() {
    let Some(device) = Device::new("survived_device", Shape::new(8 * MIB, 512)) else { return };
    let directory = directory();
    let (status, _) = Survived::start("plain", directory.path(), device.path()).die();
    assert_eq!(status, 0);
    let mut found = vec![0; LENGTH];
    OpenOptions::new()
        .read(true)
        .open(device.path())
        .unwrap()
        .read_exact_at(&mut found, 0)
        .unwrap();
    assert!(found == pattern(5, LENGTH));
}

/// Starts a child that writes its file, and ends in some way; then the file has to be there.
fn survives(what: &str, end: impl FnOnce(&mut Child)) {
    let directory = directory();
    let path = directory.path().join("file");
    let mut survived = Survived::start(what, directory.path(), &path);
    end(&mut survived.child);
    let (status, said) = survived.ended();
    assert_eq!(status, 0, "{said}");
    assert_on_disk(&path, &pattern(5, LENGTH), what);
}

#[test]
fn contract_04_however_the_program_ends() {
    survives("plain", |child| kept::kill(child, libc::SIGTERM));
    survives("exits", |child| assert!(child.wait().unwrap().success()));
}

#[test]
fn contract_04_another_program_in_its_place() {
    let directory = directory();
    let path = directory.path().join("file");
    let mut survived = Survived::start("execs", directory.path(), &path);
    let log = directory.path().join("log");
    assert!(eventually(SOON, || kept::said(&log).contains("wrote")), "{}", kept::said(&log));
    assert_on_disk(&path, &pattern(5, LENGTH), "after the exec");
    assert!(survived.child.try_wait().unwrap().is_none(), "the program in its place has ended");
    assert_eq!(survived.die().0, 0);
}

#[test]
fn contract_04_and_14_a_forked_child_lives_on() {
    let directory = directory();
    let path = directory.path().join("file");
    let (status, said) = Survived::start("forks", directory.path(), &path).die();
    assert_eq!(status, 0);
    assert!(said.contains("may still be under way"), "{said}");
    assert_on_disk(&path, &pattern(5, LENGTH), "beside a child that lives on");
}

#[test]
fn contract_04_several_engines_in_one_program() {
    let directory = directory();
    let path = directory.path().join("file");
    let survived = Survived::start_with(2, Stdio::inherit(), "two", directory.path(), &path);
    let second = survived.keepers[1];
    assert_eq!(survived.die().0, 0);
    assert_eq!(wait_for_orphan(second, SOON), 0);
    assert_on_disk(&path, &pattern(5, LENGTH), "the first engine's");
    assert_on_disk(&directory.path().join("file-2"), &pattern(6, LENGTH), "the second engine's");
}

#[test]
fn contract_04_thousands_of_files() {
    let directory = directory();
    let start = Instant::now();
    let survived = Survived::start("many", directory.path(), &directory.path().join("file"));
    println!("{MANY} files written after {:?}", start.elapsed());
    assert_eq!(survived.die().0, 0);
    for number in 0..MANY {
        let path = directory.path().join(format!("many-{number}"));
        assert_on_disk(&path, &pattern(number as u64, 5000), "of many");
    }
}

#[test]
fn contract_09_and_21_a_full_file_system_and_what_is_saved_of_it() {
    let Some(mount) = Mount::new("keeper_no_space", FileSystem::Ext4, 64 * MIB) else { return };
    let directory = directory();
    let path = mount.path().canonicalize().unwrap().join("file");
    let survived = Survived::start("saving", directory.path(), &path);
    // `fill_up` takes reserved space, too, so no space is left for pages that are only in memory.
    let filler = process::fill_up(&mount.path());
    let (status, said) = survived.die();
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("could not be written") && said.contains("No space left"), "{said}");
    let image = saved(&said);
    assert!(image.starts_with(directory.path().canonicalize().unwrap()), "{said}");
    std::fs::remove_file(filler).unwrap();

    let dry = recover(&image, Run::Dry).unwrap();
    assert!(dry.len() == 1 && dry[0].result.is_ok() && dry[0].bytes > 0, "{dry:?}");
    let other = OpenOptions::new().read(true).open(&path).unwrap();
    let busy = recover(&image, Run::Real).unwrap();
    assert_eq!(busy[0].result.as_ref().unwrap_err().kind(), ErrorKind::Busy);
    drop(other);
    // As a later version saves it: it stays for that one. As the version before does.
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    let saved = file.metadata().unwrap().modified().unwrap();
    let set_version = |version: u8| {
        let number = [&b"FOREBAY"[..], &[version], &u64::from(version).to_ne_bytes()].concat();
        file.write_all_at(&number, 0).unwrap();
        // The time of saving.
        file.set_modified(saved).unwrap();
    };
    set_version(5);
    let later = recover(&image, Run::Real).unwrap_err().to_string();
    assert!(later.contains("version 5") && later.contains("reads 2 to 4"), "{later}");
    set_version(2);
    let done = recover(&image, Run::Real).unwrap();
    assert!(done.len() == 1 && done[0].result.is_ok(), "{done:?}");
    assert_on_disk(&path, &pattern(5, LENGTH), "after the recovery");
    // Once is enough.
    let again = recover(&image, Run::Real).unwrap();
    assert!(again[0].result.as_ref().unwrap_err().to_string().contains("was changed"), "{again:?}");
    damage(&image, &path);
}

/// However an image is damaged, the recovery writes only data that passes its checks.
fn damage(image: &Path, path: &Path) {
    let content = std::fs::read(path).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - 4096).unwrap();
    assert_eq!(recover(image, Run::Real).unwrap_err().kind(), ErrorKind::InvalidInput);
    file.set_len(length).unwrap();
    // The headers: all of them do not check out now.
    let mut headers = vec![0; 64 << 10];
    file.read_exact_at(&mut headers, 4096).unwrap();
    headers.iter_mut().step_by(8).for_each(|byte| *byte ^= 4);
    file.write_all_at(&headers, 4096).unwrap();
    let found = recover(image, Run::Real).unwrap();
    assert!(found.iter().all(|file| file.result.is_err()), "{found:?}");
    file.write_all_at(b"FOREBAY\x09", 0).unwrap();
    assert_eq!(recover(image, Run::Real).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(recover(path, Run::Real).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(std::fs::read(path).unwrap() == content);
}

/// The image that the last line of a keeper's log names.
fn saved(said: &str) -> PathBuf {
    said.trim_end().rsplit("forebay recover ").next().unwrap_or_default().into()
}

#[test]
fn a_disk_that_fails_and_is_well_again() {
    let Some(disk) =
        Disk::new("keeper_and_failing_disk", FileSystem::Ext4, 64 * MIB, Fails::Writes)
    else {
        return;
    };
    let directory = directory();
    let path = disk.path().canonicalize().unwrap().join("file");
    // Overwritten in place, so that nothing but its own bytes is to be written.
    std::fs::write(&path, pattern(1, LENGTH)).unwrap();
    let survived = Survived::start("plain", directory.path(), &path);
    disk.fail();
    let keeper = survived.keepers[0];
    let mut child = survived.child;
    kept::kill(&mut child, libc::SIGKILL);
    std::thread::sleep(Duration::from_millis(600));
    assert!(is_there(keeper), "it has given up: {}", kept::said(&directory.path().join("log")));
    disk.heal();
    assert_eq!(wait_for_orphan(keeper, SOON), 0);
    assert_on_disk(&path, &pattern(5, LENGTH), "once the disk was well");
}

#[test]
fn a_disk_that_is_gone() {
    let Some(mount) = Mount::new("keeper_and_no_disk", FileSystem::Xfs, 2048 * MIB) else { return };
    let directory = directory();
    let path = mount.path().canonicalize().unwrap().join("file");
    let survived = Survived::start("saving", directory.path(), &path);
    mount.cut_off();
    let (status, said) = survived.die();
    assert_eq!(status, 1, "{said}");
    assert!(said.contains(&path.display().to_string()) && said.contains("saved to"), "{said}");
}

#[test]
fn a_disk_that_hangs() {
    let Some(disk) = Disk::new("keeper_and_hung_disk", FileSystem::Ext4, 64 * MIB, Fails::Writes)
    else {
        return;
    };
    let directory = directory();
    let path = disk.path().canonicalize().unwrap().join("file");
    std::fs::write(&path, pattern(1, LENGTH)).unwrap();
    process::shell("sync -f \"$1\"", &path).unwrap();
    let mut survived = Survived::start("impatient", directory.path(), &path);
    disk.freeze();
    kept::kill(&mut survived.child, libc::SIGKILL);
    let log = directory.path().join("log");
    assert!(
        eventually(SOON, || kept::said(&log).contains("a device hangs")),
        "{}",
        kept::said(&log)
    );
    // A call that cannot be cancelled keeps what is left of it.
    disk.thaw();
    assert_eq!(wait_for_orphan(survived.keepers[0], SOON), 3);
}

/// Sends a message to a keeper's socket. Returns the replies: the kind of each message, and its
/// number of descriptors.
fn ask(socket: &Path, message: &[u8]) -> (Channel, Vec<(u8, usize)>) {
    let channel = Channel::connect(socket).unwrap();
    // A keeper that refuses every connection may answer and close it before this is sent.
    let sent = channel.send(message, &[]);
    let mut came = Vec::new();
    while let Ok(Received::Message(message)) = channel.receive(Some(SOON)) {
        came.push((message.bytes[0], message.descriptors.len()));
        // Refused, or all of it.
        if [17, 35].contains(&message.bytes[0]) {
            break;
        }
    }
    if came.is_empty() {
        sent.unwrap();
    }
    (channel, came)
}

#[test]
fn a_program_that_takes_over_gets_all_and_nobody_else_does() {
    let directory = directory();
    let socket = directory.path().join("socket");
    let path = directory.path().join("file");
    let mut survived = Survived::start("adoptable", directory.path(), &path);
    // Kind, sign, version, layout.
    let adopt_as = |version: u32, layout: u64| {
        [&[32][..], b"FBK\x01", &version.to_le_bytes(), &layout.to_le_bytes()].concat()
    };
    let adopt = adopt_as(3, 4);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(ask(&socket, &adopt).1, [(17, 0)], "its program is alive");
    kept::kill(&mut survived.child, libc::SIGKILL);
    for other in [adopt_as(9, 4), adopt_as(3, 2), adopt_as(3, 5)] {
        assert_eq!(ask(&socket, &other).1, [(17, 0)], "another version");
    }
    assert_eq!(ask(&socket, b"hello?").1, [(17, 0)]);
    // An adopter that does not confirm has not taken over.
    assert_eq!(ask(&socket, &adopt).1, [(33, 1), (34, 1), (35, 0)]);
    let (channel, came) = ask(&socket, &adopt);
    assert_eq!(came, [(33, 1), (34, 1), (35, 0)]);
    channel.send(&[36], &[]).unwrap();
    let (status, said) = survived.ended();
    assert_eq!(status, 0);
    assert!(said.contains("taken over"), "{said}");
    assert!(!socket.exists(), "the socket is left");
    assert_on_disk(&path, &pattern(5, LENGTH), "taken over");
}

#[test]
fn a_temporary_file_is_nothing_to_the_keeper() {
    let directory = directory();
    let engine = Engine::builder(Options { cache_bytes: Some(16 << 20), ..Options::default() })
        .survive(kept::keeper())
        .build()
        .unwrap();
    let (name, path) = (directory.path().join("file.new"), directory.path().join("file"));
    let kept = || engine.keeper().unwrap().files;
    for round in 0..3 {
        let file = engine.open(&name, &how::temporary()).unwrap();
        file.write_at(&pattern(round, LENGTH), 0).unwrap();
        file.sync_data().unwrap();
        let second = engine.open(&name, &how::write()).unwrap();
        second.write_at(&pattern(round, LENGTH), 0).unwrap();
        second.close().unwrap();
        assert_eq!(kept(), 0, "while it is open");
        file.close().unwrap();
        std::fs::rename(&name, &path).unwrap();
        assert_on_disk(&path, &pattern(round, LENGTH), "a new version");
    }
    let file = engine.open(&path, &how::write()).unwrap();
    assert_eq!(kept(), 1, "an ordinary file from here on");
    file.write_at(&pattern(5, LENGTH), 0).unwrap();
    file.close().unwrap();
    engine.shutdown(SOON).unwrap();
    assert_on_disk(&path, &pattern(5, LENGTH), "after all");
}

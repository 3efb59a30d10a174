//! The control socket: every knob while a load runs, and what a bad client cannot do.

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::options::Prealloc;
use forebay::{Change, Control, Engine, ErrorKind, Knob, Options};
use forebay_block::random::Random;
use support::{MIB, PAGE, assert_on_disk, how, is_root, kind_of, knobs, pattern, skip};

const SOON: Duration = Duration::from_secs(60);

/// An engine that serves a control socket.
fn serving() -> (tempfile::TempDir, Engine, PathBuf) {
    let directory = support::directory();
    let socket = directory.path().join("engine.socket");
    let engine =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    engine.serve_control(&socket).unwrap();
    (directory, engine, socket)
}

/// A connection to the control socket that sends raw bytes and reads lines.
struct Hand(BufReader<UnixStream>);

impl Hand {
    fn new(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn receive(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Values that a knob accepts, each with its reported form, on an engine with a cache of 16 MiB.
fn values_of(knob: &Knob) -> Vec<(String, String)> {
    let values: &[(&str, &str)] = match knob.name.as_str() {
        "completion" => {
            &[("delay=0", "delay=0"), ("throttled", "throttled"), ("immediate", "immediate")]
        }
        "contexts" => &[("1", "1"), ("3", "3"), ("adaptive", "adaptive")],
        "flight" => {
            &[("1", "1"), ("112", "112"), ("time=100", "time=100"), ("time=20000", "time=20000")]
        }
        "dirty_bytes" => &[("8m", "8388608"), ("14MiB", "14680064"), ("9437184", "9437184")],
        "background_bytes" => &[("0", "0"), ("1m", "1048576"), ("4194304", "4194304")],
        "dirty_age" => &[("1ms", "1ms"), ("3s", "3s"), ("5000ms", "5s")],
        "close_timeout" => &[("20s", "20s"), ("none", "none"), ("90000ms", "90s")],
        _ => &[],
    };
    if !values.is_empty() {
        return values
            .iter()
            .map(|(value, reported)| ((*value).to_owned(), (*reported).to_owned()))
            .collect();
    }
    let words = knob
        .choices
        .split(", ")
        .filter(|choice| choice.bytes().all(|byte| byte.is_ascii_lowercase()));
    words.map(|word| (word.to_owned(), word.to_owned())).collect()
}

#[test]
fn every_knob_is_changed_under_load_and_no_byte_is_lost() {
    let (directory, engine, socket) = serving();
    let seed = support::seed();
    let done = AtomicBool::new(false);
    let paths: Vec<_> =
        (0..3).map(|number| directory.path().join(format!("file{number}"))).collect();
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let (engine, done) = (&engine, &done);
        let writers: Vec<_> = paths
            .iter()
            .zip(seed..)
            .map(|(path, seed)| {
                scope.spawn(move || {
                    let file = engine.open(path, &how::create()).unwrap();
                    let (mut random, mut model) = (Random::new(seed), vec![0; 12 * MIB as usize]);
                    file.write_at(&model, 0).unwrap();
                    let mut rounds = 0;
                    while !done.load(Ordering::Relaxed) || rounds < 10 {
                        rounds += 1;
                        let most = if random.below(4) == 0 { 2 * MIB } else { 3 * PAGE };
                        let length = 1 + random.below(most) as usize;
                        let offset = random.below((model.len() - length) as u64) as usize;
                        let data = pattern(random.draw(), length);
                        file.write_at(&data, offset as u64).unwrap();
                        model[offset..offset + length].copy_from_slice(&data);
                        let mut read = vec![0; length];
                        let offset = random.below((model.len() - length) as u64) as usize;
                        assert_eq!(file.read_at(&mut read, offset as u64).unwrap(), length);
                        assert!(read == model[offset..offset + length], "seed {seed}");
                        if random.below(16) == 0 {
                            file.sync_data().unwrap();
                        }
                    }
                    file.sync_data().unwrap();
                    file.close().unwrap();
                    model
                })
            })
            .collect();
        // However this ends, the writers do.
        let _done = SetOnDrop(done);
        let mut control = Control::connect(&socket).unwrap();
        let knobs = control.knobs().unwrap();
        let mut live = 0;
        for _ in 0..3 {
            for knob in knobs.iter().filter(|knob| knob.change == Change::Live) {
                live += 1;
                for (value, reported) in values_of(knob) {
                    control.set(&knob.name, &value).unwrap();
                    assert_eq!(
                        control.get(&knob.name).unwrap(),
                        reported,
                        "{} = {value}",
                        knob.name
                    );
                    assert_eq!(knobs::get(engine, &knob.name), reported);
                    std::thread::sleep(Duration::from_millis(1));
                }
                control.set(&knob.name, &knob.value).unwrap();
                assert_eq!(control.get(&knob.name).unwrap(), knob.value);
            }
            assert_eq!(control.knobs().unwrap(), knobs, "all stand at what they stood at");
        }
        assert!(live >= 3 * 15, "{live}");
        // However slow this machine is just now.
        while control.number("accepted_bytes").unwrap() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    engine.shutdown(SOON).unwrap();
    for (path, model) in paths.iter().zip(&models) {
        assert_on_disk(path, model, &format!("seed {seed}"));
    }
    assert!(!socket.exists(), "it ends with the engine");
}

/// Space is reserved, or not, in files that were open before as in those opened after.
#[test]
fn reserving_is_switched_for_files_that_are_open() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(16 << 20),
        prealloc: Prealloc::Off,
        ..Options::default()
    })
    .unwrap();
    let data = pattern(1, 8 * MIB as usize);
    let one = engine.open(directory.path().join("one"), &how::create()).unwrap();
    let write = |file: &forebay::File, times: u64| {
        for _ in 0..times {
            file.write_at(&data, file.len().unwrap()).unwrap();
        }
        file.sync_data().unwrap();
    };
    write(&one, 4);
    assert_eq!(engine.stats().reserved_bytes, 0);
    knobs::set(&engine, "prealloc", "adaptive").unwrap();
    write(&one, 4);
    let reserved = engine.stats().reserved_bytes;
    if reserved == 0 {
        return skip(
            "reserving_is_switched_for_files_that_are_open",
            "this file system reserves nothing",
        );
    }
    knobs::set(&engine, "prealloc", "off").unwrap();
    let after = engine.stats().reserved_bytes;
    let two = engine.open(directory.path().join("two"), &how::create()).unwrap();
    write(&two, 4);
    write(&one, 16);
    assert_eq!(engine.stats().reserved_bytes, after);
    one.close().unwrap();
    two.close().unwrap();
}

/// A limit below the number of dirty bytes holds from the start: the engine writes until it is met,
/// and later writers keep to it.
#[test]
fn the_dirty_limit_holds_from_the_moment_it_is_set() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(64 << 20),
        dirty_age: SOON,
        ..Options::default()
    })
    .unwrap();
    knobs::set(&engine, "background_bytes", "56m").unwrap();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    let data = pattern(7, 32 * MIB as usize);
    file.write_at(&data, 0).unwrap();
    let error = knobs::set(&engine, "dirty_bytes", "4m").unwrap_err();
    assert!(error.to_string().contains("background_bytes"), "{error}");
    assert_eq!(knobs::get(&engine, "dirty_bytes"), (56 * MIB).to_string(), "nothing has changed");
    knobs::set(&engine, "background_bytes", "2m").unwrap();
    knobs::set(&engine, "dirty_bytes", "4m").unwrap();
    assert!(
        support::eventually(SOON, || engine.stats().dirty_bytes <= 4 * MIB),
        "it is written out"
    );
    file.write_at(&data, 32 * MIB).unwrap();
    // Of one file: the limit, and what small files may have beyond.
    assert!(engine.stats().dirty_bytes <= 5 * MIB);
    file.sync_data().unwrap();
    file.close().unwrap();
}

#[test]
fn every_number_is_reported_by_name() {
    let (_directory, engine, socket) = serving();
    let mut control = Control::connect(socket).unwrap();
    let reported: Vec<_> = control.stats().unwrap().into_iter().map(|(name, _)| name).collect();
    let known: Vec<_> = engine.stats().named().map(|(name, _)| name).collect();
    assert_eq!(reported, known);
    assert_eq!(control.number("arena_bytes").unwrap(), 16 << 20);
    for name in reported {
        control.number(&name).unwrap();
    }
    let error = control.number("arena").unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.to_string().contains("arena_bytes"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (_directory, engine, socket) = serving();
    let mut control = Control::connect(&socket).unwrap();
    let before = engine.options().knobs();
    for (name, value) in [
        ("plugs", "never"),
        ("plug", "often"),
        ("cache_bytes", "1g"),
        ("backend", "threads"),
        ("buffer_bytes", "1m"),
        ("dirty_bytes", "1g"),
        ("dirty_bytes", "1"),
        ("dirty_age", "0s"),
        ("dirty_age", "9999999s"),
        ("flight", "0"),
        ("plug", ""),
        ("", "never"),
        ("plug", "never now"),
        ("plug\nset plug", "never"),
        ("plug", &"x".repeat(10_000)),
    ] {
        let error = control.set(name, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name} = {value}: {error}");
    }
    assert!(control.set("cache_bytes", "1g").unwrap_err().to_string().contains("allocated once"));
    assert_eq!(kind_of(control.get("plugs")), ErrorKind::InvalidInput);
    assert_eq!(engine.options().knobs(), before);
}

#[test]
fn the_lines_of_the_protocol() {
    let (_directory, _engine, socket) = serving();
    let mut hand = Hand::new(&socket);
    hand.say(b"get plug\n");
    assert_eq!((hand.receive(), hand.receive()), ("value adaptive\n".into(), "ok\n".into()));
    // Sent ahead, and in pieces.
    hand.say(b"set plug never\nget plug\nstats arena_bytes\nge");
    assert_eq!(
        (hand.receive(), hand.receive(), hand.receive()),
        ("ok\n".into(), "value never\n".into(), "ok\n".into())
    );
    assert_eq!((hand.receive(), hand.receive()), ("value 16777216\n".into(), "ok\n".into()));
    hand.say(b"t merge\r\n");
    assert_eq!((hand.receive(), hand.receive()), ("value on\n".into(), "ok\n".into()));
    for (said, expected) in [
        (&b"\n"[..], "error invalid bad request: it is empty ("),
        (b"help\n", "error invalid bad request: unknown command `help` ("),
        (b"set plug\n", "error invalid bad request: wrong number of words ("),
        (b"\xff\xfe\n", "error invalid bad request: it is not text ("),
        (b"get plugs\n", "error invalid unknown knob `plugs` (known knobs: plug, "),
        (
            b"set backend threads\n",
            "error invalid cannot change knob `backend` while the engine runs: ",
        ),
    ] {
        hand.say(said);
        let heard = hand.receive();
        assert!(heard.starts_with(expected), "{heard}");
    }
    hand.say(&[b'x'; 256]);
    assert_eq!(hand.receive(), "error invalid bad request: a line of more than 256 bytes\n");
    assert_eq!(hand.receive(), "", "closed: where the next request begins cannot be told");
}

#[test]
fn clients_that_say_nothing_or_fetch_nothing_hold_nobody_up() {
    let (_directory, engine, socket) = serving();
    let mut half = Hand::new(&socket);
    half.say(b"set plug ne");
    // Asks and asks, and fetches nothing, until there is no more room for it.
    let mut greedy = UnixStream::connect(&socket).unwrap();
    greedy.set_nonblocking(true).unwrap();
    while greedy.write(&b"get\n".repeat(64)).is_ok() {}
    // More connections than the limit: the engine closes the one that was silent longest.
    let mut silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut control = Control::connect(&socket).unwrap();
    assert_eq!(control.get("plug").unwrap(), "adaptive");
    assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0, "it was closed");
    for _ in 0..100 {
        // One that talks stays, however many come.
        silent.push(UnixStream::connect(&socket).unwrap());
        assert_eq!(control.get("plug").unwrap(), "adaptive");
    }
    engine.shutdown(SOON).unwrap();
    assert!(!socket.exists());
    assert_eq!(kind_of(control.get("plug")), ErrorKind::Io);
}

#[test]
fn a_path_that_is_taken_is_refused_and_stays() {
    let (directory, engine, socket) = serving();
    let error = engine.serve_control(directory.path().join("second")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let other =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let error = other.serve_control(&socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let process = std::process::id();
    assert!(
        error.to_string().contains(&format!("in use by a live process ({process})")),
        "{error}"
    );
    let file = directory.path().join("file");
    std::fs::write(&file, "data").unwrap();
    assert_eq!(kind_of(other.serve_control(&file)), ErrorKind::InvalidInput);
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
    assert_eq!(kind_of(other.serve_control(directory.path().join("no/such"))), ErrorKind::NotFound);
    assert_eq!(
        kind_of(other.serve_control(directory.path().join("x".repeat(200)))),
        ErrorKind::Open
    );
    // Nothing of all that hinders the next.
    other.serve_control(directory.path().join("second")).unwrap();
    assert!(Control::connect(&socket).unwrap().get("plug").is_ok());
    drop(engine);
    assert!(!socket.exists());
    other.shutdown(SOON).unwrap();
    assert_eq!(kind_of(other.serve_control(&socket)), ErrorKind::Shutdown);
}

#[test]
fn another_user_is_refused_with_the_reason() {
    if !is_root() {
        return skip(
            "another_user_is_refused_with_the_reason",
            "acting as another user needs root",
        );
    }
    let (directory, _engine, socket) = serving();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = |socket: &Path| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        Control::connect(socket).and_then(|mut control| control.get("plug")).unwrap_err()
    };
    let error = std::thread::scope(|scope| scope.spawn(|| as_nobody(&socket)).join().unwrap());
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "the mode keeps it out: {error}");
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    let error = std::thread::scope(|scope| scope.spawn(|| as_nobody(&socket)).join().unwrap());
    assert_eq!(error.kind(), ErrorKind::NotPermitted);
    assert!(
        error.to_string().contains("user 65534 may not: the engine is that of user 0"),
        "{error}"
    );
}

//! The program is replaced by another build while programs write: each byte of a call that has
//! returned is there afterwards, and no other.
//!
//! Programs in the middle of a call get an error, and make that call again on the next mount.
//!
//! `FOREBAY_TEST_UPGRADES=N` upgrades N times instead of a few.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use forebay_block::random::{Random, mix};
use forebay_uring::passing::{Listener, Received};

use crate::place::{FOREBAY, Place, build_of, bytes, has_ended, keeper_of, run, wait_until};

const WRITERS: usize = 3;

/// Where a file is written over again.
const LONGEST: u64 = 4 << 20;

/// How a mount of the program before ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// By `kill -9`, while programs write, after its keeper was killed and another one came.
    KilledLater,
    /// By `kill -9`, while programs open, write and close.
    Killed,
    /// By `forebay unmount`, when programs have closed their files a moment ago.
    Unmounted,
    /// By SIGTERM, while programs write.
    Detached,
}

/// How a writer goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// It opens, writes and closes, again and again.
    Bursts,
    /// It opens its file once, and writes until an error. Where nothing is mounted it would write
    /// below the mount.
    Stays,
    /// It closes its file, and waits.
    Pauses,
}

const ENDS: [End; 4] = [End::KilledLater, End::Unmounted, End::Detached, End::Killed];

/// A write that may have been made in part.
type Write = (u64, Vec<u8>);

/// A writer: one long file, and small ones that are written once.
struct Writer {
    number: usize,
    random: Random,
    content: Vec<u8>,
    /// The write that has begun, until it has returned.
    under_way: Option<Write>,
    /// Small files that were written and closed.
    small: u64,
    acknowledged: u64,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        let random = Random::new(mix(seed ^ number as u64));
        let (content, under_way) = (Vec::new(), None);
        Self { number, random, content, under_way, small: 0, acknowledged: 0 }
    }

    fn long_file(&self, directory: &Path) -> PathBuf {
        directory.join(format!("long-{}", self.number))
    }

    fn small_file(&self, directory: &Path, at: u64) -> PathBuf {
        directory.join(format!("small-{}-{at}", self.number))
    }

    fn content_of_small(at: u64) -> Vec<u8> {
        bytes(100 + (mix(at) % 9000) as usize)
    }

    /// Opens, makes some writes and syncs, and closes.
    fn burst(&mut self, load: &Load) -> io::Result<()> {
        let mut how = File::options();
        let path = self.long_file(&load.directory);
        let file = how.read(true).write(true).create(true).truncate(false).open(path)?;
        let mode = load.mode();
        for at in 0.. {
            if load.mode() == Mode::Pauses || mode == Mode::Bursts && at == 20 {
                break;
            }
            let (offset, data) = self.under_way.take().unwrap_or_else(|| self.next());
            self.under_way = Some((offset, data.clone()));
            file.write_all_at(&data, offset)?;
            self.returned();
            if self.random.below(10) == 0 {
                file.sync_data()?;
            }
            if mode == Mode::Stays && at == 0 {
                load.staying.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(file);
        if mode == Mode::Bursts {
            // One that was not written in full is written anew.
            let mut small = File::create(self.small_file(&load.directory, self.small))?;
            small.write_all(&Self::content_of_small(self.small))?;
            self.small += 1;
        }
        Ok(())
    }

    fn next(&mut self) -> Write {
        let length = self.content.len() as u64;
        let offset = match self.random.below(3) {
            0 if length > 0 => self.random.below(length),
            _ if length > LONGEST => self.random.below(length),
            _ => length,
        };
        let bytes = match self.random.below(20) {
            0 => 300_000,
            _ => 1 + self.random.below(9000),
        };
        let salt = self.random.draw();
        (offset, (0..bytes).map(|at| mix(salt ^ (at / 8)) as u8).collect())
    }

    /// The write under way has returned.
    fn returned(&mut self) {
        let (offset, data) = self.under_way.take().unwrap();
        self.acknowledged += data.len() as u64;
        write_in(&mut self.content, offset, &data);
    }

    /// Each byte is that of the last write that returned, or of the one under way.
    fn check(&self, directory: &Path, context: &str) {
        let context = format!("{context}, writer {}", self.number);
        let mut new = self.content.clone();
        if let Some((offset, data)) = &self.under_way {
            write_in(&mut new, *offset, data);
        }
        let path = self.long_file(directory);
        let found = if new.is_empty() { Vec::new() } else { fs::read(path).unwrap() };
        let lengths = self.content.len()..=new.len();
        assert!(lengths.contains(&found.len()), "{context}: {} of {lengths:?}", found.len());
        let wrong = (0..found.len())
            .find(|at| found[*at] != new[*at] && Some(&found[*at]) != self.content.get(*at));
        assert_eq!(wrong, None, "{context}: a byte of {}", found.len());
        for at in 0..self.small {
            let found = fs::read(self.small_file(directory, at)).unwrap();
            assert!(found == Self::content_of_small(at), "{context}: small file {at}");
        }
    }
}

fn write_in(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (offset, end) = (offset as usize, offset as usize + data.len());
    content.resize(content.len().max(end), 0);
    content[offset..end].copy_from_slice(data);
}

/// Programs that write to a mount.
struct Load {
    directory: PathBuf,
    writers: Vec<Mutex<Writer>>,
    /// Read by each writer that has a file open.
    mounted: RwLock<()>,
    mode: Mutex<Mode>,
    /// Writers that stay, and have written.
    staying: AtomicUsize,
    is_over: AtomicBool,
    errors: Mutex<Vec<io::Error>>,
}

impl Load {
    fn mode(&self) -> Mode {
        if self.is_over.load(Ordering::Relaxed) { Mode::Pauses } else { *self.mode.lock().unwrap() }
    }

    fn set_mode(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// Writes until the end. After an error it waits for the next mount.
    fn write_on(&self, writer: &Mutex<Writer>) {
        let mut has_stayed = false;
        while !self.is_over.load(Ordering::Relaxed) {
            let is_mounted = self.mounted.read().unwrap();
            let mode = self.mode();
            let writes = mode == Mode::Bursts || mode == Mode::Stays && !has_stayed;
            let result = if writes { writer.lock().unwrap().burst(self) } else { Ok(()) };
            drop(is_mounted);
            has_stayed = mode == Mode::Stays;
            if let Err(error) = result {
                self.errors.lock().unwrap().push(error);
            }
            if !writes || mode == Mode::Stays {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Has each writer open its file, and write until an error.
    fn stay(&self) {
        let nobody_writes = self.mounted.write().unwrap();
        self.staying.store(0, Ordering::Relaxed);
        self.set_mode(Mode::Stays);
        drop(nobody_writes);
        wait_until("all writers stay", || self.staying.load(Ordering::Relaxed) == WRITERS);
    }

    fn check(&self, directory: &Path, context: &str) {
        self.writers.iter().for_each(|writer| writer.lock().unwrap().check(directory, context));
    }
}

/// Replaces a program file by another build: with other bytes at its end.
fn replace_by_another_build(program: &Path) {
    // By another process: a child that this one starts meanwhile would have the file open to write,
    // and then nobody may run it.
    let line =
        r#"cp "$2" "$1.new" && cat /proc/sys/kernel/random/uuid >>"$1.new" && mv "$1.new" "$1""#;
    let (code, _, err) = run(&["/bin/sh", "-c", line, "sh", program.to_str().unwrap(), FOREBAY]);
    assert_eq!(code, Some(0), "{err}");
}

/// A mount whose program file is replaced while it runs starts its next keeper of the old build.
/// Returns when that has the files of all writers, which stay.
fn lose_the_keeper(place: &Place, server: i32) {
    let before = keeper_of(server).unwrap();
    assert_eq!(run(&["kill", "-9", &before.to_string()]).0, Some(0));
    let is_long = |entry: &fs::DirEntry| {
        let path = fs::read_link(entry.path()).unwrap_or_default();
        path.starts_with(&place.source) && path.display().to_string().contains("long-")
    };
    let next = || keeper_of(server).filter(|keeper| *keeper != before);
    let has_files = |keeper| {
        let open = fs::read_dir(format!("/proc/{keeper}/fd"));
        open.is_ok_and(|open| open.flatten().filter(is_long).count() == WRITERS)
    };
    wait_until("another keeper has the files", || next().is_some_and(has_files));
    assert_eq!(build_of(next().unwrap()), build_of(server));
}

/// Ends the mount of the old program, and mounts by the new one.
fn upgrade(place: &Place, load: &Load, end: End, context: &str) {
    let server = place.server();
    let old = build_of(server);
    match end {
        End::KilledLater => {
            load.stay();
            lose_the_keeper(place, server);
            place.kill();
        }
        End::Killed => drop(place.kill()),
        End::Unmounted => load.set_mode(Mode::Pauses),
        End::Detached => {
            load.stay();
            assert_eq!(run(&["kill", &server.to_string()]).0, Some(0));
            wait_until("the process ends", || has_ended(server));
        }
    }
    let nobody_writes = load.mounted.write().unwrap();
    if end == End::Unmounted {
        place.unmount();
    }
    let is_killed = matches!(end, End::Killed | End::KilledLater);
    if !is_killed {
        load.check(&place.source, context);
    }
    let said = place.mount(&[]);
    load.check(&place.mount, context);
    load.set_mode(Mode::Bursts);
    drop(nobody_writes);
    let is_adopted = said.contains(&format!("with the files of process {server}"));
    assert_eq!(is_adopted, is_killed, "{context}: {said}");
    assert_ne!(build_of(place.server()), old, "{context}");
}

#[test]
fn a_mount_is_upgraded_under_load_and_loses_nothing() {
    let Some(mut place) = Place::alone() else { return };
    place.program = place.directory.path().join("forebay");
    let told = std::env::var("FOREBAY_TEST_UPGRADES").ok();
    let count: usize = told.map_or(4, |told| told.parse().expect("the number of upgrades"));
    let seed = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("FOREBAY_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    replace_by_another_build(&place.program);
    place.mount(&[]);
    let load = Load {
        directory: place.mount.clone(),
        writers: (0..WRITERS).map(|number| Mutex::new(Writer::new(number, seed))).collect(),
        mounted: RwLock::new(()),
        mode: Mutex::new(Mode::Bursts),
        staying: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        errors: Mutex::default(),
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for writer in &load.writers {
            scope.spawn(|| load.write_on(writer));
        }
        // Also if an assertion fails.
        let _over = Over(&load.is_over);
        for at in 0..count {
            std::thread::sleep(Duration::from_millis(50 + random.below(300)));
            replace_by_another_build(&place.program);
            let end = ENDS[at % ENDS.len()];
            upgrade(&place, &load, end, &format!("upgrade {at}, {end:?}, seed {seed}"));
        }
    });
    place.unmount();
    load.check(&place.source, "at the end");
    let sum = |of: fn(&Writer) -> u64| -> u64 {
        load.writers.iter().map(|writer| of(&writer.lock().unwrap())).sum()
    };
    let (bytes, small) = (sum(|writer| writer.acknowledged), sum(|writer| writer.small));
    println!(
        "{count} upgrades in {:.1?}: {bytes} bytes acknowledged, {small} small files; 0 lost",
        begin.elapsed()
    );
    assert!(bytes > 0 && small > 0);
    for error in load.errors.lock().unwrap().iter() {
        // The last one for a request in a ring that the process has not seen.
        let is_end = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO, libc::ECANCELED];
        assert!(error.raw_os_error().is_some_and(|found| is_end.contains(&found)), "{error}");
    }
}

/// Ends the writers.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Environment variable with the socket of a keeper of another build.
const SOCKET: &str = "FOREBAY_TEST_SOCKET";

/// Runs as another process: answers as a keeper of another build that has written everything, and
/// ends soon.
#[test]
fn keeper_of_another_build() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let listener = Listener::bind(Path::new(&socket)).unwrap();
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        let Some((channel, _)) = listener.accept().unwrap() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        if let Ok(Received::Message(_)) = channel.receive(Some(Duration::from_secs(1))) {
            let reason = b"of another build";
            let refused = [&[17][..], &(reason.len() as u16).to_le_bytes(), reason].concat();
            channel.send(&refused, &[]).unwrap();
        }
    }
    listener.remove();
}

#[test]
fn a_mount_waits_for_the_end_of_a_keeper_of_another_build() {
    let Some(place) = Place::new() else { return };
    // A mount makes the directory of the sockets.
    place.mount(&[]);
    place.unmount();
    let found = fs::metadata(&place.source).unwrap();
    let socket = format!("/run/forebay/mount-{:x}-{:x}.keeper", found.dev(), found.ino());
    let mut keeper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "upgrade::keeper_of_another_build"])
        .env(SOCKET, &socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the keeper listens", || Path::new(&socket).exists());
    place.mount(&[]);
    assert!(keeper.wait().unwrap().success());
    fs::write(place.mount.join("file"), b"written").unwrap();
    place.unmount();
    let log = place.log();
    let says = format!("waiting for the end of keeper {}, for 40 s at most", keeper.id());
    assert!(log.contains("of another build") && log.contains(&says), "{log}");
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"written");
}

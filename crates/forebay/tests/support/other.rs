//! Another program, in a process of its own, that runs commands on files and reports their results.
//!
//! It is this test program again, in the test `another_program`, which does nothing in the parent.
//! A command is a line, its answer is a line; a call that blocks is answered when it is through.
//! One file is open at a time, and one mapping of it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PAGE, pattern, process};

/// The name of the test that is the other program.
pub(crate) const NAME: &str = "another_program";

/// The byte that `poke` writes to pages.
pub(crate) const POKED: u8 = 0x5a;

/// Another program; killed when dropped.
#[derive(Debug)]
pub(crate) struct Other {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(process::TASK, NAME)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self { child, commands, answers };
        assert_eq!(other.answer(), "ready");
        other
    }

    /// Has it do something, and waits until it has.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.report(command);
        self.answer()
    }

    /// As `ask`, where all went well; with how long it took.
    pub(crate) fn do_now(&mut self, command: &str) -> Duration {
        let start = Instant::now();
        let answer = self.ask(command);
        assert!(!answer.starts_with("error"), "{command}: {answer}");
        start.elapsed()
    }

    /// Has it begin something.
    pub(crate) fn report(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }

    /// Returns the result of the last command.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the other program has ended");
            if let Some(reported) = process::reported(line.trim_end()) {
                return reported.to_owned();
            }
        }
    }

    /// Opens a file: `read`, `write`, `both` or `append`.
    pub(crate) fn open(&mut self, how: &str, path: &Path) -> Duration {
        self.do_now(&format!("open {how} {}", path.display()))
    }

    /// Stops it as a debugger would: it keeps what it has.
    pub(crate) fn stop(&self) {
        self.signal(libc::SIGSTOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers; the child has not been waited for, so its number is its own.
        let result = unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other program's side: runs commands until its input ends.
pub(crate) fn serve() {
    if process::task().as_deref() != Some(NAME) {
        return;
    }
    // A lease of its own that is broken would end it.
    // SAFETY: sets no handler.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    process::report(format_args!("ready"));
    let mut program = Program::default();
    loop {
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).unwrap() == 0 {
            return;
        }
        let line = line.trim_end();
        match program.run(line) {
            Ok(answer) => process::report(format_args!("{answer}")),
            Err(error) => {
                process::report(format_args!("error {}", error.raw_os_error().unwrap_or(-1)));
            }
        }
    }
}

#[derive(Default)]
struct Program {
    file: Option<File>,
    mapping: Option<Mapping>,
}

impl Program {
    fn run(&mut self, line: &str) -> std::io::Result<String> {
        let mut words = line.split(' ');
        let verb = words.next().unwrap();
        let words: Vec<&str> = words.collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let path = |at: usize| PathBuf::from(words[at]);
        match verb {
            "open" => self.file = Some(open(words[0], &path(1))?),
            "close" => self.file = None,
            // Offset, length, salt: bytes of that pattern.
            "write" => {
                self.file().write_all_at(&pattern(number(2), number(1) as usize), number(0))?;
            }
            "holds" => {
                let mut found = vec![0; number(1) as usize];
                self.file().read_exact_at(&mut found, number(0))?;
                return Ok((found == pattern(number(2), found.len())).to_string());
            }
            "read" => self.file().read_exact_at(&mut vec![0; number(1) as usize], number(0))?,
            "length" => return Ok(self.file().metadata()?.len().to_string()),
            "set_length" => self.file().set_len(number(0))?,
            "sync" => self.file().sync_data()?,
            "truncate" => truncate(&path(0), number(1))?,
            "map" => self.mapping = Some(Mapping::new(self.file(), number(0) as usize)?),
            // Length: nothing is read of it before `populate`.
            "map_to_read" => {
                let (length, protection) = (number(0) as usize, libc::PROT_READ);
                self.mapping = Some(Mapping::protected(self.file(), length, protection)?);
            }
            // Maps every page as a read of it does, and fails behind the end of the file.
            "populate" => self.mapping().populate()?,
            "unmap" => self.mapping = None,
            // Offset, length: reads a byte of each page.
            "touch" => self.mapping().touch(number(0) as usize, number(1) as usize),
            // The first byte of each page is written, always the same, over and over until the next
            // command is there; that is not answered by itself.
            "poke_on" => self.poke_on(number(0) as usize, number(1) as usize),
            "resident" => {
                let resident = self.mapping().resident(number(0) as usize, number(1) as usize)?;
                return Ok(resident.to_string());
            }
            "lease" => fcntl(self.file(), libc::F_SETLEASE, libc::F_WRLCK)?,
            "lock_posix" => lock(self.file(), libc::F_SETLK)?,
            "lock_ofd" => lock(self.file(), libc::F_OFD_SETLK)?,
            "flock" => {
                // SAFETY: the descriptor is open.
                check(unsafe {
                    libc::flock(self.file().as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB)
                })?;
            }
            other => panic!("unknown: {other}"),
        }
        Ok("done".to_owned())
    }

    fn poke_on(&self, offset: usize, length: usize) {
        let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one entry.
        while unsafe { libc::poll(&raw mut input, 1, 0) } == 0 {
            self.mapping().poke(offset, length);
        }
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("a file is open")
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("a file is mapped")
    }
}

fn open(how: &str, path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = if how.ends_with("_at_once") { libc::O_NONBLOCK } else { 0 };
    options.custom_flags(flags);
    match how.trim_end_matches("_at_once") {
        "read" => options.read(true),
        "write" => options.write(true),
        "both" => options.read(true).write(true),
        "append" => options.append(true),
        "cut" => options.write(true).truncate(true),
        other => panic!("unknown: {other}"),
    };
    options.open(path)
}

fn truncate(path: &Path, length: u64) -> std::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends in zero.
    check(unsafe { libc::truncate(path.as_ptr(), length.cast_signed()) })
}

fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> std::io::Result<()> {
    // SAFETY: the descriptor is open, and the commands used here take a number.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, argument) })
}

/// Locks all of a file for writing.
fn lock(file: &File, command: libc::c_int) -> std::io::Result<()> {
    // SAFETY: all fields are plain numbers; zeroes mean from the start, to the end, no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the descriptor is open, and the pointer is to a lock that is read during the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) })
}

fn check(result: libc::c_int) -> std::io::Result<()> {
    if result == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// A shared mapping of the start of a file.
struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn new(file: &File, length: usize) -> std::io::Result<Self> {
        Self::protected(file, length, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn protected(file: &File, length: usize, protection: libc::c_int) -> std::io::Result<Self> {
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start =
            unsafe { libc::mmap(none, length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // Read-ahead would load pages beside those under test.
        // SAFETY: all of it is mapped.
        check(unsafe { libc::madvise(start, length, libc::MADV_RANDOM) })?;
        Ok(Self { start: start.cast(), length })
    }

    /// The pages of a range.
    fn pages(&self, offset: usize, length: usize) -> impl Iterator<Item = *mut u8> {
        assert!(offset + length <= self.length);
        // SAFETY: within the mapping.
        (offset..offset + length).step_by(PAGE as usize).map(|at| unsafe { self.start.add(at) })
    }

    fn touch(&self, offset: usize, length: usize) {
        for page in self.pages(offset, length) {
            // SAFETY: mapped, and the file is as long.
            std::hint::black_box(unsafe { page.read_volatile() });
        }
    }

    fn populate(&self) -> std::io::Result<()> {
        // SAFETY: all of it is mapped.
        check(unsafe { libc::madvise(self.start.cast(), self.length, libc::MADV_POPULATE_READ) })
    }

    fn poke(&self, offset: usize, length: usize) {
        for page in self.pages(offset, length) {
            // SAFETY: mapped, and the file is as long.
            unsafe { page.write_volatile(POKED) };
        }
    }

    /// How many pages of a range the kernel holds.
    fn resident(&self, offset: usize, length: usize) -> std::io::Result<usize> {
        let mut pages = vec![0u8; length.div_ceil(PAGE as usize)];
        let start = self.pages(offset, length).next().expect("a range that is not empty");
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        check(unsafe { libc::mincore(start.cast(), length, pages.as_mut_ptr()) })?;
        Ok(pages.iter().filter(|page| **page & 1 != 0).count())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and used by nobody after this.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

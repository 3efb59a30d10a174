//! The examples do what their first lines say. Each runs as a program, as a reader would run it, in
//! a directory of its own.

mod support;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{MIB, directory, pattern};

/// Returns the program of an example. `cargo test` builds the examples of a package, but not if
/// only some test programs are selected.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/PROFILE/deps/examples-HASH and target/PROFILE/examples/NAME.
    let profile = test.parent().and_then(Path::parent).expect("a test program is in `deps`");
    let program = profile.join("examples").join(example);
    assert!(
        program.exists(),
        "no {}: run `cargo build -p forebay --examples` first",
        program.display()
    );
    program
}

/// Runs an example and returns what it printed.
fn run<S: AsRef<OsStr>>(example: &str, arguments: &[S]) -> String {
    let output =
        Command::new(program(example)).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {}\n{said}{errors}", output.status);
    print!("{said}");
    said
}

/// Returns the records of a log whose checksums are right.
fn records(content: &str) -> Vec<&str> {
    let pairs = content.lines().filter_map(|line| line.split_once(' '));
    let is_whole = |(sum, record): &(&str, &str)| {
        u32::from_str_radix(sum, 16) == Ok(crc32c::crc32c(record.as_bytes()))
    };
    pairs.filter(is_whole).map(|(_, record)| record).collect()
}

#[test]
fn log_keeps_every_record_once_and_shares_flushes() {
    let directory = directory();
    let path = directory.path().join("log");
    let said = run("log", &[path.as_os_str(), "4".as_ref(), "25".as_ref()]);
    let content = std::fs::read_to_string(&path).unwrap();
    let mut found = records(&content);
    let of_thread = |thread| (0..25).map(move |record| format!("thread {thread} record {record}"));
    for thread in 0..4 {
        let prefix = format!("thread {thread} ");
        let own = found.iter().filter(|line| line.starts_with(&prefix));
        assert!(own.copied().eq(of_thread(thread)), "records of a thread are in order");
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 100, "each record is there once");
    std::fs::write(&path, format!("{content}\n12345678 a part of a rec")).unwrap();
    let again = run("log", &[path.as_os_str(), "1".as_ref(), "1".as_ref()]);
    assert!(again.starts_with("100 old records"), "{again}");
    assert_eq!(records(&std::fs::read_to_string(&path).unwrap()).len(), 101);
    let flushes = said.trim().rsplit_once(", ").unwrap().1.strip_suffix(" flushes").unwrap();
    assert!((1..=101).contains(&flushes.parse::<u32>().unwrap()), "{said}");
}

#[test]
fn checkpoint_replaces_the_last_one() {
    let directory = directory();
    let path = directory.path().join("checkpoint");
    std::fs::write(&path, "the last one").unwrap();
    run("checkpoint", &[path.as_os_str(), "10".as_ref(), "3".as_ref()]);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, 12 * MIB, "a whole number of chunks");
    for (number, chunk) in content.chunks(4 << 20).enumerate() {
        let offset = (number as u64 * 4 * MIB).to_le_bytes();
        assert!(chunk.chunks(8).all(|word| word == offset), "chunk {number}");
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "the temporary file is gone: {left:?}");
}

#[test]
fn copy_is_exact_and_bounded() {
    let directory = directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let content = pattern(7, (40 << 20) + 123);
    std::fs::write(&from, &content).unwrap();
    std::fs::write(&to, "the last one").unwrap();
    let said = run("copy", &[&from, &to]);
    assert!(std::fs::read(&to).unwrap() == content, "the copy differs");
    let dirty = said.trim().rsplit_once("at most ").unwrap().1.strip_suffix(" dirty").unwrap();
    assert!(dirty.parse::<u64>().unwrap() <= 16 * MIB, "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no temporary file");
}

#[test]
fn many_stores_keep_what_they_have() {
    let directory = directory();
    let stores = directory.path().join("stores");
    for half in [1, 2] {
        let said = run("many_stores", &[&stores]);
        assert_eq!(said, "0 of 320 puts failed\n");
        for number in 0..64 {
            let path = stores.join(format!("{number}.store"));
            let mut content = std::fs::read(&path).unwrap();
            let values: Vec<u8> = content.chunks(64).map(|record| record[4]).collect();
            assert_eq!(values, [0, 1, 2, 3, 4].repeat(half), "store {number}");
            // A part of a record, as of a crash, is written over.
            content.extend([9; 20]);
            std::fs::write(&path, content).unwrap();
        }
    }
}

#[test]
fn service_loses_no_answered_line_to_a_kill() {
    let directory = directory();
    let path = directory.path().join("log");
    let mut service = Command::new(program("service"))
        .args(["127.0.0.1:0".as_ref(), path.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.split(' ').next().unwrap();
    let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    for line in 0..20 {
        for (number, mut client) in clients.iter().enumerate() {
            writeln!(client, "client {number} line {line}").unwrap();
        }
        for client in &clients {
            let mut answer = String::new();
            // One answer is one line, so nothing more is in the buffer.
            BufReader::new(client).read_line(&mut answer).unwrap();
            assert!(answer.trim().parse::<u64>().is_ok(), "{answer}");
        }
    }
    service.kill().unwrap();
    service.wait().unwrap();
    let content = std::fs::read_to_string(&path).unwrap();
    let found = records(&content);
    let line = |n| format!("client {} line {}", n % 3, n / 3);
    assert!((0..60).all(|n| found.contains(&line(n).as_str())), "{content}");
}

#[test]
fn adopt_loses_nothing_to_a_kill() {
    let directory = directory();
    let said = run("adopt", &[directory.path()]);
    assert!(said.contains("signal: 9"), "{said}");
    let written = std::fs::read(directory.path().join("table")).unwrap();
    assert!(written.len() == 1 << 20 && written.iter().all(|&byte| byte == b'x'));
    assert!(said.contains("1048576 bytes"), "{said}");
}

#[test]
fn write_cost_names_the_limit_of_open_files_that_is_too_low() {
    let directory = directory();
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -n 200; exec "$@""#, "sh"])
        .arg(program("write_cost"))
        .arg(directory.path())
        .args(["64", "1", "100"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let says = "write_cost: 100 files need 264 descriptors, and the limit is 200; raise it with";
    assert!(output.status.code() == Some(2) && said.starts_with(says), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn an_example_fits_a_screen() {
    let examples = "log checkpoint unpack many_stores copy service adopt direct";
    for example in examples.split(' ') {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{example}.rs"));
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 60, "{}: {lines} lines, of 60 at most", path.display());
    }
}

#[test]
fn unpack_makes_the_tree_of_an_archive() {
    let directory = directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    for number in 0..200usize {
        let path = from.join(format!("{}/{}/{number}", number % 7, number % 3));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, pattern(number as u64, number * 997)).unwrap();
    }
    let archive = directory.path().join("archive.tar");
    let mut builder = tar::Builder::new(std::fs::File::create(&archive).unwrap());
    builder.append_dir_all(".", &from).unwrap();
    builder.finish().unwrap();
    let said = run("unpack", &[&archive, &to]);
    assert!(said.starts_with("200 files, "), "{said}");
    let compared = Command::new("diff").arg("-r").args([&from, &to]).output().unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
}

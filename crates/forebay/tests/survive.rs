//! The program dies; what it had written does not.
mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use forebay::{Engine, Open};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::{assert_on_disk, directory, pattern, process};

const CHILD: &str = "child_with_a_keeper";

#[test]
fn keeper() {
    kept::serve();
}

#[test]
fn child_with_a_keeper() {
    let Some(task) = process::task() else { return };
    let directory = Path::new(&task);
    let keeper = kept::keeper().log(directory.join("log"));
    let engine = Engine::builder().cache_bytes(24 << 20).survive(keeper).build().unwrap();
    let file = engine.open(directory.join("file"), Open::create_new()).unwrap();
    file.write_at(&pattern(7, 100_000), 0).unwrap();
    file.append(b"the end").unwrap();
    process::tell(format_args!("{}", engine.keeper().unwrap().process.unwrap()));
    std::thread::sleep(SOON);
}

#[test]
fn contract_04_what_a_killed_program_had_written_is_there() {
    if process::task().is_some() {
        return;
    }
    adopt_orphans();
    let directory = directory();
    let mut child = process::start_child(CHILD, directory.path().to_str().unwrap());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let keeper = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(told) = process::told(&line) {
            break told.parse().unwrap();
        }
    };
    kept::kill(&mut child, libc::SIGKILL);
    let status = wait_for_orphan(keeper, SOON);
    println!("{}", kept::said(&directory.path().join("log")));
    assert_eq!(status, 0);
    let mut expected = pattern(7, 100_000);
    expected.extend_from_slice(b"the end");
    assert_on_disk(&directory.path().join("file"), &expected, "after the keeper's end");
}

//! Loses no accepted write to `kill -9`, and goes on with a warm cache.
//!
//! Usage: `adopt DIRECTORY`
//!
//! The program starts itself as a child, which writes without a sync, and kills it with SIGKILL.
//! The child's keeper, a second process, finishes its writes. The parent then adopts what the
//! keeper holds: the memory and the open files of the dead child.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forebay::{Builder, Engine, Keeper, OpenOptions, Options, keeper};

const BYTES: usize = 1 << 20;

/// An engine whose keeper listens at a socket in `directory`.
fn builder(directory: &Path) -> Builder {
    Engine::builder(Options::default()).survive(Keeper {
        socket: Some(directory.join("keeper.socket")),
        log: Some(directory.join("keeper.log")),
        ..Keeper::this_program()
    })
}

/// Writes without a sync, reports that, and waits to be killed.
fn child(directory: &Path) -> forebay::Result<()> {
    let engine = builder(directory).build()?;
    let mut open = OpenOptions::new();
    let file = engine.open(directory.join("table"), open.write(true).create(true))?;
    file.write_at(&vec![b'x'; BYTES], 0)?;
    println!("written");
    loop {
        std::thread::park();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In the keeper process this call does not return, so nothing may come before it.
    keeper::run_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = PathBuf::from(arguments.first().ok_or("usage: adopt DIRECTORY")?);
    if arguments.get(1).is_some_and(|argument| argument == "child") {
        return Ok(child(&directory)?);
    }
    let mut child = Command::new(std::env::current_exe()?);
    let mut child = child.arg(&directory).arg("child").stdout(Stdio::piped()).spawn()?;
    let line = BufReader::new(child.stdout.take().ok_or("no output")?).lines().next();
    child.kill()?;
    println!("the child has {} and died: {}", line.ok_or("no line")??, child.wait()?);

    let adopted = builder(&directory).adopt(directory.join("keeper.socket"))?;
    let file = adopted.files.first().ok_or("no file was adopted")?;
    let mut content = vec![0; BYTES];
    let read = file.read_at(&mut content, 0)?;
    assert!(read == BYTES && content.iter().all(|&byte| byte == b'x'), "a write was lost");
    println!("adopted {}: {read} bytes, {} pages warm", file.path().display(), adopted.clean_pages);
    adopted.engine.shutdown(std::time::Duration::from_secs(10))?;
    Ok(())
}

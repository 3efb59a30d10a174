//! Serves a disk that charges, for other programs: prints the path of its block device, and removes
//! it at the end of standard input. As root:
//!
//! ```text
//! cargo run --release -p forebay-lab --example disk -- xfs,size=2g,iops=3000,rate=125m,flush=1ms
//! ```
//!
//! A file system of the kind is made on it and mounted: its directory is the second line, and what
//! the disk charges, as measured there, the third. With `--bare` nothing is mounted.

use std::error::Error;
use std::io::{Write as _, stdin, stdout};
use std::process::ExitCode;

use forebay_lab::disk::{is_server, server_main};
use forebay_lab::file_system::{FileSystem, Spec};
use forebay_lab::price::{Measured, measure};
use forebay_lab::scratch::Stop;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if is_server(std::env::args_os()) {
        return Ok(server_main());
    }
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bare = arguments.iter().any(|argument| argument == "--bare");
    arguments.retain(|argument| argument != "--bare");
    let spec: Spec = arguments.first().ok_or("give the file system, as ext4,flush=1ms")?.parse()?;
    let directory = tempfile::tempdir_in(".")?;
    let mut made = FileSystem::new_in(directory.path(), &spec.looked_at()?, &Stop::default())?;
    println!("{}", made.bare_device()?.display());
    if !is_bare {
        let at = made.renew()?.to_owned();
        // The mount is seen only by this program and those that it starts.
        println!("{} (nsenter --target {} --mount)", at.display(), std::process::id());
        println!("{}", Measured::from(measure(&at)?).line());
    }
    stdout().flush()?;
    std::io::copy(&mut stdin(), &mut std::io::sink())?;
    Ok(ExitCode::SUCCESS)
}

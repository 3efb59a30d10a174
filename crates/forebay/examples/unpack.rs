//! Unpacks a tar archive. All files are durable, under their names, when it ends; if it is stopped
//! before, none of them is there.
//!
//! Usage: `unpack ARCHIVE DIRECTORY`
//!
//! 7.42 [6.70-8.82] times the rate of `std::fs` with an `fsync` for each file; no difference to one
//! `syncfs` is shown: `alone-small` of `forebay compare files`, results/files-ext4.txt.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, copy};
use std::path::{Component, Path};
use std::time::Instant;

use forebay::Engine;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [archive, directory] = &arguments[..] else {
        return Err("usage: unpack ARCHIVE DIRECTORY".into());
    };
    let begun = Instant::now();
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, File::open(archive)?));
    let engine = Engine::new()?;
    let batch = engine.batch();
    batch.create_dir(directory)?;
    let (mut files, mut bytes) = (0, 0);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        // A name in an archive must not lead out of the directory.
        if !name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(format!("{}: not a name below the directory", name.display()).into());
        }
        let path = Path::new(directory).join(&name);
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            batch.create_dir(&path)?;
        } else if kind.is_file() {
            if let Some(parent) = path.parent() {
                batch.create_dir(parent)?;
            }
            let mut file = batch.create(&path)?;
            bytes += copy(&mut entry, &mut file)?;
            file.set_mode(entry.header().mode()? & 0o777)?;
            file.close()?;
            files += 1;
        } else {
            println!("skipped {}: neither a file nor a directory", name.display());
        }
    }
    // After an error, `targets` has the state of each: old, new, or new but not durable.
    batch.commit().inspect_err(|error| eprintln!("{:?}", error.targets))?;
    println!("{files} files, {bytes} bytes, durable in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

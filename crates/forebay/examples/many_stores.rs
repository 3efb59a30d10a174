//! Many small stores in one directory, each a log of its own, durable together: `many_stores
//! [DIRECTORY]`, by default below the temporary directory.
//!
//! 1.78 [1.06-2.36] times the rate of `std::fs` with eight threads that sync:
//! `beside`, results/examples.txt.

use std::path::PathBuf;

use forebay::{Engine, File, OpenOptions, Result};

const RECORD: usize = 64;

struct Store {
    path: PathBuf,
    file: File,
    end: u64, // of the durable records
}

fn open(engine: &Engine, path: PathBuf) -> Result<Store> {
    let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true))?;
    // Records that a killed program wrote can be read, but may not be durable yet.
    file.sync_data()?;
    let mut content = vec![0; file.len()? as usize];
    file.read_exact_at(&mut content, 0)?;
    let is_whole = |record: &&[u8]| crc32c::crc32c(&record[4..]).to_le_bytes() == record[..4];
    let whole = content.chunks_exact(RECORD).take_while(is_whole).count();
    Ok(Store { path, file, end: (whole * RECORD) as u64 })
}

/// Appends a value to each store. Returns how many stores do not have it.
fn put(engine: &Engine, stores: &mut Vec<Store>, value: [u8; RECORD - 4]) -> Result<usize> {
    let record = [&crc32c::crc32c(&value).to_le_bytes()[..], &value].concat();
    stores.iter().try_for_each(|store| store.file.write_at(&record, store.end))?;
    let files: Vec<_> = stores.iter().map(|store| &store.file).collect();
    let failed = engine.sync_many(&files).err().map_or_else(Vec::new, |error| error.errors);
    stores.iter_mut().for_each(|store| store.end += RECORD as u64);
    for (index, error) in &failed {
        // The disk is full or fails, or a flush failed (`Poisoned`). Drop the record, close the
        // file, and open it again: the next put writes to the same place.
        let Store { path, file, end } = stores.remove(*index);
        eprintln!("{}: {error}", path.display());
        file.abandon_unwritten()?;
        drop(file.close());
        stores.insert(*index, Store { end: end - RECORD as u64, ..open(engine, path)? });
    }
    Ok(failed.len())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1);
    let directory = directory.map_or(std::env::temp_dir().join("stores"), PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    let engine = Engine::new()?;
    let open = |number| open(&engine, directory.join(format!("{number}.store")));
    let mut stores = (0..64).map(open).collect::<Result<Vec<_>>>()?;
    let failed =
        (0..5).map(|value| put(&engine, &mut stores, [value; 60])).sum::<Result<usize>>()?;
    println!("{failed} of {} puts failed", 5 * stores.len());
    Ok(stores.into_iter().try_for_each(|store| store.file.close())?)
}

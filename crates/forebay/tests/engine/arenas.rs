//! Arenas of dead programs, made from the input of a fuzzer (`fuzz/`), and the test of its corpus.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use arbitrary::{Result, Unstructured};
use forebay::keeper::image::{Recovered, Run, recover};
use forebay_block::Frame;
use forebay_uring::{
    Arena, FILE_RECORDS, FileRecord, Flush, FrameState, Header, Identity, OpenFile,
};

/// Recovers the arena of a dead program with a few files in a directory.
///
/// # Panics
/// If a recovery does something else than a dry run says.
pub(crate) fn recovery(data: &[u8], directory: &Path) {
    let files = [0, 1, 2].map(|number| directory.join(format!("file-{number}")));
    for file in &files {
        fs::write(file, [b'f'; 10_000]).expect("a new file is written");
    }
    let mut input = Unstructured::new(data);
    let (arena, is_small) = arena(&mut input, &files).expect("any bytes make an arena");
    let memory = arena.memfd().expect("it is shared").as_raw_fd();
    let image = PathBuf::from(format!("/proc/self/fd/{memory}"));
    let dry = recover(&image, Run::Dry);
    // Errors of a disk, such as a file that is too long, are tried again for seconds.
    if is_small {
        let sorted = |files: Vec<Recovered>| {
            let mut files: Vec<_> = files.into_iter().map(|file| (file.path, file.bytes)).collect();
            files.sort_unstable();
            files
        };
        let real = recover(&image, Run::Real).map(sorted).map_err(|error| error.kind());
        assert_eq!(real, dry.map(sorted).map_err(|error| error.kind()));
    }
}

/// Returns an arena with records, headers and masks, and whether its files are small.
fn arena(input: &mut Unstructured<'_>, files: &[PathBuf]) -> Result<(Arena, bool)> {
    let frames = input.int_in_range(1..=8)?;
    let arena = Arena::shared(frames).expect("memory for a few frames");
    let mut is_small = true;
    while !input.is_empty() {
        let number = match input.arbitrary::<u8>()? {
            255 => FILE_RECORDS - 1,
            few => u32::from(few % 4),
        };
        let frame = Frame(input.int_in_range(0..=frames - 1)?);
        match input.int_in_range(0..=9)? {
            0..=2 => {
                let record = record(input, files)?;
                is_small &= record.size.max(record.cut.unwrap_or(0)) <= 1 << 30;
                arena.enter_file(number, &record);
            }
            3..=5 => {
                let page = match input.arbitrary::<u8>()? {
                    255 => input.arbitrary()?,
                    few => u64::from(few % 8),
                };
                let state = [FrameState::Dirty, FrameState::Clean, FrameState::Partial];
                arena.publish(
                    frame,
                    Header {
                        file: number,
                        generation: input.int_in_range(0..=3)?,
                        page,
                        sequence: input.arbitrary()?,
                        length: input.int_in_range(0..=4096)?,
                        state: *input.choose(&state)?,
                    },
                );
            }
            6 | 7 => {
                let (one, other) = (input.int_in_range(0..=4096)?, input.int_in_range(0..=4096)?);
                arena.add_to_mask(frame, usize::min(one, other)..usize::max(one, other));
            }
            8 => arena.interrupt_file(number),
            _ => {
                // A word of the superblock.
                let memory = arena.memfd().expect("it is shared").try_clone_to_owned();
                let memory = File::from(memory.expect("a descriptor is free"));
                let (word, value) = (input.int_in_range(0..=15_u64)?, input.arbitrary::<u64>()?);
                memory.write_all_at(&value.to_ne_bytes(), word * 8).expect("it is in the memory");
            }
        }
    }
    Ok((arena, is_small))
}

fn record(input: &mut Unstructured<'_>, files: &[PathBuf]) -> Result<FileRecord> {
    let path = input.choose(files)?;
    let flags: u8 = input.arbitrary()?;
    let is = |bit: u8| flags >> bit & 1 == 1;
    let known = OpenFile::identity_of(path).expect("the file is there");
    let other = Identity { inode: known.inode + 1, ..known };
    let length = |input: &mut Unstructured<'_>| match is(0) {
        true => input.arbitrary(),
        false => Ok(u64::from(input.arbitrary::<u16>()?)),
    };
    Ok(FileRecord {
        generation: input.int_in_range(1..=3)?,
        leased: is(1),
        device: is(2) && is(3),
        writable: !is(4),
        created: is(5),
        identity: if is(6) && is(7) { other } else { known },
        size: length(input)?,
        cut: if is(6) { Some(length(input)?.min(u64::MAX - 1)) } else { None },
        interrupted: is(4) && is(7),
        flush: if is(5) { Flush::Failed } else { Flush::Well },
        unpublished: is(6).then_some(7),
        path: if is(3) && is(7) { "relative".into() } else { path.clone() },
    })
}

#[test]
fn kept_arenas_of_the_fuzzer() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/image");
    let directory = tempfile::tempdir_in(".").unwrap();
    for input in fs::read_dir(corpus).unwrap() {
        let input = input.unwrap().path();
        println!("{}", input.display());
        recovery(&fs::read(input).unwrap(), directory.path());
    }
}

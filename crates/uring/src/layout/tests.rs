use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use forebay_block::Frame;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};

use super::*;
use crate::arena::Arena;
use crate::file::Identity;
use crate::header::{FrameState, Header};
use crate::records::{FileRecord, Flush};

const FRAMES: u32 = 8;
/// Offsets in an arena of [`FRAMES`] frames.
const RECORDS: u64 = (2 + FRAMES as u64) * 4096;
const MASKS: u64 = RECORDS + 65_536 * 512;
const BYTES: u64 = MASKS + 4096;

fn header(number: u32) -> Header {
    let state = [FrameState::Dirty, FrameState::Clean, FrameState::Partial][number as usize % 3];
    Header {
        file: number,
        generation: 7,
        page: u64::from(number),
        sequence: 9,
        length: 4096,
        state,
    }
}

fn record(number: u32) -> FileRecord {
    FileRecord {
        generation: 7,
        leased: false,
        device: false,
        writable: true,
        created: true,
        identity: Identity { device: 1, inode: u64::from(number) },
        size: 100,
        cut: None,
        interrupted: false,
        flush: Flush::Well,
        unpublished: None,
        path: "/somewhere".into(),
    }
}

/// The pages of an arena that have anything in them: every second frame is published, with its
/// file.
fn pages() -> &'static [(u64, Vec<u8>)] {
    static PAGES: OnceLock<Vec<(u64, Vec<u8>)>> = OnceLock::new();
    PAGES.get_or_init(|| {
        let arena = Arena::shared(FRAMES).unwrap();
        for number in (0..FRAMES).step_by(2) {
            arena.publish(Frame(number), header(number));
            arena.add_to_mask(Frame(number), 5..9);
            arena.enter_file(number, &record(number));
        }
        let memory = File::from(arena.memfd().unwrap().try_clone_to_owned().unwrap());
        let page = |index: u64| {
            let mut bytes = vec![0; PAGE];
            memory.read_exact_at(&mut bytes, index * 4096).unwrap();
            (index * 4096, bytes)
        };
        (0..BYTES / 4096)
            .map(page)
            .filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0))
            .collect()
    })
}

fn fill(file: &File) {
    file.set_len(BYTES).unwrap();
    pages().iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
}

fn image() -> File {
    let file = tempfile::tempfile().unwrap();
    fill(&file);
    file
}

/// Memory with the same in it, sealed as told.
fn memory(seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("test", flags).unwrap());
    fill(&file);
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

/// All that is found is what was published.
fn assert_nothing_else(arena: &Arena) {
    assert_eq!(arena.frames(), FRAMES);
    for number in 0..FRAMES {
        let found = arena.header(Frame(number));
        assert!(found.is_none() || (number % 2 == 0 && found == Some(header(number))), "{found:?}");
        let written = arena.written_of(Frame(number));
        assert!(written.iter().all(|bytes| bytes.start < bytes.end && bytes.end <= PAGE));
    }
    for number in 0..64 {
        // Size, cut and mark are not checked: any number is one.
        let found = arena.file(number);
        let found = found.map(|found| FileRecord {
            size: 100,
            cut: None,
            interrupted: false,
            flush: Flush::Well,
            unpublished: None,
            ..found
        });
        assert!(found.is_none() || (number % 2 == 0 && found == Some(record(number))), "{found:?}");
    }
    assert!(arena.files().count() <= 4);
}

#[test]
fn an_image_has_what_was_published() {
    for arena in
        [Arena::of_image(&image()).unwrap(), Arena::of_memfd(memory(SealFlags::SHRINK)).unwrap()]
    {
        assert_nothing_else(&arena);
        assert_eq!(arena.header(Frame(6)), Some(header(6)));
        assert_eq!(arena.files().map(|(number, _)| number).collect::<Vec<_>>(), [0, 2, 4, 6]);
        assert_eq!(arena.written_of(Frame(6)).as_slice(), std::slice::from_ref(&(5..9)));
    }
}

#[test]
fn what_is_changed_in_an_image_stays_in_memory() {
    let image = image();
    let arena = Arena::of_image(&image).unwrap();
    arena.retire(Frame(0));
    arena.leave_file(2);
    assert_eq!((arena.header(Frame(0)), arena.file(2)), (None, None));
    assert_eq!(arena.memfd().map(|_| ()), None);
    let again = Arena::of_image(&image).unwrap();
    assert_eq!((again.header(Frame(0)), again.file(2)), (Some(header(0)), Some(record(2))));
}

#[test]
fn what_is_too_short_is_refused() {
    let image = image();
    for bytes in [0, 1, 111, 112, 4095, 4096, RECORDS, MASKS, BYTES - 1] {
        image.set_len(bytes).unwrap();
        let refused = Arena::of_image(&image).unwrap_err();
        assert!(
            matches!(refused, ImageError::TooShort { bytes: found, .. } if found == bytes),
            "{refused}"
        );
        assert!(refused.to_string().starts_with(&format!("it has {bytes} bytes, and needs ")));
        // The part cut off was within the image.
        fill(&image);
    }
    assert!(Arena::of_image(&image).is_ok());
    image.set_len(BYTES + 5).unwrap();
    assert!(Arena::of_image(&image).is_ok(), "what follows is not looked at");
}

#[test]
fn every_number_must_be_the_right_one() {
    let image = image();
    let word = |index: u64| {
        let mut bytes = [0; 8];
        image.read_exact_at(&mut bytes, index * 8).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let says = [
        "does not begin as one",
        "of version",
        "a frame of it has",
        "frame",
        "offset of the headers",
        "a header of it has",
        "offset of the frames",
        "length is said",
        "offset of the records",
        "number of records",
        "a record of it has",
        "offset of the masks",
        "a mask of it has",
    ];
    for (index, says) in (0..).zip(says) {
        let right = word(index);
        let wrong = [
            0,
            1,
            right + 1,
            right - 1,
            right << 1,
            right << 32,
            1 << 63,
            u64::MAX,
            u64::MAX - 4095,
        ];
        for wrong in wrong.into_iter().filter(|&wrong| wrong != right) {
            image.write_all_at(&wrong.to_ne_bytes(), index * 8).unwrap();
            let refused = Arena::of_image(&image).unwrap_err().to_string();
            // Another number of frames needs other offsets; a wrong first word may be a version.
            let other = index == 3 && refused.contains("is said to be")
                || index == 0 && refused.contains("version");
            assert!(refused.contains(says) || other, "word {index} of {wrong:#x}: {refused}");
        }
        image.write_all_at(&right.to_ne_bytes(), index * 8).unwrap();
    }
    assert!(Arena::of_image(&image).is_ok());
}

/// The words that are not zero of the same arena, as the last program of version 2 laid it out.
fn words_of_version_2() -> Vec<(u64, u64)> {
    let text = include_str!("tests/version-2.words");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(at, word)| (number(at), number(word)))
        .collect()
}

fn image_of_version_2() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES).unwrap();
    for (at, word) in words_of_version_2() {
        file.write_all_at(&word.to_ne_bytes(), at).unwrap();
    }
    file
}

#[test]
fn contract_21_an_image_of_the_version_before_is_read_and_has_no_mark() {
    let arena = Arena::of_image(&image_of_version_2()).unwrap();
    assert_nothing_else(&arena);
    let found: Vec<_> = arena.files().collect();
    assert_eq!(found, [0, 2, 4, 6].map(|number| (number, record(number))));
    assert_eq!(arena.header(Frame(6)), Some(header(6)));
    assert_eq!(arena.written_of(Frame(6)).as_slice(), std::slice::from_ref(&(5..9)));
    // A mark is read in it too, should a later program set one.
    arena.interrupt_file(4);
    assert!(arena.file(4).unwrap().interrupted);
}

#[test]
fn contract_21_an_arena_without_marks_differs_from_the_version_before_in_its_version_alone() {
    let mut before = words_of_version_2();
    for (at, word) in &mut before {
        *word = match at {
            0 => u64::from_ne_bytes(*b"FOREBAY\x04"),
            8 => 4,
            _ => *word,
        };
    }
    let words = pages().iter().flat_map(|(at, bytes)| {
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        (*at..).step_by(8).zip(words)
    });
    let now: Vec<_> = words.filter(|(_, word)| *word != 0).collect();
    assert_eq!(now, before);
}

#[test]
fn contract_21_versions_that_cannot_be_read_are_reported() {
    let image = image();
    for (magic, version) in [(b"FOREBAY\x01", 1), (b"FOREBAY\x05", 5), (b"FOREBAY\x02", 3)] {
        image.write_all_at(magic, 0).unwrap();
        image.write_all_at(&u64::to_ne_bytes(version), 8).unwrap();
        let refused = Arena::of_image(&image).unwrap_err();
        assert!(matches!(refused, ImageError::Version { found } if found == version), "{refused}");
        let says = format!("of version {version}, and this program reads 2 to 4");
        assert!(refused.to_string().contains(&says), "{refused}");
    }
}

#[test]
fn any_number_of_files_entered_does() {
    let image = image();
    for (entered, count) in [(0, 0), (3, 2), (65_536, 4), (65_537, 4), (u64::MAX, 4)] {
        image.write_all_at(&entered.to_ne_bytes(), FILES_ENTERED as u64 * 8).unwrap();
        assert_eq!(Arena::of_image(&image).unwrap().files().count(), count);
    }
}

#[test]
fn what_is_no_memory_and_no_file_is_refused() {
    let (reader, _writer) = io::pipe().unwrap();
    assert!(matches!(Arena::of_image(&File::open("/").unwrap()), Err(ImageError::NoFile)));
    assert!(matches!(Arena::of_image(&File::from(OwnedFd::from(reader))), Err(ImageError::NoFile)));
    assert!(matches!(
        Arena::of_memfd(File::open("/proc/self/exe").unwrap().into()),
        Err(ImageError::NoMemory)
    ));
    let (reader, _writer) = io::pipe().unwrap();
    assert!(matches!(Arena::of_memfd(reader.into()), Err(ImageError::NoMemory)));
    for seals in [SealFlags::empty(), SealFlags::GROW] {
        assert!(matches!(Arena::of_memfd(memory(seals)), Err(ImageError::Unsealed)));
    }
    // Sealed against writing it cannot be mapped for it.
    let refused = Arena::of_memfd(memory(SealFlags::SHRINK | SealFlags::WRITE)).unwrap_err();
    assert!(matches!(refused, ImageError::System(_)), "{refused}");
}

proptest! {
    #[test]
    fn random_bytes_are_never_taken_for_what_was_published(
        spoiled in prop::collection::vec((0usize..4, 0u64..4096, prop::collection::vec(any::<u8>(), 1..64)), 1..20),
    ) {
        let image = image();
        for (part, at, bytes) in spoiled {
            let offset = [4096, RECORDS, RECORDS + 4096, MASKS][part];
            image.write_all_at(&bytes, offset + at).unwrap();
        }
        image.set_len(BYTES).unwrap();
        assert_nothing_else(&Arena::of_image(&image).unwrap());
    }

    #[test]
    fn random_beginnings_are_refused_or_right(at in 0u64..112, bytes in prop::collection::vec(any::<u8>(), 1..112)) {
        let image = image();
        image.write_all_at(&bytes, at).unwrap();
        if let Ok(arena) = Arena::of_image(&image) {
            assert_nothing_else(&arena);
        }
    }
}

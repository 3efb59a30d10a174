//! User errors: each call returns an error that names the mistake, and nothing is accepted or
//! changed.

mod support;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use forebay::options::{Contexts, Flight};
use forebay::{Engine, ErrorKind, Options};
use support::mount::{FileSystem, Memory, Mount};
use support::{MIB, PAGE, eventually, how, kind_of, pattern, process, within};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

#[test]
fn a_file_that_cannot_be_made_says_why() {
    let engine = small_engine();
    let directory = support::directory();
    let missing = directory.path().join("missing/file");
    for open in [&how::read(), &how::write(), &how::create(), &how::create_new(), &how::append()] {
        let error = engine.open(&missing, open).unwrap_err();
        assert_eq!(
            (error.kind(), error.os_error()),
            (ErrorKind::NotFound, Some(libc::ENOENT)),
            "{error}"
        );
        assert!(error.to_string().contains("missing/file"), "{error}");
    }
    let there = directory.path().join("there");
    std::fs::write(&there, b"x").unwrap();
    let error = engine.open(&there, &how::create_new()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EEXIST), "{error}");
    let held = engine.open(&there, &how::write()).unwrap();
    let error = engine.open(&there, &how::create_new()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EEXIST), "{error}");
    let under_a_file = engine.open(there.join("file"), &how::create()).unwrap_err();
    assert_eq!(under_a_file.os_error(), Some(libc::ENOTDIR), "{under_a_file}");
    held.close().unwrap();
    assert_eq!(std::fs::read(&there).unwrap(), b"x");
}

#[test]
fn a_directory_without_permission_says_so() {
    if support::is_root() {
        return process::as_nobody("a_directory_without_permission_says_so");
    }
    let directory = tempfile::tempdir().unwrap();
    process::shell("chmod 555 \"$1\"", directory.path()).unwrap();
    let error = small_engine().open(directory.path().join("file"), &how::create()).unwrap_err();
    assert_eq!(
        (error.kind(), error.os_error()),
        (ErrorKind::PermissionDenied, Some(libc::EACCES)),
        "{error}"
    );
}

#[test]
fn a_read_only_file_system_is_read_and_not_written() {
    let Some(mount) = Mount::new("read_only_file_system", FileSystem::Ext4, 32 * MIB) else {
        return;
    };
    let path = mount.path().join("file");
    std::fs::write(&path, pattern(1, 10_000)).unwrap();
    mount.make_read_only();
    let engine = small_engine();
    for open in [&how::write(), &how::create(), &how::append()] {
        let error = engine.open(&path, open).unwrap_err();
        assert_eq!(
            (error.kind(), error.os_error()),
            (ErrorKind::Open, Some(libc::EROFS)),
            "{error}"
        );
    }
    let file = engine.open(&path, &how::read()).unwrap();
    let mut buffer = vec![0; 20_000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000);
    assert!(buffer[..10_000] == pattern(1, 10_000));
    assert_eq!(kind_of(engine.open(&path, &how::write())), ErrorKind::Open);
    assert_eq!(kind_of(engine.open(&path, how::read().truncate(true))), ErrorKind::InvalidInput);
    file.close().unwrap();
}

#[test]
fn a_file_system_without_room_for_another_file_is_full() {
    let Some(mount) = Mount::new("no_room_for_a_file", FileSystem::Ext4, 32 * MIB) else {
        return;
    };
    let place = |number: u32| mount.path().join(number.to_string());
    let full = (0..).find_map(|number| std::fs::File::create(place(number)).err()).unwrap();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    let engine = small_engine();
    let path = mount.path().join("file");
    assert_eq!(kind_of(engine.open(&path, &how::create())), ErrorKind::NoSpace);
    let batch = engine.batch();
    assert_eq!(batch.create(&path).unwrap_err().kind(), ErrorKind::NoSpace);
}

#[test]
fn a_directory_that_vanishes_takes_no_data_along() {
    let engine = small_engine();
    let directory = support::directory();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    process::shell("rm -r \"$1\"", &inner).unwrap();
    // The open file lives on without a name; its bytes can still be read.
    file.sync_data().unwrap();
    let mut buffer = vec![0; 100_000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 100_000);
    assert!(buffer == pattern(1, 100_000));
    file.close().unwrap();
    let error = engine.open(&path, &how::create()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::ENOENT), "{error}");
}

#[test]
fn what_is_neither_file_nor_device_is_unsupported() {
    let engine = small_engine();
    let directory = support::directory();
    let fifo = directory.path().join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends in zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let others = [directory.path(), &fifo, Path::new("/dev/null"), Path::new("/dev/zero")];
    for path in others {
        for open in [how::read(), how::write(), how::create(), how::append()] {
            let (engine, at, what) =
                (engine.clone(), path.to_owned(), format!("{path:?}, {open:?}"));
            let kind = within(SOON, "opening no file", move || kind_of(engine.open(at, &open)));
            assert_eq!(kind, ErrorKind::Unsupported, "{what}");
        }
    }
}

#[test]
fn contract_06_a_second_engine_learns_that_the_file_is_busy() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let (one, two) = (small_engine(), small_engine());
    let file = one.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 50_000), 0).unwrap();
    assert_eq!(kind_of(two.open(&path, &how::write())), ErrorKind::Busy);
    // The first one is not harmed by the other's try.
    file.write_at(&pattern(2, 50_000), 50_000).unwrap();
    file.sync_data().unwrap();
    let found = std::fs::read(&path).unwrap();
    assert!(found[..50_000] == pattern(1, 50_000) && found[50_000..] == pattern(2, 50_000));
    file.close().unwrap();
    let mut opened = None;
    assert!(
        eventually(SOON, || two.open(&path, &how::write()).is_ok()),
        "the lock outlives the close"
    );
    opened.get_or_insert_with(|| two.open(&path, &how::write()).unwrap()).sync_data().unwrap();
}

#[test]
fn a_handle_does_only_what_it_was_opened_for() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let engine = small_engine();
    let reading = engine.open(&path, &how::read()).unwrap();
    assert_eq!(kind_of(reading.write_at(b"x", 0)), ErrorKind::NotPermitted);
    assert_eq!(kind_of(reading.append(b"x")), ErrorKind::NotPermitted);
    assert_eq!(kind_of(reading.set_len(0)), ErrorKind::NotPermitted);
    let appending = engine.open(&path, &how::append()).unwrap();
    assert_eq!(kind_of(appending.write_at(b"x", 0)), ErrorKind::NotPermitted);
    assert_eq!(appending.append(b"!").unwrap(), 7);
    appending.sync_data().unwrap();
    let mut buffer = [0; 20];
    assert_eq!(reading.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer[..8], b"content!");
    reading.sync_data().unwrap();
    drop((reading, appending));
    assert!(eventually(SOON, || std::fs::read(&path).unwrap() == b"content!"));
}

#[test]
fn a_reader_cannot_cut_the_file_by_opening_it() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    let engine = small_engine();
    assert_eq!(kind_of(engine.open(&path, how::read().truncate(true))), ErrorKind::InvalidInput);
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    let cut = engine.open(&path, how::write().truncate(true)).unwrap();
    assert_eq!(cut.len().unwrap(), 0);
    cut.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[test]
fn offsets_no_file_can_have_are_refused_and_nothing_is_accepted() {
    let directory = support::directory();
    let engine = small_engine();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    file.write_at(b"start", 0).unwrap();
    let near = i64::MAX as u64;
    for offset in [u64::MAX, u64::MAX - 3, 1 << 63, near, near - 1, near - PAGE, near - 2 * PAGE] {
        assert_eq!(kind_of(file.write_at(&[1; 8192], offset)), ErrorKind::InvalidInput, "{offset}");
        assert_eq!(file.read_at(&mut [0; 100], offset).unwrap(), 0, "{offset}");
    }
    for length in [u64::MAX, 1 << 63, near] {
        assert_eq!(kind_of(file.set_len(length)), ErrorKind::InvalidInput, "{length}");
    }
    assert_eq!(file.len().unwrap(), 5);
    file.sync_data().unwrap();
    file.close().unwrap();
}

/// The largest length the file system allows, by asking it.
fn largest_offset(path: &Path) -> u64 {
    use std::io::{Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path).unwrap();
    let (mut possible, mut impossible) = (0, i64::MAX as u64);
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        match file.seek(SeekFrom::Start(middle)) {
            Ok(_) => possible = middle,
            Err(_) => impossible = middle,
        }
    }
    possible
}

#[test]
fn contract_08_beyond_what_ext4_can_hold_is_refused_and_nothing_is_accepted() {
    let Some(mount) = Mount::new("beyond_what_ext4_can_hold", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let engine = small_engine();
    let path = mount.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    // With blocks of 4 KiB it is 16 TiB, less one block; small file systems have smaller ones.
    let limit = largest_offset(&path);
    assert!(limit < 16 << 40, "{limit}");
    for offset in [limit, limit - 1, 16 << 40, 17 << 40, 1 << 50, 1 << 62] {
        assert_eq!(kind_of(file.write_at(&[1; 2], offset)), ErrorKind::InvalidInput, "{offset}");
    }
    assert_eq!(kind_of(file.set_len(limit + 1)), ErrorKind::InvalidInput);
    assert_eq!(file.len().unwrap(), 0);
    // The last byte there can be.
    file.write_at(&[9], limit - 1).unwrap();
    assert_eq!(kind_of(file.append(&[1])), ErrorKind::InvalidInput);
    assert_eq!(file.append(&[1]).unwrap_err().os_error(), Some(libc::EFBIG));
    file.sync_data().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), limit);
    file.close().unwrap();
}

#[test]
fn knobs_out_of_range_are_refused_with_the_range() {
    for bytes in [0, 1, 4096, (8 << 20) - 1, u64::MAX] {
        let error =
            Engine::start(Options { cache_bytes: Some(bytes), ..Options::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(
            error.to_string().contains("cache_bytes") && error.to_string().contains("8388608"),
            "{error}"
        );
    }
    let wrong = [
        Options { cache_bytes: Some(8 << 20), dirty_bytes: Some(8 << 20), ..Options::default() },
        Options { dirty_bytes: Some(0), ..Options::default() },
        Options {
            cache_bytes: Some(64 << 20),
            dirty_bytes: Some(8 << 20),
            background_bytes: Some(9 << 20),
            ..Options::default()
        },
        Options { dirty_age: Duration::ZERO, ..Options::default() },
        Options { contexts: Contexts::Fixed(0), ..Options::default() },
        Options { flight: Flight::Depth(usize::MAX), ..Options::default() },
    ];
    for options in wrong {
        assert_eq!(kind_of(Engine::start(options)), ErrorKind::InvalidInput);
    }
    for (key, value) in
        [("cash", "1"), ("cache_bytes", "-1"), ("flight", "many"), ("dirty_age", "3")]
    {
        assert_eq!(
            kind_of(Options::default().set(key, value)),
            ErrorKind::InvalidInput,
            "{key} = {value}"
        );
    }
}

/// Direct I/O refused: everything works through the kernel's cache, and the file says so.
fn works_buffered(directory: &Path) {
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_age: Duration::from_millis(5),
        ..Options::default()
    })
    .unwrap();
    let path = directory.join("buffered");
    let file = engine.open(&path, &how::create()).unwrap();
    println!("{}", file.describe());
    assert!(file.describe().starts_with("buffered: "), "{}", file.describe());
    let mut expected = Vec::new();
    for at in 0..3000 {
        let record = pattern(at, 1 + (at as usize * 37) % 9000);
        assert_eq!(file.append(&record).unwrap(), expected.len() as u64);
        expected.extend(record);
        if at % 500 == 0 {
            file.sync_data().unwrap();
            assert!(std::fs::read(&path).unwrap() == expected);
        }
    }
    file.set_len(1_000_001).unwrap();
    expected.truncate(1_000_001);
    let mut through = vec![0; expected.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), expected.len());
    assert!(through == expected);
    file.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn contract_01_direct_io_refused_by_ext4_that_journals_data() {
    if let Some(mount) = Mount::new("refused_by_ext4", FileSystem::Ext4Journal, 128 * MIB) {
        within(Duration::from_secs(30), "buffered", move || works_buffered(&mount.path()));
    }
}

#[test]
fn contract_01_direct_io_refused_by_a_file_system_without_it() {
    if let Some(memory) = Memory::new("refused_by_ramfs", "ramfs") {
        within(Duration::from_secs(30), "buffered", move || works_buffered(memory.path()));
    }
}

#[test]
fn the_kind_says_why_a_file_was_not_opened() {
    let (engine, directory) = (small_engine(), support::directory());
    let path = directory.path().join("file");
    let kind = |opened: forebay::Result<forebay::File>| {
        let error = opened.unwrap_err();
        assert_eq!(error.path(), Some(&*path), "{error}");
        (error.kind(), std::io::Error::from(error).kind())
    };
    let missing = kind(engine.open(&path, &how::write()));
    assert_eq!(missing, (ErrorKind::NotFound, std::io::ErrorKind::NotFound));
    let file = engine.open(&path, &how::create_new()).unwrap();
    let exists = (ErrorKind::AlreadyExists, std::io::ErrorKind::AlreadyExists);
    assert_eq!(kind(engine.open(&path, &how::create_new())), exists, "open in this engine");
    file.close().unwrap();
    assert_eq!(kind(engine.open(&path, &how::create_new())), exists, "closed");
}

/// In a configuration, too.
#[test]
fn options_of_a_configuration_that_are_unknown_or_invalid_are_refused_by_name() {
    let read = |text: &str| serde_json::from_str::<Options>(text);
    for (text, expected) in [
        (r#"{"cash_bytes": 1}"#, "unknown knob `cash_bytes`"),
        (r#"{"dirty_age": 200}"#, "invalid value `200` for knob `dirty_age`"),
        (r#"{"contexts": -1}"#, "invalid value `-1` for knob `contexts`"),
        (r#"{"prealloc": 1.5}"#, "text, a number or a boolean"),
        (r#"[]"#, "options of an engine by name"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(read("{}").unwrap(), Options::default());
    let mut other = Options { dirty_bytes: Some(16 << 20), uncached: true, ..Options::default() };
    other.set("merge", "off").unwrap();
    let written = serde_json::to_string(&other).unwrap();
    assert_eq!(written, r#"{"merge":"off","dirty_bytes":"16777216","uncached":"on"}"#);
    assert_eq!(read(&written).unwrap(), other);
}

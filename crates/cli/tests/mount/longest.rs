//! Calls at the largest size of a file: as on plain files, on file systems with several limits.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use forebay::{Engine, OpenOptions, Options};
use forebay_uring::longest::largest;

use crate::faults::Volume;
use crate::place::{Place, run};

/// Result of a call: its number, or its error.
type Done = Result<usize, i32>;

fn number(result: io::Result<usize>) -> Done {
    result.map_err(|error| error.raw_os_error().unwrap())
}

fn done(result: io::Result<()>) -> Done {
    number(result.map(|()| 0))
}

fn open(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).custom_flags(libc::O_LARGEFILE);
    options.open(path).unwrap()
}

fn fallocate(file: &File, mode: i32, offset: u64, length: u64) -> Done {
    let (offset, length) = (offset.cast_signed(), length.cast_signed());
    // SAFETY: the call takes numbers alone.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } != 0;
    done(if failed { Err(io::Error::last_os_error()) } else { Ok(()) })
}

fn copy(from: &File, to: &File, at: u64, length: usize) -> Done {
    let (mut zero, mut at) = (0, at.cast_signed());
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: the offsets outlive the call.
    let copied = unsafe { libc::copy_file_range(from, &raw mut zero, to, &raw mut at, length, 0) };
    number(usize::try_from(copied).map_err(|_| io::Error::last_os_error()))
}

/// Makes calls around the largest size on new files of a directory.
fn calls(directory: &Path, most: u64) -> Vec<(&'static str, Done)> {
    let from = open(&directory.join("from"));
    from.write_all_at(b"0123456789", 0).unwrap();
    let path = directory.join("file");
    let file = open(&path);
    let write = |at| number(file.write_at(b"0123456789", at));
    let truncate = |size: u64| done(file.set_len(size));
    let mut found = vec![
        ("write up to it", write(most - 10)),
        ("write across it", write(most - 5)),
        ("write at it", write(most)),
        ("write beyond it", write(most + 100)),
        ("truncate to it", truncate(most)),
        ("truncate beyond it", truncate(most + 1)),
        ("truncate far beyond it", truncate((1 << 62) + 4096)),
        ("append at it", {
            let mut append = File::options().append(true).open(&path).unwrap();
            number(io::Write::write(&mut append, b"x"))
        }),
        ("allocate up to it", fallocate(&file, 0, most - 4096, 4096)),
        ("allocate across it", fallocate(&file, 0, most - 4096, 8192)),
        ("allocate beyond it", fallocate(&file, 0, most + 4096, 4096)),
        ("punch across it", fallocate(&file, 3, most - 4096, 8192)),
        ("zero across it", fallocate(&file, 0x10, most - 4096, 8192)),
        ("copy across it", copy(&from, &file, most - 5, 10)),
        ("copy at it", copy(&from, &file, most, 10)),
        ("sync", done(file.sync_all())),
        ("size", number(Ok(file.metadata().unwrap().len() as usize))),
    ];
    let mut end = [0; 20];
    let read = file.read_at(&mut end, most - 8).unwrap();
    found.push(("the end", Ok(end[..read].iter().map(|byte| usize::from(*byte)).sum())));
    found
}

/// The same calls on files of an engine, which writes all or nothing.
fn calls_of_library(directory: &Path, most: u64) {
    let engine =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    let file = engine
        .open(directory.join("library"), OpenOptions::new().read(true).write(true).create(true))
        .unwrap();
    let write = |at| file.write_at(b"0123456789", at);
    write(most - 10).unwrap();
    file.set_len(most).unwrap();
    file.allocate(most - 4096, 4096).unwrap();
    let refused = [
        write(most - 5),
        write(most),
        file.append(b"x").map(drop),
        file.set_len(most + 1),
        file.allocate(most - 4096, 8192),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        let error = refused.unwrap_err();
        assert_eq!(error.os_error(), Some(libc::EFBIG), "{number}: {error}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::FileTooLarge);
    }
    let error = file.set_len(1 << 63).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EINVAL), "{error}");
    file.sync_all().unwrap();
    assert_eq!(file.len().unwrap(), most);
    file.close().unwrap();
    engine.shutdown(Duration::from_secs(10)).unwrap();
}

#[test]
fn calls_at_the_largest_size_are_those_of_plain_files() {
    for maker in [
        &["mkfs.ext4", "-q", "-F"][..],
        &["mkfs.ext4", "-q", "-F", "-b", "1024"],
        &["mkfs.ext4", "-q", "-F", "-O", "^extent,^64bit"],
        &["mkfs.xfs", "-q", "-f"],
    ] {
        let Some(place) = Place::new() else { return };
        let image = place.directory.path().join("image");
        File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let volume = Volume::made_by(maker, &image, &place.source);
        let plain = place.source.join("plain");
        std::fs::create_dir(&plain).unwrap();
        let most = largest(open(&plain.join("largest")));
        // On XFS every offset is possible, and the engine leaves out the last page of them.
        let most = most.min((1 << 62) - 4096);
        let expected = calls(&plain, most);
        std::fs::remove_dir_all(plain).unwrap();
        for options in [&[][..], &["--plain"]] {
            place.mount(options);
            let directory = place.mount.join("mounted");
            std::fs::create_dir(&directory).unwrap();
            assert_eq!(calls(&directory, most), expected, "{maker:?} {options:?}");
            std::fs::remove_dir_all(directory).unwrap();
            place.unmount();
        }
        if maker[0] == "mkfs.ext4" && !maker.contains(&"^extent,^64bit") {
            calls_of_library(&place.source, most);
        }
        drop(volume);
    }
}

/// A write beyond the limit gets an error, and no signal ends the process. Root passes the limit if
/// it may.
#[test]
fn a_limit_of_the_length_of_files_does_not_end_a_mount() {
    let Some(place) = Place::new() else { return };
    let prefix = ["sh", "-c", r#"ulimit -f 409600; exec "$@""#, "sh"];
    place.mount_by(&prefix, &["--set", "cache_bytes=64m"]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", place.server())).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
    let most: u64 = 409_600 * 512;
    let file = open(&place.mount.join("file"));
    let found = [most - 5, most].map(|at| number(file.write_at(b"0123456789", at)));
    if limit.contains("unlimited") {
        assert_eq!(found, [Ok(10), Ok(10)]);
    } else {
        assert_eq!(found, [Ok(5), Err(libc::EFBIG)], "{limit}");
    }
    file.sync_all().unwrap();
    drop(file);
    place.unmount();
    assert_eq!(run(&["test", "-s", place.source.join("file").to_str().unwrap()]).0, Some(0));
}

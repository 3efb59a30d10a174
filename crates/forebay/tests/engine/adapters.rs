//! Cursors, vectors and the buffers of `bytes`: the same bytes as by the verbs of `File`.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::time::Duration;

use crate::positioned::{Positioned, assert_as_over_a_vector};
use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, assert_on_disk, how, pattern};
use bytes::BytesMut;
use forebay::{Cursor, Engine, ErrorKind, File, Options};
use forebay_block::random::Random;

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(60);

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(8 * MIB),
        dirty_bytes: Some(4 * MIB),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

struct Blocking<'a>(Cursor<&'a File>);

impl Positioned for Blocking<'_> {
    fn write(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [data] = data { self.0.write(data) } else { self.0.write_vectored(data) }
    }

    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let [buffer] = buffers { self.0.read(buffer) } else { self.0.read_vectored(buffers) }
    }

    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_cursor_is_as_one_over_a_vector() {
    assert_as_over_a_vector(
        &engine(),
        |file, take| take(&mut Blocking(Cursor::new(file))),
        "through a cursor",
    );
}

#[test]
fn a_cursor_of_a_handle_for_appending_writes_at_the_end() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("log");
    std::fs::write(&path, b"there").unwrap();
    let file = Arc::new(engine.open(&path, &how::append()).unwrap());
    let (mut one, mut other) = (Cursor::new(Arc::clone(&file)), Cursor::new(&*file));
    assert_eq!(one.write(b" one").unwrap(), 4);
    assert_eq!(other.write_vectored(&[IoSlice::new(b" o"), IoSlice::new(b"ther")]).unwrap(), 6);
    assert_eq!((one.stream_position().unwrap(), other.stream_position().unwrap()), (9, 15));
    one.rewind().unwrap();
    let mut word = [0; 5];
    one.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"there");
    one.write_all(b" again").unwrap();
    assert_eq!(one.stream_position().unwrap(), 21);
    let mut all = String::new();
    other.rewind().unwrap();
    other.read_to_string(&mut all).unwrap();
    assert_eq!(all, "there one other again");
    drop(one);
    Arc::into_inner(file).unwrap().close().unwrap();
    assert_on_disk(&path, all.as_bytes(), "appended");
}

#[test]
fn errors_keep_their_kind_and_themselves() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    std::fs::write(&path, b"x").unwrap();
    let mut reader = Cursor::new(engine.open(&path, &how::read()).unwrap());
    let error = reader.write(b"no").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let inner = error.get_ref().unwrap().downcast_ref::<forebay::Error>().unwrap();
    assert_eq!(inner.kind(), ErrorKind::NotPermitted);
    assert!(error.to_string().contains("file"), "{error}");
    assert_eq!(reader.stream_position().unwrap(), 0);
    let mut far = Cursor::new(engine.open(&path, &how::write()).unwrap());
    far.seek(SeekFrom::Start(u64::MAX - 1)).unwrap();
    assert_eq!(far.write(b"abc").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(far.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(far.seek(SeekFrom::Current(5)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(far.seek(SeekFrom::End(-2)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    engine.shutdown(SOON).unwrap();
    let error = far.write(b"late").unwrap_err();
    let inner = error.into_inner().unwrap().downcast::<forebay::Error>().unwrap();
    assert_eq!(inner.kind(), ErrorKind::Shutdown);
}

#[test]
fn vectors_are_one_stretch() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    let mut random = Random::new(support::seed());
    let mut model: Vec<u8> = Vec::new();
    let pieces = |random: &mut Random| -> Vec<usize> {
        (0..random.below(1200))
            .map(|_| {
                [random.below(3), random.below(300), random.below(9000)][random.below(3) as usize]
                    as usize
            })
            .collect()
    };
    for round in 0..60 {
        let lengths = pieces(&mut random);
        let whole: usize = lengths.iter().sum();
        let offset = random.below(3 * MIB) as usize;
        if round % 2 == 0 {
            let data = pattern(round, whole);
            let mut rest = &data[..];
            let slices: Vec<IoSlice<'_>> = lengths
                .iter()
                .map(|length| {
                    let (piece, left) = rest.split_at(*length);
                    rest = left;
                    IoSlice::new(piece)
                })
                .collect();
            let mut cursor = Cursor::new(&file);
            cursor.seek(SeekFrom::Start(offset as u64)).unwrap();
            assert_eq!(cursor.write_vectored(&slices).unwrap(), whole);
            if whole > 0 {
                model.resize(model.len().max(offset + whole), 0);
                model[offset..offset + whole].copy_from_slice(&data);
            }
        } else {
            let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
            let mut slices: Vec<IoSliceMut<'_>> =
                buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            let mut cursor = Cursor::new(&file);
            cursor.seek(SeekFrom::Start(offset as u64)).unwrap();
            let read = cursor.read_vectored(&mut slices).unwrap();
            let expected = &model[offset.min(model.len())..(offset + whole).min(model.len())];
            assert_eq!(read, expected.len(), "round {round}");
            assert!(buffers.concat()[..read] == *expected, "round {round}");
        }
    }
    file.close().unwrap();
    assert_on_disk(&path, &model, "vectors");
}

#[test]
fn appended_vectors_stand_together() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("log");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let log = engine.open(&path, &how::append()).unwrap();
            scope.spawn(move || {
                for round in 0..200usize {
                    let body = vec![thread; 50 + round * 37 % 9000];
                    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
                    // More slices than are planned at once.
                    let pieces = body.chunks(body.len().div_ceil(100));
                    let head = [&[thread][..], &length[..]];
                    let record: Vec<_> = head.into_iter().chain(pieces).map(IoSlice::new).collect();
                    log.append_vectored(&record).unwrap();
                }
                log.close().unwrap();
            });
        }
    });
    let stored = std::fs::read(&path).unwrap();
    let (mut rest, mut records) = (&stored[..], BTreeMap::new());
    while let [thread, after @ ..] = rest {
        let (length, after) = after.split_first_chunk().unwrap();
        let (body, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        assert!(body.iter().all(|byte| byte == thread));
        *records.entry(*thread).or_insert(0) += 1;
        rest = after;
    }
    assert_eq!(records, (0..4).map(|thread| (thread, 200)).collect());
}

#[test]
fn a_direct_file_takes_the_buffers_of_bytes() {
    let (engine, directory) = (engine(), support::directory());
    let file = engine.open_direct(directory.path().join("file"), &how::create()).unwrap();
    let mut buffer = BytesMut::with_capacity(20_000);
    buffer.extend_from_slice(&pattern(1, 10_000));
    let address = buffer.as_ptr();
    let (written, buffer) = file.write_at(buffer, 100).wait();
    assert_eq!((written.unwrap(), buffer.as_ptr(), buffer.len()), (10_000, address, 10_000));
    // A part of a larger one.
    let mut rest = BytesMut::zeroed(30_000);
    let part = rest.split_to(12_000);
    let (read, part) = file.read_at(part, 100).wait();
    assert_eq!((read.unwrap(), part.len()), (10_000, 12_000));
    assert!(part[..10_000] == pattern(1, 10_000));
    let (written, empty) = file.write_at(BytesMut::new(), 5).wait();
    assert_eq!((written.unwrap(), empty.len()), (0, 0));
    file.close().wait().unwrap();
}

#[test]
fn contract_09_no_space_is_reported_to_a_cursor() {
    let Some(mount) = Mount::new("no_space_is_reported_to_a_cursor", FileSystem::Ext4, 24 * MIB)
    else {
        return;
    };
    let full = |result: io::Result<u64>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    };
    let path = mount.path().join("file");
    let engine = engine();
    let file = engine.open(&path, &how::create()).unwrap();
    let mut cursor = Cursor::new(&file);
    full(io::copy(&mut io::repeat(7), &mut cursor));
    // Every accepted byte has space on the disk.
    let accepted = cursor.stream_position().unwrap();
    assert!(accepted > MIB && accepted == file.len().unwrap(), "{accepted}");
    file.sync_data().unwrap();
    file.close().unwrap();
    let stored = std::fs::read(&path).unwrap();
    assert!(stored.len() as u64 == accepted && stored.iter().all(|byte| *byte == 7));
    std::fs::remove_file(&path).unwrap();
}

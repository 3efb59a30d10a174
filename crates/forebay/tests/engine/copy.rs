//! Copies: by the engine, and by `std::io::copy` and its relatives over cursors.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::support::{self, MIB, assert_on_disk, how, kind_of, pattern};
use forebay::{Cursor, Engine, ErrorKind, Options};
use forebay_block::random::Random;

/// A bound for everything here.
const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 * MIB),
        dirty_bytes: Some(8 * MIB),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn a_copy_has_all_that_was_accepted_and_no_more() {
    let (engine, directory) = (engine(), support::directory());
    let path = |name: &str| directory.path().join(name);
    for (number, length) in [0, 1, 4096, MIB, MIB + 1, 30 * MIB - 7].into_iter().enumerate() {
        let data = pattern(number as u64, length as usize);
        std::fs::write(path("from"), &data[..length as usize / 2]).unwrap();
        let from = engine.open(path("from"), how::write().uncached(number % 2 == 0)).unwrap();
        // Accepted, and not written when the copy begins.
        from.write_at(&data[length as usize / 2..], length / 2).unwrap();
        let to = engine.open(path("to"), how::create().uncached(number % 2 == 0)).unwrap();
        to.set_len(40 * MIB).unwrap();
        assert_eq!(engine.copy(&from, &to).unwrap(), length);
        assert_eq!(to.len().unwrap(), length);
        to.sync_data().unwrap();
        assert_on_disk(&path("to"), &data, &format!("a copy of {length} bytes"));
        to.close().unwrap();
        from.close().unwrap();
        // Of a file for reading, which is not cached.
        let from = engine.open(path("from"), &how::read()).unwrap();
        let again = engine.open(path("again"), how::create().truncate(true)).unwrap();
        assert_eq!(engine.copy(&from, &again).unwrap(), length);
        again.close().unwrap();
        from.close().unwrap();
        assert_on_disk(&path("again"), &data, &format!("a second copy of {length} bytes"));
    }
}

#[test]
fn a_copy_that_cannot_be_made_is_refused_before_anything_changes() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    std::fs::write(&path, b"as it is").unwrap();
    let (file, reader) =
        (engine.open(&path, &how::write()).unwrap(), engine.open(&path, &how::read()).unwrap());
    let log = engine.open(directory.path().join("log"), &how::append()).unwrap();
    assert_eq!(kind_of(engine.copy(&reader, &file)), ErrorKind::InvalidInput);
    assert_eq!(kind_of(engine.copy(&log, &reader)), ErrorKind::NotPermitted);
    assert_eq!(kind_of(engine.copy(&file, &log)), ErrorKind::NotPermitted);
    assert_eq!((file.len().unwrap(), log.len().unwrap()), (8, 0));
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(engine.copy(&file, &log)), ErrorKind::Shutdown);
    assert_on_disk(&path, b"as it is", "after refused copies");
}

/// Opens a file as another program that may write it: nobody has a lease of it then.
fn another_writer(path: &Path) -> std::fs::File {
    std::fs::File::options().write(true).open(path).unwrap()
}

/// The reads of `std::io::copy` are small. Of a file for reading they would ask the device each
/// time, if the cursor did not read ahead.
#[test]
fn small_sequential_reads_of_a_file_for_reading_ask_the_device_rarely() {
    let (engine, directory) = (engine(), support::directory());
    let path = |name: &str| directory.path().join(name);
    let data = pattern(1, 20 << 20);
    std::fs::write(path("from"), &data).unwrap();
    let _writer = another_writer(&path("from"));
    let from = engine.open(path("from"), &how::read()).unwrap();
    let to = engine.open(path("to"), &how::create()).unwrap();
    let before = engine.stats();
    let copied = std::io::copy(&mut Cursor::new(&from), &mut Cursor::new(&to)).unwrap();
    assert_eq!(copied, 20 * MIB);
    let read = engine.stats().read_bytes - before.read_bytes;
    assert!(read <= 21 * MIB, "{read} bytes were read");
    to.sync_data().unwrap();
    assert_on_disk(&path("to"), &data, "by std::io::copy");
    let mut all = Vec::new();
    Cursor::new(&from).read_to_end(&mut all).unwrap();
    assert!(all == data, "by read_to_end");
}

#[tokio::test]
async fn tokio_copies_a_file_for_reading() {
    let (engine, directory) = (engine(), support::directory());
    let path = |name: &str| directory.path().join(name);
    let data = pattern(1, 5_000_001);
    std::fs::write(path("from"), &data).unwrap();
    let _writer = another_writer(&path("from"));
    let from = engine.open(path("from"), &how::read()).unwrap();
    let to = engine.open(path("to"), &how::create()).unwrap();
    let before = engine.stats();
    let copied = tokio::io::copy(&mut Cursor::new(&from), &mut Cursor::new(&to)).await.unwrap();
    assert_eq!(copied, 5_000_001);
    let read = engine.stats().read_bytes - before.read_bytes;
    assert!(read <= 6 * MIB, "{read} bytes were read");
    to.asynchronous().sync_data().await.unwrap();
    assert_on_disk(&path("to"), &data, "by tokio::io::copy");
}

/// A cursor that reads ahead is as one over a vector, for all reads and seeks.
#[test]
fn a_cursor_that_reads_ahead_returns_the_bytes_of_the_file() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let data = pattern(1, 3 << 20);
    std::fs::write(&path, &data).unwrap();
    let _writer = another_writer(&path);
    let file = engine.open(&path, &how::read()).unwrap();
    let (mut cursor, mut model) = (Cursor::new(&file), std::io::Cursor::new(&data));
    let mut random = Random::new(support::seed());
    for step in 0..support::operations(3000) {
        if random.below(20) == 0 {
            let to = std::io::SeekFrom::Start(random.below(4 * MIB));
            assert_eq!(cursor.seek(to).unwrap(), model.seek(to).unwrap());
        }
        let most = [10, 9000, 100_000, 2 << 20][random.below(4) as usize];
        let length = random.below(most) as usize;
        let (mut found, mut expected) = (vec![0; length], vec![0; length]);
        // A read may be short where what was read ahead ends.
        let read = cursor.read(&mut found).unwrap();
        let wanted = model.read(&mut expected).unwrap();
        assert!(read <= wanted && (read > 0 || wanted == 0), "step {step}: {read} of {wanted}");
        assert!(found[..read] == expected[..read], "step {step}");
        model.set_position(cursor.stream_position().unwrap());
    }
}

/// Writes of this engine are seen at once, and those of another program soon.
#[test]
fn contract_06_a_cursor_sees_changes_although_it_reads_ahead() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let mut other = another_writer(&path);
    let file = engine.open(&path, &how::read()).unwrap();
    let mut cursor = Cursor::new(&file);
    let mut next = || {
        let mut bytes = [0; 100];
        cursor.read_exact(&mut bytes).unwrap();
        bytes
    };
    // The third of them is from the memory of the cursor.
    assert_eq!((next(), next(), next()), ([1; 100], [1; 100], [1; 100]));
    other.write_all(&vec![2; 1 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!((next(), next()), ([2; 100], [2; 100]), "changed by another program");
    drop(other);
    let writer = engine.open(&path, &how::write()).unwrap();
    writer.write_at(&vec![3; 1 << 20], 0).unwrap();
    assert_eq!(next(), [3; 100], "changed by this engine");
}

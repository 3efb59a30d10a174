//! redb over Forebay: the storage itself, locks, and databases against a model and against redb's
//! own storage.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use forebay::{Engine, ErrorKind, OpenOptions, Options};
use forebay_block::random::Random;
use forebay_redb::Backend;
use redb::{
    BackendError, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable,
    StorageBackend, TableDefinition,
};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");

/// A cache that is smaller than the databases here.
fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_bytes: Some(4 << 20),
        ..Options::default()
    })
    .unwrap()
}

fn open(engine: &Engine, path: &Path) -> Result<Database, DatabaseError> {
    let backend = Backend::open(engine, path).unwrap();
    Database::builder().set_cache_size(1 << 20).create_with_backend(backend)
}

#[test]
fn the_storage_is_a_file_with_an_exact_length() {
    let (engine, directory) = (engine(), tempfile::tempdir_in(".").unwrap());
    let backend = Backend::open(&engine, directory.path().join("file")).unwrap();
    assert_eq!(backend.len().unwrap(), 0);
    backend.set_len(10_000).unwrap();
    let mut found = [1; 10_000];
    backend.read(0, &mut found).unwrap();
    assert_eq!(found, [0; 10_000], "new bytes are zero");
    backend.write(9_000, &[7; 1000]).unwrap();
    let error = backend.read(9_001, &mut [0; 1000]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
    backend.set_len(9_500).unwrap();
    backend.set_len(10_000).unwrap();
    backend.read(9_000, &mut found[..1000]).unwrap();
    assert!(found[..500] == [7; 500] && found[500..1000] == [0; 500], "bytes that were cut");
    backend.sync_data().unwrap();
    backend.close().unwrap();
    assert!(backend.len().is_err() && backend.write(0, b"late").is_err());
    assert_eq!(std::fs::metadata(directory.path().join("file")).unwrap().len(), 10_000);
}

#[test]
fn a_database_is_open_once() {
    let (engine, directory) = (engine(), tempfile::tempdir_in(".").unwrap());
    let path = directory.path().join("file");
    let database = open(&engine, &path).unwrap();
    assert!(matches!(open(&engine, &path), Err(DatabaseError::DatabaseAlreadyOpen)));
    assert!(matches!(Database::create(&path), Err(DatabaseError::DatabaseAlreadyOpen)));
    let other =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    assert_eq!(Backend::open(&other, &path).unwrap_err().kind(), ErrorKind::Busy);
    drop(database);
    // Free from here on, for any program.
    drop(Database::create(&path).unwrap());
    let read_only = || {
        let file = engine.open(&path, OpenOptions::new().read(true)).unwrap();
        redb::Builder::new().open_read_only_with_backend(Backend::new(file).unwrap())
    };
    let (one, two) = (read_only().unwrap(), read_only().unwrap());
    assert!(matches!(open(&engine, &path), Err(DatabaseError::DatabaseAlreadyOpen)));
    drop((one, two));
    drop(open(&engine, &path).unwrap());
}

#[test]
fn only_the_whole_file_can_be_locked() {
    let (engine, directory) = (engine(), tempfile::tempdir_in(".").unwrap());
    let backend = || Backend::open(&engine, directory.path().join("file")).unwrap();
    let (one, two) = (backend(), backend());
    let all = (Bound::Unbounded, Bound::Unbounded);
    assert!(matches!(
        one.try_lock_range(Bound::Included(5), Bound::Unbounded),
        Err(BackendError::Unsupported)
    ));
    assert!(one.try_lock_range(all.0, all.1).unwrap());
    assert!(!two.try_lock_shared_range(all.0, all.1).unwrap());
    one.unlock_range(Bound::Included(0), Bound::Unbounded).unwrap();
    assert!(two.try_lock_shared_range(all.0, all.1).unwrap());
    assert!(one.try_lock_shared_range(all.0, all.1).unwrap());
    one.close().unwrap();
    let three = backend();
    assert!(!three.try_lock_range(all.0, all.1).unwrap());
    drop(two);
    assert!(three.try_lock_range(all.0, all.1).unwrap());
}

#[test]
fn an_aborted_transaction_gives_its_length_back() {
    let (engine, directory) = (engine(), tempfile::tempdir_in(".").unwrap());
    let path = directory.path().join("file");
    let mut database = open(&engine, &path).unwrap();
    let insert = |rows: std::ops::Range<u64>| {
        let write = database.begin_write().unwrap();
        let mut table = write.open_table(TABLE).unwrap();
        for key in rows {
            table.insert(key, &[key as u8; 2000][..]).unwrap();
        }
        drop(table);
        write
    };
    insert(0..600).commit().unwrap();
    let length = || engine.open(&path, OpenOptions::new().read(true)).unwrap().len().unwrap();
    let before = length();
    let write = insert(0..1800);
    assert!(length() > before);
    write.abort().unwrap();
    assert_eq!(length(), before);
    assert!(database.check_integrity().unwrap());
    let read = database.begin_read().unwrap();
    assert!(read.open_table(TABLE).unwrap().get(600).unwrap().is_none());
}

/// Random transactions, committed and aborted, and databases closed and opened again: the content
/// is that of a model, and redb's own storage reads the same file.
#[test]
fn a_database_is_as_a_map() {
    let seed = std::env::var("FOREBAY_TEST_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("FOREBAY_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let (engine, directory) = (engine(), tempfile::tempdir_in(".").unwrap());
    let path = directory.path().join("file");
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut database = open(&engine, &path).unwrap();
    for transaction in 0..120_u64 {
        let mut changed = model.clone();
        let mut write = database.begin_write().unwrap();
        if random.below(4) == 0 {
            write.set_durability(Durability::None).unwrap();
        }
        let mut table = write.open_table(TABLE).unwrap();
        for _ in 0..random.below(300) {
            let key = random.below(4000);
            if random.below(3) == 0 {
                let removed = table.remove(key).unwrap().map(|value| value.value().to_vec());
                assert_eq!(removed, changed.remove(&key), "transaction {transaction}");
            } else {
                let value = vec![transaction as u8; random.below(6000) as usize];
                table.insert(key, &value[..]).unwrap();
                changed.insert(key, value);
            }
        }
        drop(table);
        if random.below(4) == 0 {
            write.abort().unwrap();
        } else {
            write.commit().unwrap();
            model = changed;
        }
        if random.below(15) == 0 {
            // A clean close keeps also what was committed without a sync.
            drop(database);
            database = open(&engine, &path).unwrap();
        }
        let read = database.begin_read().unwrap();
        if let Ok(table) = read.open_table(TABLE) {
            for _ in 0..20 {
                let key = random.below(4000);
                let found = table.get(key).unwrap().map(|value| value.value().to_vec());
                assert_eq!(found.as_ref(), model.get(&key), "transaction {transaction}");
            }
        }
    }
    assert!(database.check_integrity().unwrap());
    assert_is(&database, &model);
    drop(database);
    engine.shutdown(std::time::Duration::from_secs(60)).unwrap();
    let mut database = Database::create(&path).unwrap();
    assert!(database.check_integrity().unwrap());
    assert_is(&database, &model);
}

fn assert_is(database: &Database, model: &BTreeMap<u64, Vec<u8>>) {
    let read = database.begin_read().unwrap();
    let table = read.open_table(TABLE).unwrap();
    let mut expected = model.iter();
    for entry in table.iter().unwrap() {
        let (key, value) = entry.unwrap();
        let (wanted, data) = expected.next().expect("an entry too many");
        assert!((key.value(), value.value()) == (*wanted, &data[..]), "key {wanted}");
    }
    assert!(expected.next().is_none(), "an entry is missing");
}

//! Logs that cannot be recovered, and file systems that cannot be written.

use super::*;

#[test]
fn a_log_that_is_held_elsewhere_is_not_recovered() {
    let store = Store::new();
    let engine = store.engine(30 * SECOND);
    let error = store.error();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("holds the intent log"), "{error}");
    drop(engine);
    assert!(store.recover(&ask()).is_empty);
}

#[test]
fn a_directory_without_a_log_is_named() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let error = recover(directory.path(), &ask()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("has no intent log"), "{error}");
}

#[test]
fn a_log_is_made_once() {
    let store = Store::new();
    let error = create(store.directory.path(), RING).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    for ring in [0, 15, u64::MAX] {
        assert_eq!(
            create(store.directory.path(), ring).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    // One that was not completed before a crash is made anew.
    let directory = tempfile::tempdir_in(".").unwrap();
    fs::write(directory.path().join(".forebay-log.new"), b"half").unwrap();
    create(directory.path(), RING).unwrap();
    let length = fs::metadata(directory.path().join(NAME)).unwrap().len();
    assert_eq!(length, (HEADS + RING) * BLOCK as u64);
    assert!(!directory.path().join(".forebay-log.new").exists());
}

#[test]
fn a_log_of_another_version_is_refused() {
    let store = Store::crashed(30 * SECOND);
    for head in 0..2 {
        let at = head * BLOCK as u64;
        let mut bytes = fs::read(store.path(NAME)).unwrap()[at as usize..][..BLOCK].to_vec();
        bytes[8..12].copy_from_slice(&7_u32.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..124]);
        bytes[124..128].copy_from_slice(&sum.to_le_bytes());
        store.damage(at, &bytes);
    }
    let error = store.error();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn a_log_that_is_cut_short_is_refused() {
    let store = Store::crashed(30 * SECOND);
    let file = fs::OpenOptions::new().write(true).open(store.path(NAME)).unwrap();
    file.set_len(20 * BLOCK as u64).unwrap();
    let error = store.error();
    assert!(error.to_string().contains("cut short: it has 81920 of 270336 bytes"), "{error}");
    file.set_len(0).unwrap();
    assert!(store.error().to_string().contains("cut short"));
}

#[test]
fn a_log_of_random_bytes_is_refused() {
    let store = Store::crashed(30 * SECOND);
    let bytes: Vec<u8> =
        (0..8192_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 9) as u8).collect();
    store.damage(0, &bytes);
    let error = store.error();
    assert!(error.to_string().contains("no intent log"), "{error}");
}

#[test]
fn a_log_with_two_bad_heads_is_refused_and_with_one_it_is_read() {
    let store = Store::crashed(30 * SECOND);
    let heads = fs::read(store.path(NAME)).unwrap();
    store.damage(64, b"damaged!");
    store.damage(BLOCK as u64 + 64, b"damaged!");
    assert!(store.error().to_string().contains("neither of its two heads"));
    // The older head is enough: it starts before the records.
    store.damage(64, &heads[64..72]);
    store.damage(BLOCK as u64 + 64, &heads[BLOCK + 64..BLOCK + 72]);
    let newer = if heads[32] > heads[BLOCK + 32] { 0 } else { BLOCK as u64 };
    store.damage(newer + 64, b"damaged!");
    assert!(store.recover(&ask()).is_empty);
    assert_eq!(fs::read(store.path("file")).unwrap(), b"befAFTER");
}

#[test]
fn a_copied_directory_is_refused() {
    let store = Store::crashed(30 * SECOND);
    let copy = tempfile::tempdir_in(".").unwrap();
    for name in ["file", NAME] {
        fs::copy(store.path(name), copy.path().join(name)).unwrap();
    }
    let error = recover(copy.path(), &ask()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Open);
    assert!(error.to_string().contains("belongs to another file"), "{error}");
    assert_eq!(fs::read(copy.path().join("file")).unwrap(), b"before");
}

#[test]
fn a_damaged_record_before_a_valid_one_is_reported_and_nothing_is_changed() {
    let store = Store::new();
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "file", b"before");
    let at = (HEADS + engine.log.ring().next().position) * BLOCK as u64;
    engine.append(&[("file", 0, b"1")]);
    engine.append(&[("file", 1, b"2")]);
    drop(engine);
    store.damage(at + 100, b"?");
    let error = store.error();
    assert!(error.to_string().contains("is damaged: batch"), "{error}");
    assert_eq!(fs::read(store.path("file")).unwrap(), b"before");
}

#[test]
fn a_clock_that_was_set_back_is_refused() {
    let store = Store::crashed(1000 * SECOND);
    let error = store.error();
    assert!(error.to_string().contains("clock of this machine is at least 9"), "{error}");
}

#[test]
fn a_read_only_file_system_is_refused() {
    if !is_root() {
        return;
    }
    let store = Store::crashed(30 * SECOND);
    let place = tempfile::tempdir_in(".").unwrap();
    let (from, to) = (store.directory.path().to_str().unwrap(), place.path().to_str().unwrap());
    mount(&["--bind", from, to]);
    let _mounted = Mounted(place.path().to_owned());
    mount(&["-o", "remount,bind,ro", to]);
    let error = recover(place.path(), &ask()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("mount the file system read-write"), "{error}");
}

/// Mounts a file system in memory, and makes a log in it.
fn in_memory(kind: &str, options: &str) -> (Store, Mounted) {
    let directory = tempfile::tempdir_in(".").unwrap();
    mount(&["-t", kind, "-o", options, "none", directory.path().to_str().unwrap()]);
    let mounted = Mounted(directory.path().to_owned());
    create(directory.path(), RING).unwrap();
    (Store { directory }, mounted)
}

#[test]
fn a_full_file_system_keeps_the_log_until_there_is_space() {
    if !is_root() {
        return;
    }
    let (store, mounted) = in_memory("tmpfs", "size=1m");
    let mut engine = store.engine(30 * SECOND);
    engine.make(&store, "small", b"before");
    engine.make(&store, "grows", b"");
    engine.append(&[("small", 3, b"AFTER"), ("grows", 0, &[7; 100_000])]);
    drop(engine);
    let mut filler = vec![1; 1 << 20];
    while fs::write(store.path("filler"), &filler).is_err() {
        filler.truncate(filler.len() - 4096);
    }
    let recovery = store.recover(&ask());
    assert!(!recovery.is_empty);
    let fates: Vec<_> = recovery.files.iter().map(|file| (&file.path, &file.fate)).collect();
    let [(_, Fate::InPlace), (_, Fate::Kept(error))] = &fates[..] else { panic!("{fates:?}") };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().starts_with("grows: could not put the records"), "{error}");
    fs::remove_file(store.path("filler")).unwrap();
    let recovery = store.recover(&ask());
    assert!(recovery.is_empty, "{recovery:?}");
    assert_eq!(fs::read(store.path("grows")).unwrap(), [7; 100_000]);
    assert_eq!(fs::read(store.path("small")).unwrap(), b"befAFTER");
    drop(mounted);
}

#[test]
fn a_file_system_without_extended_attributes_keeps_the_log() {
    if !is_root() {
        return;
    }
    let (store, mounted) = in_memory("ramfs", "mode=700");
    let mut engine = store.engine(30 * SECOND);
    fs::write(store.path("file"), b"before").unwrap();
    engine.append(&[("file", 3, b"AFTER")]);
    drop(engine);
    let recovery = store.recover(&ask());
    let Fate::Kept(error) = &recovery.files[0].fate else { panic!("{recovery:?}") };
    assert!(error.to_string().contains("not supported"), "{error}");
    assert_eq!(fs::read(store.path("file")).unwrap(), b"before");
    drop(mounted);
}

//! Small files that the device refuses.

use std::path::Path;

use forebay::Options;

use super::*;

fn refuse(_: Held<'_>) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EIO))
}

fn stack() -> Arc<Stack> {
    let engine =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    Arc::new(Stack::new(engine, 16 << 20))
}

fn small(stack: &Arc<Stack>, path: &Path) -> Small {
    let file = fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let small = Small::new(stack, file);
    small
        .with_size(5, |held| match held {
            Held::Plain(file) => file.write_all_at(b"hello", 0),
            Held::Engine(_) => panic!("it is small"),
        })
        .unwrap();
    small
}

/// An engine that has the file open keeps others from it.
fn holder(path: &Path) -> (Engine, File) {
    let engine =
        Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
    let file = engine.open(path, OpenOptions::new().read(true).write(true)).unwrap();
    (engine, file)
}

#[test]
fn a_refused_file_that_the_engine_does_not_take_fails_every_sync_until_it_does() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, stack) = (directory.path().join("file"), stack());
    let small = small(&stack, &path);
    let (_other, holder) = holder(&path);
    let errno = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(errno(small.report(refuse)), Some(libc::EIO));
    for _ in 0..3 {
        // The kernel has reported the failure.
        assert_eq!(errno(small.write_out()), Some(libc::EBUSY));
        assert_eq!(errno(small.report(|_| Ok(()))), Some(libc::EBUSY));
        assert!(small.is_small());
        // Of any alignment, through the page cache.
        small.with(|held| match held {
            Held::Plain(file) => file.write_all_at(b"hello", 0).unwrap(),
            Held::Engine(_) => panic!("it is small"),
        });
    }
    holder.close().unwrap();
    small.write_out().unwrap();
    assert!(!small.is_small());
    assert_eq!(stack.engine.stats().accepted_bytes, 5, "the refused pages");
    small.close(of_engine).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"hello");
}

#[test]
fn a_refused_file_that_another_call_moves_to_the_engine_is_written_again() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, stack) = (directory.path().join("file"), stack());
    let small = small(&stack, &path);
    let (_other, holder) = holder(&path);
    small.report(refuse).unwrap_err();
    small.grow().unwrap_err();
    holder.close().unwrap();
    // As an open by another program does.
    small.grow().unwrap();
    assert_eq!(stack.engine.stats().accepted_bytes, 5, "the refused pages");
}

/// A writer past the engine does so, while the kernel reads the file.
#[test]
fn a_refused_file_that_others_have_made_longer_is_written_again_as_a_whole() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, stack) = (directory.path().join("file"), stack());
    let long = small(&stack, &path);
    let writer = fs::File::options().write(true).open(&path).unwrap();
    writer.write_all_at(&[7; 300_000], 0).unwrap();
    long.report(refuse).unwrap_err();
    assert!(!long.is_small());
    assert_eq!(stack.engine.stats().accepted_bytes, 300_000);
    long.close(of_engine).unwrap();
    let longest = small(&stack, &directory.path().join("longest"));
    let writer = fs::File::options().write(true).open(directory.path().join("longest")).unwrap();
    writer.set_len(SMALL_BYTES + 1).unwrap();
    longest.report(refuse).unwrap_err();
    assert!(longest.is_small());
    let again = longest.report(|_| Ok(())).unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::EIO), "each sync fails");
    longest.discard();
}

#[test]
fn the_close_of_a_refused_file_that_the_engine_does_not_take_fails() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, stack) = (directory.path().join("file"), stack());
    let small = small(&stack, &path);
    let (_other, holder) = holder(&path);
    small.report(refuse).unwrap_err();
    small.close(of_engine).unwrap_err();
    holder.close().unwrap();
}

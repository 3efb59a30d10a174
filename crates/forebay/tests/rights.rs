//! Files that may not be both read and written, at any offset: each is refused with a remedy.

mod support;

use forebay::{Engine, ErrorKind, OpenOptions, Options};
use support::how;
use support::process;

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap()
}

#[test]
fn a_file_that_may_not_be_both_read_and_written_is_refused_with_a_remedy() {
    if support::is_root() {
        return process::as_nobody(
            "a_file_that_may_not_be_both_read_and_written_is_refused_with_a_remedy",
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"text").unwrap();
    let engine = small_engine();
    process::shell("chmod 400 \"$1\"", &path).unwrap();
    let file = engine.open(&path, &how::read()).unwrap();
    let mut read = [0; 4];
    assert_eq!(file.read_at(&mut read, 0).unwrap(), 4);
    let refused = |open: &OpenOptions| {
        let error = engine.open(&path, open).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    };
    for mode in ["400", "200"] {
        process::shell(&format!("chmod {mode} \"$1\""), &path).unwrap();
        for open in [&how::write(), &how::append(), how::write().truncate(true)] {
            let said = refused(open);
            assert!(said.contains("(writing needs read permission, too"), "{said}");
        }
        // The handle that was opened before keeps its right.
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 4);
    }
    file.close().unwrap();
    refused(&how::read());
}

#[test]
fn a_file_that_may_only_be_appended_to_is_refused_with_a_remedy() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"text").unwrap();
    let protect = || process::shell("chattr +a \"$1\"", &path);
    let test = "a_file_that_may_only_be_appended_to_is_refused_with_a_remedy";
    if support::made_by_root(test, "set the attribute", protect).is_none() {
        return;
    }
    let engine = small_engine();
    let refused = |open: &OpenOptions| engine.open(&path, open).unwrap_err();
    let errors = [&how::append(), &how::write(), how::write().truncate(true)].map(refused);
    let mut read = [0; 4];
    let found = engine.open(&path, &how::read()).and_then(|file| file.read_at(&mut read, 0));
    process::shell("chattr -a \"$1\"", &path).unwrap();
    for error in errors {
        assert_eq!(
            (error.kind(), error.os_error()),
            (ErrorKind::PermissionDenied, Some(libc::EPERM)),
            "{error}"
        );
        assert!(error.to_string().contains("use std::fs"), "{error}");
    }
    assert_eq!((found.unwrap(), &read), (4, b"text"));
}

//! The tests that `object_store` has for its own stores, and what this store promises beyond them.

use std::path::Path as File;

use forebay::{Engine, Options};
use forebay_object_store::Store;
use object_store::integration;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload};
use tempfile::TempDir;

fn store() -> (Store, TempDir) {
    let directory = tempfile::tempdir_in(".").unwrap();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    (Store::new(engine, directory.path()).unwrap(), directory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tests_of_object_store_pass() {
    let (store, _directory) = store();
    integration::put_get_delete_list(&store).await;
    integration::list_with_offset_exclusivity(&store).await;
    integration::get_opts(&store).await;
    integration::list_uses_directories_correctly(&store).await;
    integration::list_with_delimiter(&store).await;
    integration::rename_and_copy(&store).await;
    integration::copy_if_not_exists(&store).await;
    integration::copy_rename_nonexistent_object(&store).await;
    integration::stream_get(&store).await;
    integration::multipart_race_condition(&store, true).await;
    integration::multipart_out_of_order(&store).await;
    integration::put_opts(&store, false).await;
}

#[tokio::test]
async fn an_object_that_does_not_exist_is_reported() {
    let (store, _directory) = store();
    let missing = Path::from("missing");
    let error = integration::get_nonexistent_object(&store, Some(missing)).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

/// The pieces of a payload, a large object, and one that replaces a longer one.
#[tokio::test]
async fn an_object_has_the_bytes_of_its_payload() {
    let (store, directory) = store();
    let location = Path::from("some/where/object");
    let pieces = || (0..40_u8).map(|piece| vec![piece; 50_000 + usize::from(piece)]);
    let payload: PutPayload = pieces().map(bytes::Bytes::from).collect();
    let expected: Vec<u8> = pieces().flatten().collect();
    let contents =
        [(payload, expected), ("short".into(), b"short".to_vec()), (PutPayload::new(), Vec::new())];
    for (payload, expected) in contents {
        let put = store.put(&location, payload).await.unwrap();
        let head = store.head(&location).await.unwrap();
        assert_eq!((head.size, head.e_tag), (expected.len() as u64, put.e_tag));
        assert!(store.get(&location).await.unwrap().bytes().await.unwrap() == expected);
        assert!(std::fs::read(directory.path().join("some/where/object")).unwrap() == expected);
    }
    assert_eq!(names(directory.path()), ["object"], "temporary files stayed");
}

/// Puts of one object at the same time: it is always one of them, and no temporary file stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_at_the_same_time_leave_one_of_them() {
    let (store, directory) = store();
    let (same, new) = (Path::from("same"), Path::from("new"));
    let puts: Vec<_> = (0..40_u8)
        .map(|number| {
            let (store, same, new) = (store.clone(), same.clone(), new.clone());
            tokio::spawn(async move {
                store.put(&same, vec![number; 20_000].into()).await.unwrap();
                store.put_opts(&new, vec![number; 10].into(), PutMode::Create.into()).await
            })
        })
        .collect();
    let mut created = 0;
    for put in puts {
        match put.await.unwrap() {
            Ok(_) => created += 1,
            Err(error) => assert!(matches!(error, Error::AlreadyExists { .. }), "{error}"),
        }
    }
    assert_eq!(created, 1);
    let bytes = store.get(&same).await.unwrap().bytes().await.unwrap();
    assert!(bytes.len() == 20_000 && bytes.iter().all(|byte| *byte == bytes[0]));
    assert_eq!(names(directory.path()), ["new", "same"]);
}

/// Every name that fits the file system, in bytes.
#[tokio::test]
async fn an_object_may_have_the_longest_name() {
    let (store, directory) = store();
    let long = |letter: &str, bytes: usize| letter.repeat(bytes / letter.len());
    for name in ["x".into(), long("x", 238), long("x", 239), long("x", 255), long("é", 254)] {
        let location = Path::parse(&name).unwrap();
        store.put(&location, "first".into()).await.unwrap();
        store.put(&location, "second".into()).await.unwrap();
        let create = store.put_opts(&location, "third".into(), PutMode::Create.into());
        assert!(matches!(create.await, Err(Error::AlreadyExists { .. })), "{name}");
        assert_eq!(store.get(&location).await.unwrap().bytes().await.unwrap(), "second");
        let mut upload = store.put_multipart(&location).await.unwrap();
        upload.put_part("in parts".into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(names(directory.path()), [name.as_str()]);
        store.delete(&location).await.unwrap();
    }
    let too_long = Path::parse("x".repeat(256)).unwrap();
    assert!(store.put(&too_long, "never".into()).await.is_err());
    assert!(names(directory.path()).is_empty());
}

/// Also that of an object whose own name has a `#`.
#[tokio::test]
async fn lists_show_no_temporary_file() {
    let (store, directory) = store();
    let location = Path::parse("a#b").unwrap();
    let mut upload = store.put_multipart(&location).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    assert_eq!(names(directory.path()).len(), 1);
    assert!(listed(&store).await.is_empty());
    // As a version before this one may have left it.
    std::fs::write(directory.path().join("object#123400000001"), "").unwrap();
    upload.complete().await.unwrap();
    assert_eq!(listed(&store).await, ["a#b"]);
}

async fn listed(store: &Store) -> Vec<String> {
    let found = store.list_with_delimiter(None).await.unwrap();
    found.objects.into_iter().map(|object| object.location.to_string()).collect()
}

/// An upload that is dropped, aborted, or completed twice.
#[tokio::test]
async fn an_upload_ends_once() {
    let (store, directory) = store();
    let location = Path::from("object");
    let mut dropped = store.put_multipart(&location).await.unwrap();
    dropped.put_part("part".into()).await.unwrap();
    drop(dropped);
    assert!(names(directory.path()).is_empty(), "a temporary file stayed");
    let mut upload = store.put_multipart(&location).await.unwrap();
    let (one, two) = (upload.put_part("one ".into()), upload.put_part("two".into()));
    two.await.unwrap();
    one.await.unwrap();
    upload.complete().await.unwrap();
    assert!(upload.complete().await.is_err());
    upload.abort().await.unwrap();
    drop(upload);
    assert_eq!(store.get(&location).await.unwrap().bytes().await.unwrap(), "one two");
    assert_eq!(names(directory.path()), ["object"]);
}

/// Its bytes would be zero.
#[tokio::test]
async fn an_upload_without_one_of_its_parts_is_not_completed() {
    let (store, directory) = store();
    let mut upload = store.put_multipart(&Path::from("object")).await.unwrap();
    let given_up = upload.put_part("one ".into());
    let second = upload.put_part("two".into());
    drop(given_up);
    second.await.unwrap();
    let error = upload.complete().await.unwrap_err();
    assert!(error.to_string().contains("a part was not written"), "{error}");
    drop(upload);
    assert!(names(directory.path()).is_empty(), "a temporary file stayed");
}

/// Another store of the same directory sees the same objects, without temporary files.
#[tokio::test]
async fn it_shares_a_directory_with_the_store_of_local_files() {
    let (store, directory) = store();
    let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    let (ours, theirs) = (Path::from("ours"), Path::from("theirs"));
    store.put(&ours, "by us".into()).await.unwrap();
    local.put(&theirs, "by them".into()).await.unwrap();
    let mut upload = store.put_multipart(&Path::from("third")).await.unwrap();
    upload.put_part("unfinished".into()).await.unwrap();
    assert_eq!(local.get(&ours).await.unwrap().bytes().await.unwrap(), "by us");
    store.put(&theirs, "replaced".into()).await.unwrap();
    assert_eq!(local.get(&theirs).await.unwrap().bytes().await.unwrap(), "replaced");
    let listed = local.list_with_delimiter(None).await.unwrap().objects;
    assert_eq!(listed.len(), 2, "an unfinished upload is listed: {listed:?}");
}

/// Outside of a runtime the calls block.
#[test]
fn it_works_without_a_runtime() {
    let (store, _directory) = store();
    let location = Path::from("object");
    let put = store.put(&location, "content".into());
    let mut put = std::pin::pin!(put);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(put.as_mut().poll(&mut context).is_ready());
}

/// The files in a directory and those below.
fn names(directory: &File) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => names.extend(self::names(&entry.path())),
            false => names.push(entry.file_name().into_string().unwrap()),
        }
    }
    names.sort();
    names
}

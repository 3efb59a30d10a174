use std::fs;
use std::path::Path;

use forebay::{Engine, Open};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::*;
use crate::data::Way;
use crate::mounted::Log;
use crate::node::Nodes;
use crate::open_file::OpenFile;
use crate::small::{Room, Stack};

fn engine() -> Engine {
    Engine::builder().cache_bytes(16 << 20).build().unwrap()
}

/// The mount of a directory that is not mounted.
fn mount(directory: &Path) -> Mount {
    let stack = Stack { engine: engine(), room: Room::beside(16 << 20) };
    let nodes = Nodes::new(path_only(directory)).unwrap();
    let source = fs::File::open(directory).unwrap();
    Mount::new(source, Way::Engine(Arc::new(stack)), nodes, Log(Arc::new(|_: &str| {})))
}

fn path_only(path: &Path) -> std::os::fd::OwnedFd {
    openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap()
}

fn node(mount: &Mount, path: &Path) -> Arc<Node> {
    let descriptor = path_only(path);
    let status = rustix::fs::fstat(&descriptor).unwrap();
    mount.nodes.enter(descriptor, &status, 1)
}

/// A new small file that nobody has open, with content.
fn small(mount: &Mount, path: &Path) -> Arc<Node> {
    let created = fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let node = node(mount, path);
    let file = OpenFile::take(&mount.way, &node, created.into()).unwrap();
    file.data.write(b"hello", 0).unwrap();
    file.end();
    node
}

#[test]
fn a_refused_small_file_stays_until_the_engine_takes_it() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, mount) = (directory.path().join("file"), mount(directory.path()));
    let node = small(&mount, &path);
    // Another engine keeps this one from the file.
    let other = engine();
    let holder = other.open(&path, Open::write()).unwrap();
    let file = node.state().any().cloned().unwrap();
    let refuse = |_: crate::data::Held<'_>| Err(io::Error::from_raw_os_error(libc::EIO));
    file.data.small().unwrap().report(refuse).unwrap_err();
    drop(file);
    assert!(!close(&mount, &node), "its content is only in the page cache");
    assert!(!node.state().is_unused());
    holder.close().unwrap();
    let begin = Instant::now();
    while !close(&mount, &node) {
        assert!(begin.elapsed().as_secs() < 10, "the engine takes it now");
    }
    assert!(node.state().is_unused());
    assert_eq!(fs::read(path).unwrap(), b"hello");
}

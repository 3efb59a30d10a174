use rustix::fs::openat;

use super::*;

fn path_only(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap()
}

#[test]
fn an_object_has_one_node_until_each_lookup_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = Nodes::new(path_only(directory.path())).unwrap();
    assert_eq!(nodes.get(ROOT).unwrap().kind, FileType::Directory);
    let (file, link) = (directory.path().join("file"), directory.path().join("link"));
    std::fs::write(&file, b"").unwrap();
    std::fs::hard_link(&file, &link).unwrap();
    let enter = |path| {
        let descriptor = path_only(path);
        let status = fstat(&descriptor).unwrap();
        nodes.enter(descriptor, &status, 1).0
    };
    let node = enter(&file);
    assert_eq!(enter(&link).number, node.number);
    assert!(nodes.forget(node.number, 1).is_none());
    assert!(nodes.get(node.number).is_ok());
    assert_eq!(nodes.forget(node.number, 1).unwrap().number, node.number);
    assert_eq!(nodes.get(node.number).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    assert_eq!(enter(&file).number, std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()));
    nodes.forget(ROOT, 1);
    assert!(nodes.get(ROOT).is_ok());
}

#[test]
fn a_removed_file_has_no_node_and_its_number_is_not_used_until_it_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = Nodes::new(path_only(directory.path())).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"").unwrap();
    let descriptor = path_only(&path);
    let status = fstat(&descriptor).unwrap();
    let (node, _) = nodes.enter(descriptor, &status, 2);
    let (number, identity) = (node.number, node.identity);
    nodes.release_removed(Arc::clone(&node));
    assert!(nodes.get(number).is_ok(), "a request uses it");
    nodes.release_removed(node);
    assert_eq!(nodes.get(number).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    assert!(nodes.find(identity).is_none());
    let next = || nodes.change(|inner| inner.number(identity));
    for _ in 0..2 {
        assert_ne!(next(), number);
        assert!(nodes.forget(number, 1).is_none());
    }
    assert_eq!(next(), number);
}

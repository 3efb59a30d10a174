//! Everything that a mount has written becomes durable.

use crate::mounted::Mount;
use crate::node::Node;
use crate::settle::{close, settle, write_out};

/// Makes everything durable, and returns the first error. Blocks.
///
/// One flush of the file system of the source covers all its files. Each file system that is
/// mounted inside of it gets one, too.
pub(crate) fn sync_all(mount: &Mount) -> Option<String> {
    let files = || mount.nodes.all().into_iter().filter(|node| node.is_file());
    let mut first = None;
    let mut write_out = |node: &Node| {
        if let Err(error) = write_out(node) {
            first.get_or_insert(format!("{}: {error}", node.name().display()));
        }
    };
    let mut small = Vec::new();
    for node in files() {
        let file = node.state().any().cloned();
        match file.as_ref().and_then(|file| file.data.small()) {
            Some(file) => {
                file.start_writing();
                small.push(node);
            }
            None => write_out(&node),
        }
    }
    // All are under way, so each wait is short.
    small.iter().for_each(|node| write_out(node));
    let flushed = rustix::fs::syncfs(&mount.source)
        .map_err(|error| format!("could not flush the file system of the source: {error}"));
    let inside = mount.nodes.foreign().into_iter().map(|(mount, directory)| {
        mount.flush().map_err(|error| {
            format!("{}: could not flush this file system: {error}", directory.display())
        })
    });
    first.or(inside.chain([flushed]).find_map(Result::err))
}

/// Makes all files durable and closes them, at the end of a mount. Returns the first error, also
/// one of an earlier close.
pub(crate) fn close_all(mount: &Mount) -> Option<String> {
    for node in mount.nodes.all().into_iter().filter(|node| node.is_file()) {
        settle(mount, &node);
    }
    let failed = sync_all(mount);
    for node in mount.nodes.all().into_iter().filter(|node| node.is_file()) {
        close(mount, &node);
    }
    failed.or_else(|| mount.lost())
}

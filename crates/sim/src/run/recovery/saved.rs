//! Bytes that a recovery has saved, because another program had changed their file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{SAVED, bytes_of, survivor_with};
use crate::platform::OpenDirectory;
use crate::stored::Survivor;
use crate::world::machine;

/// Returns a file as its owner can restore it: with its saved bytes at their offsets.
pub(in crate::run) fn restored(found: &Survivor, saved: &Path) -> Survivor {
    let mut bytes = bytes_of(found);
    let copy = content_of(saved);
    let mut listed = saved.as_os_str().to_owned();
    listed.push(".ranges");
    let text = String::from_utf8(content_of(Path::new(&listed))).expect("a list of ranges");
    for line in text.lines().skip(1) {
        let (offset, length) = line.split_once(' ').expect("an offset and a length");
        let [offset, length] = [offset, length].map(|number| number.parse().expect("a number"));
        let end: usize = offset + length;
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(&copy[offset..end]);
    }
    survivor_with(&bytes)
}

/// Returns the newest saved copy of a file.
pub(in crate::run) fn newest(path: &Path) -> Option<PathBuf> {
    let inode = machine::identity(path)?.inode.to_string();
    let entries = OpenDirectory::open(Path::new(SAVED)).and_then(|it| it.entries());
    let sequence = |name: &OsStr| {
        let mut parts = name.to_str()?.split('-').skip(1);
        let is_its = parts.next()? == inode;
        parts.next()?.parse::<u64>().ok().filter(|_| is_its)
    };
    let copies = entries.expect("a calm machine").into_iter();
    let copies = copies.filter_map(|entry| Some((sequence(&entry.name)?, entry.name)));
    copies.max().map(|(_, name)| Path::new(SAVED).join(name))
}

fn content_of(path: &Path) -> Vec<u8> {
    machine::stored(path, |stored| stored.read(0, stored.size()))
}

//! Checks of the heads of a log when it is opened.

use std::path::Path;

use forebay_log::head::NoHead;
use forebay_log::{BLOCK, FileId, HEADS, Head, VERSION};

use crate::core::error::{Error, ErrorKind, Result};

/// Returns the newest valid head.
pub(super) fn head_of(path: &Path, heads: &[u8]) -> Result<Head> {
    let (one, other) = heads.split_at(BLOCK);
    Head::newest([one, &other[..BLOCK]]).map_err(|reason| {
        let (kind, what) = match reason {
            NoHead::Missing => (ErrorKind::Open, "this file is no intent log".to_owned()),
            NoHead::Damaged => {
                let what = "the intent log is damaged: neither of its two heads is valid";
                (ErrorKind::Open, what.to_owned())
            }
            NoHead::Version(version) => {
                let what = format!(
                    "the intent log has format version {version}; this program reads version \
                     {VERSION}"
                );
                (ErrorKind::Unsupported, what)
            }
        };
        let error = Error::new(kind, what).at_path(path);
        match reason {
            NoHead::Version(_) => error.remedy("recover it with the program that wrote it"),
            _ => error.remedy("keep it, and restore the directory from a copy with its log"),
        }
    })
}

pub(super) fn check(path: &Path, head: &Head, length: u64, own: &FileId) -> Result<()> {
    let expected = (HEADS + head.ring) * BLOCK as u64;
    if length < expected {
        return Err(cut_short(path, length, expected));
    }
    if !head.file.is_same(own) {
        let what = "this intent log belongs to another file: the log or its directory was copied, \
                    moved to another file system, or restored";
        return Err(Error::new(ErrorKind::Open, what).at_path(path).remedy(
            "recover the original directory; if these files are known to be complete, remove this \
             log",
        ));
    }
    Ok(())
}

pub(super) fn cut_short(path: &Path, length: u64, expected: u64) -> Error {
    let what = format!("the intent log is cut short: it has {length} of {expected} bytes");
    Error::new(ErrorKind::Open, what)
        .at_path(path)
        .remedy("keep it, and restore the directory from a copy with its log")
}

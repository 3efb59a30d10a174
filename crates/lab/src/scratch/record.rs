//! The proof that a directory was made by this program for this user: a random token in the
//! directory's `owner` file, and a record of the same token, with the directory's path and inode,
//! in the user's state directory. A directory without both is never removed.
//!
//! ```text
//! DIR/forebay-compare-XXXXXX/owner                      process, token
//! $XDG_STATE_HOME/forebay/scratch/TOKEN                 inode, path of the directory
//! ```
//!
//! Without a state directory nothing is recorded, and what a killed run leaves stays.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The file in the directory with the process and the token.
pub(super) const OWNER_FILE: &str = "owner";

/// Letters of a token, which is the random name of its record.
const TOKEN_LETTERS: usize = 32;

/// The longest `owner` file that is read.
const OWNER_BYTES: u64 = 256;

/// Where the records are.
#[derive(Clone, Debug)]
pub(super) struct Records(Option<PathBuf>);

/// The content of an `owner` file.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) process: Option<u32>,
    token: String,
}

impl Records {
    /// Returns the records of this user.
    pub(super) fn of_user() -> Self {
        let absolute = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        Self(state.map(|state| state.join("forebay/scratch")))
    }

    #[cfg(test)]
    pub(super) fn at(path: &Path) -> Self {
        Self(Some(path.to_owned()))
    }

    /// Marks a directory as made by this process. Returns the record, which goes when the directory
    /// does.
    ///
    /// # Errors
    /// The system's. Then the directory does not count as a leftover later.
    pub(super) fn enter(&self, path: &Path, directory: &File) -> io::Result<PathBuf> {
        let no_state = || io::Error::other("neither XDG_STATE_HOME nor HOME is set");
        let records = self.0.as_ref().ok_or_else(no_state)?;
        fs::create_dir_all(records)?;
        // It is removed on an error.
        let mut record =
            tempfile::Builder::new().prefix("").rand_bytes(TOKEN_LETTERS).tempfile_in(records)?;
        record.write_all(&reported(path, directory)?)?;
        let token = record.path().file_name().unwrap_or_default().display().to_string();
        fs::write(path.join(OWNER_FILE), format!("{}\n{token}\n", std::process::id()))?;
        let (_, record) = record.keep().map_err(|error| error.error)?;
        Ok(record)
    }

    /// Returns the record of a directory, if it and its `owner` file prove that this program made
    /// it.
    pub(super) fn find(&self, path: &Path, directory: &File, owner: &Owner) -> Option<PathBuf> {
        let record = self.0.as_ref()?.join(&owner.token);
        let recorded = fs::read(&record).ok()?;
        (recorded == reported(path, directory).ok()?).then_some(record)
    }
}

impl Owner {
    /// Reads the `owner` file of an open directory. A link, another user's file and anything else
    /// that this program does not write are `None`.
    pub(super) fn of(directory: &File) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, OWNER_FILE, flags, Mode::empty()).ok()?;
        let file = File::from(file);
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || !super::is_ours(&metadata) {
            return None;
        }
        let mut text = String::new();
        file.take(OWNER_BYTES).read_to_string(&mut text).ok()?;
        let mut lines = text.lines();
        let process = lines.next()?.parse().ok();
        let token = lines.next()?.to_owned();
        let is_token =
            token.len() == TOKEN_LETTERS && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_token.then_some(Self { process, token })
    }
}

/// Returns the content of a directory's record.
fn reported(path: &Path, directory: &File) -> io::Result<Vec<u8>> {
    let inode = directory.metadata()?.ino();
    let path = path.canonicalize()?;
    Ok([format!("{inode}\n").as_bytes(), path.as_os_str().as_bytes()].concat())
}

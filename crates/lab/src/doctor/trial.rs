//! Trials on files: on a new file without a name in the place, and on the file that the place is.
//!
//! The nameless file (`O_TMPFILE`) is opened a second time by its number, as an engine opens files;
//! on a file system without such files it has a name for that moment. The trials are the calls of
//! an engine: direct I/O, the lease, space beyond the end, the mark. Half a kilobyte of the user's
//! own file is read; it is not even opened if somebody has a lease on it.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::{
    Access, Alignment, Coverage, Create, Direct, Extents, FreeSpace, How, LeaseWatch, Mode,
    OpenFile, Truncate,
};
use rustix::fs::{Mode as Permissions, OFlags};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::groups::Groups;
use super::place::{Kind, Place};
use super::tree::Tree;

/// How long the free space is looked at.
const TIME_FOR_FREE_SPACE: Duration = Duration::from_secs(2);

const RESERVED_BYTES: u64 = 1 << 20;

/// Bytes reserved to count their pieces, and their largest share of the free space.
const SAMPLE_BYTES: u64 = 64 << 20;
const SAMPLE_OF_FREE: u64 = 100;

/// How the files begin that have a name for a moment.
const PREFIX: &str = ".forebay-doctor-";

#[derive(Debug)]
pub(super) enum Trial {
    Made(Box<Tried>),
    Refused {
        /// Where, and what the system said.
        error: String,
        /// Reported by the directory itself.
        groups: Option<Groups>,
        /// The file that the place is.
        own: Option<Result<Own, String>>,
    },
}

/// Trials on a new file.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) direct: Direct,
    pub(super) alignment: Alignment,
    pub(super) uncached_read: io::Result<()>,
    pub(super) uncached_write: io::Result<()>,
    pub(super) lease: io::Result<()>,
    pub(super) coverage: Coverage,
    /// Whether leases are allowed at all; none where that is not told.
    pub(super) leases_enabled: Option<u32>,
    pub(super) reserve: io::Result<()>,
    pub(super) mark: io::Result<()>,
    /// The extent-size hint it has, in bytes: the directory's.
    pub(super) hint: Option<u32>,
    pub(super) groups: Option<Groups>,
    pub(super) free_space: io::Result<FreeSpace>,
    /// In how many pieces a larger stretch came, where the free space is not told.
    pub(super) sample: Option<Extents>,
    /// The file that the place is, or why it was not opened.
    pub(super) own: Option<Result<Own, String>>,
}

/// Trials on the file that the place is.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) direct: Direct,
    pub(super) alignment: Alignment,
    pub(super) uncached_read: io::Result<()>,
    pub(super) hint: Option<u32>,
    /// Its pieces, of as much of it as one call tells.
    pub(super) pieces: Option<Extents>,
}

impl Trial {
    pub(super) fn of(place: &Place, tree: &Tree) -> Self {
        let own = (place.kind == Kind::File).then(|| Own::of(place, tree));
        match open_new(&place.directory).map(|file| Tried::on(&file, tree)) {
            Ok(tried) => Self::Made(Box::new(Tried { own, ..tried })),
            Err(error) => Self::Refused {
                error: format!("no file can be made in {}: {error}", place.directory.display()),
                groups: open(&place.directory, Access::Read).ok().and_then(|file| groups(&file)),
                own,
            },
        }
    }

    pub(super) fn groups(&self) -> Option<Groups> {
        match self {
            Self::Made(tried) => tried.groups,
            Self::Refused { groups, .. } => *groups,
        }
    }

    pub(super) fn own(&self) -> Option<&Result<Own, String>> {
        match self {
            Self::Made(tried) => tried.own.as_ref(),
            Self::Refused { own, .. } => own.as_ref(),
        }
    }

    /// How requests of files go, as far as that was seen.
    pub(super) fn mode(&self) -> Mode {
        let direct = match (self.own(), self) {
            (Some(Ok(own)), _) => &own.direct,
            (_, Self::Made(tried)) => &tried.direct,
            (_, Self::Refused { .. }) => return Mode::Direct,
        };
        if *direct == Direct::Yes { Mode::Direct } else { Mode::Buffered }
    }
}

impl Tried {
    fn on(file: &OpenFile, tree: &Tree) -> Self {
        let (uncached_write, uncached_read) = through_the_cache(file);
        let free_space = FreeSpace::of(file, TIME_FOR_FREE_SPACE);
        let sample = free_space.is_err().then(|| sample(file).ok()).flatten();
        Self {
            direct: file.direct().clone(),
            alignment: file.alignment(),
            uncached_read,
            uncached_write,
            lease: lease(file),
            coverage: file.lease_coverage(),
            leases_enabled: tree.number("/proc/sys/fs/leases-enable"),
            reserve: file.allocate(RESERVED_BYTES, RESERVED_BYTES),
            mark: file
                .set_reservation_mark(RESERVED_BYTES)
                .and_then(|()| file.remove_reservation_mark()),
            hint: file.extent_hint().ok().flatten(),
            groups: groups(file),
            free_space,
            sample,
            own: None,
        }
    }
}

impl Own {
    fn of(place: &Place, tree: &Tree) -> Result<Self, String> {
        if let Some(holder) = lease_holder(tree, place) {
            return Err(format!(
                "not opened: process {holder} has a lease on it, which that would break"
            ));
        }
        let file =
            open(&place.path, Access::Read).map_err(|error| format!("cannot open it: {error}"))?;
        let length = file.length().unwrap_or(0);
        Ok(Self {
            direct: file.direct().clone(),
            alignment: file.alignment(),
            uncached_read: uncached_read(&file),
            hint: file.extent_hint().ok().flatten(),
            pieces: file.pieces_of(0..length).ok(),
        })
    }
}

/// A file that is gone when it is closed.
fn open_new(directory: &Path) -> io::Result<OpenFile> {
    match nameless(directory) {
        Ok(first) => {
            // The first descriptor goes: a lease wants the only one.
            open(&PathBuf::from(format!("/proc/self/fd/{}", first.as_raw_fd())), Access::ReadWrite)
        }
        Err(error)
            if [libc::EOPNOTSUPP, libc::EISDIR, libc::ENOENT]
                .map(Some)
                .contains(&error.raw_os_error()) =>
        {
            let named =
                tempfile::Builder::new().prefix(PREFIX).tempfile_in(directory)?.into_temp_path();
            open(&named, Access::ReadWrite)
        }
        Err(error) => Err(error),
    }
}

fn nameless(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Permissions::RUSR | Permissions::WUSR)?)
}

fn open(path: &Path, access: Access) -> io::Result<OpenFile> {
    let how = How { access, create: Create::No, truncate: Truncate::Keep, mode: 0 };
    OpenFile::open_within(path, &how, Duration::ZERO).map(|opened| opened.file)
}

/// A write and a read with `RWF_DONTCACHE`, through the kernel's cache.
fn through_the_cache(file: &OpenFile) -> (io::Result<()>, io::Result<()>) {
    let buffered = || file.set_direct(Mode::Buffered);
    let written = buffered().and_then(|()| {
        let page = [0x5f; 4096];
        Ok(pwritev2(file, &[IoSlice::new(&page)], 0, dont_cache()).map(drop)?)
    });
    let read = buffered().and_then(|()| uncached_read(file));
    // The next trials use the file as an engine does.
    let _ = file.set_direct(Mode::Direct);
    (written, read)
}

/// A read of half a kilobyte with `RWF_DONTCACHE`, through the kernel's cache.
pub(super) fn uncached_read(file: &OpenFile) -> io::Result<()> {
    file.set_direct(Mode::Buffered)?;
    uncached_read_of(file)
}

/// The same in the mode that the descriptor is in.
pub(super) fn uncached_read_of(file: impl AsFd) -> io::Result<()> {
    let mut buffer = [0; 512];
    Ok(preadv2(file, &mut [IoSliceMut::new(&mut buffer)], 0, dont_cache()).map(drop)?)
}

fn dont_cache() -> ReadWriteFlags {
    ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32)
}

/// Takes a write lease and gives it up.
fn lease(file: &OpenFile) -> io::Result<()> {
    let watch = LeaseWatch::new(|_| {})?;
    file.try_lease(&watch, 0)?;
    file.release_lease();
    Ok(())
}

/// In how many pieces a stretch comes.
fn sample(file: &OpenFile) -> io::Result<Extents> {
    let bytes = SAMPLE_BYTES.min(file.free_bytes()? / SAMPLE_OF_FREE) & !4095;
    file.allocate(0, bytes)?;
    file.pieces_of(0..bytes)
}

fn groups(file: &OpenFile) -> Option<Groups> {
    file.geometry().map(Groups::from)
}

/// The process that has a lease on the file of a place.
fn lease_holder(tree: &Tree, place: &Place) -> Option<String> {
    let (major, minor) =
        (rustix::fs::major(place.file_system), rustix::fs::minor(place.file_system));
    holder_in(&tree.text("/proc/locks")?, &format!("{major:02x}:{minor:02x}:{}", place.inode))
}

/// `2: LEASE  ACTIVE    WRITE 1234 fe:00:131 0 EOF`
fn holder_in(table: &str, file: &str) -> Option<String> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_lease = words.next()? == "LEASE";
        let (holder, locked) = (words.nth(2)?, words.next()?);
        (is_lease && locked == file).then(|| holder.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::manifest::mount;

    #[test]
    fn a_lease_is_found_in_the_table_of_locks() {
        let table = "1: POSIX  ADVISORY  WRITE 77 fe:00:131 0 EOF\n\
                     2: LEASE  ACTIVE    WRITE 1234 fe:00:131 0 EOF\n\
                     3: LEASE  BREAKING  READ 5 fe:00:132 0 EOF\n";
        assert_eq!(holder_in(table, "fe:00:131").as_deref(), Some("1234"));
        assert_eq!(holder_in(table, "fe:00:132").as_deref(), Some("5"));
        assert_eq!(holder_in(table, "fe:00:133"), None);
        assert_eq!(holder_in("", "fe:00:131"), None);
    }

    #[test]
    fn a_trial_leaves_nothing_and_finds_what_the_place_can() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::of(directory.path()).unwrap();
        let Trial::Made(tried) = Trial::of(&place, &Tree::real()) else {
            panic!("a directory of our own")
        };
        println!("{tried:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(tried.own.is_none());
        let told = tried.free_space.is_ok() || tried.sample.is_some();
        println!("free space is known: {told}");
    }

    #[test]
    fn the_file_itself_is_looked_at_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![7; 100_000]).unwrap();
        let place = Place::of(&path).unwrap();
        let trial = Trial::of(&place, &Tree::real());
        let own = trial.own().unwrap().as_ref().unwrap();
        println!("{own:?}");
        assert_eq!(fs::read(&path).unwrap(), vec![7; 100_000]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_under_a_lease_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        if let Err(error) = look_at_a_leased_file(directory.path()) {
            println!("skipped: no lease on this file system or for this user: {error}");
        }
    }

    #[test]
    fn nor_on_btrfs_where_files_have_the_number_of_a_subvolume() {
        // A thread of its own: the mount namespace changes for good.
        let test = || {
            let made = crate::file_system::tests::made("nor_on_btrfs", "btrfs,size=256m");
            let Some((_directory, mut file_system)) = made else { return };
            let mounted = file_system.renew().unwrap();
            assert_ne!(fs::metadata(mounted).unwrap().dev(), mount::file_system_number(mounted));
            look_at_a_leased_file(mounted).unwrap();
        };
        std::thread::spawn(test).join().unwrap();
    }

    fn look_at_a_leased_file(directory: &Path) -> io::Result<()> {
        let path = directory.join("file");
        fs::write(&path, "x").unwrap();
        let watch = LeaseWatch::new(|_| panic!("the lease was broken")).unwrap();
        let file = open(&path, Access::ReadWrite).unwrap();
        file.try_lease(&watch, 1)?;
        let trial = Trial::of(&Place::of(&path).unwrap(), &Tree::real());
        let own = trial.own().unwrap().as_ref();
        assert!(own.as_ref().is_err_and(|why| why.contains("has a lease on it")), "{own:?}");
        assert!(file.has_lease());
        Ok(())
    }

    #[test]
    fn where_nothing_can_be_made_that_is_said() {
        let place = Place::of(Path::new("/proc")).unwrap();
        let trial = Trial::of(&place, &Tree::real());
        assert!(
            matches!(&trial, Trial::Refused { error, .. } if error.starts_with("no file can be made in /proc"))
        );
        assert!(trial.groups().is_none() && trial.own().is_none());
    }
}

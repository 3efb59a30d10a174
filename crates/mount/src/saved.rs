//! Data that the keeper of an earlier mount could not write, as on a full disk.
//!
//! The keeper has saved it to an image beside its socket, and has ended. The next mount writes it
//! before programs can change the files. A file that is gone or was changed holds up no mount: the
//! image stays under another name.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use forebay::ErrorKind;
use forebay::keeper::image::{Recovered, Run, recover};

use crate::error::Error;
use crate::mounted::Log;
use crate::places::Source;

/// End of the names of images that a mount writes, and of those that it leaves to the user.
const IMAGE: &str = "image";
const KEPT: &str = "kept";

/// Makes the directory for images of a source. Returns its path.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn make_directory(source: &Source) -> Result<PathBuf, Error> {
    let directory = source.saved();
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::failed(&directory, "create the directory", error))
        }
        _ => Ok(directory),
    }
}

/// Writes all images of a source to its files, and removes them.
///
/// # Errors
/// If an image cannot be written now. It stays, and its files must not be changed before.
pub(crate) fn write(source: &Source, log: &Log) -> Result<(), Error> {
    let directory = source.saved();
    let failed = |error| Error::failed(&directory, "look for saved data", error);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut images = paths.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    images.retain(|path| path.extension().is_some_and(|end| end == IMAGE));
    // The older ones first.
    images.sort_by_key(|path| path.metadata().and_then(|found| found.modified()).ok());
    images.iter().try_for_each(|image| write_one(image, source, log))
}

fn write_one(image: &Path, source: &Source, log: &Log) -> Result<(), Error> {
    let later = |error: &forebay::Error| {
        let what = format!("data of an earlier mount is not written: {error}");
        let remedy = format!(
            "mend that and mount again; or move {} away, and `forebay recover` writes it",
            image.display()
        );
        Error::unsuitable(&source.path, &what, &remedy)
    };
    let files = recover(image, Run::Real).map_err(|error| later(&error))?;
    let kept = image.with_extension(KEPT);
    let mut is_kept = false;
    for Recovered { path, bytes, result } in &files {
        match result {
            Ok(()) => (log.0)(&format!(
                "{}: wrote {bytes} bytes that the keeper of an earlier mount had saved",
                path.display()
            )),
            Err(error) if is_final(error.kind()) => {
                is_kept = true;
                (log.0)(&format!("{error}; {bytes} bytes stay in {}", kept.display()));
            }
            Err(error) => return Err(later(error)),
        }
    }
    let done = if is_kept { fs::rename(image, kept) } else { fs::remove_file(image) };
    done.map_err(|error| Error::failed(image, "remove the image", error))
}

/// Whether no later try writes a file: it is gone, was changed, or its data may be half changed.
fn is_final(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotPermitted | ErrorKind::Poisoned)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, SystemTime};

    use forebay::{Engine, OpenOptions, Options, inside};
    use forebay_uring::Arena;

    use super::*;

    const WRITTEN: &[u8] = b"written, and on no disk";

    /// Saves an image with a file that an engine could not write.
    fn save_image(source: &Source, name: &str) -> PathBuf {
        let options = Options { dirty_age: Duration::from_secs(3600), ..Options::default() };
        let engine = inside::survivable(Engine::builder(options)).build().unwrap();
        let open = OpenOptions::new().read(true).write(true).create(true).clone();
        let file = engine.open(source.path.join(name), &open).unwrap();
        file.write_at(WRITTEN, 0).unwrap();
        let image = make_directory(source).unwrap().join(format!("{name}.{IMAGE}"));
        let arena = Arena::of_memfd(memory_of_an_engine().into()).unwrap();
        arena
            .save_to(&File::options().read(true).write(true).create_new(true).open(&image).unwrap())
            .unwrap();
        file.abandon_unwritten().unwrap();
        file.close().unwrap();
        engine.shutdown(Duration::from_secs(10)).unwrap();
        assert_eq!(fs::read(source.path.join(name)).unwrap(), b"");
        image
    }

    /// Returns the memory of the one engine of this process that another process may use.
    fn memory_of_an_engine() -> File {
        let entries = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        let is_memory = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|to| to == Path::new("/memfd:forebay (deleted)"))
        };
        let found: Vec<_> = entries.filter(is_memory).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        File::options().read(true).write(true).open(&found[0]).unwrap()
    }

    #[test]
    fn contract_04_saved_data_is_written_by_the_next_mount() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let source = Source::lock(directory.path(), |_| true).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&lines);
        let log = Log(Arc::new(move |line: &str| list.lock().unwrap().push(line.to_owned())));
        let said = || lines.lock().unwrap().concat();
        write(&source, &log).unwrap();

        let image = save_image(&source, "used");
        let path = source.path.join("used");
        let user = File::open(&path).unwrap();
        let refused = write(&source, &log).unwrap_err().to_string();
        assert!(refused.contains("another program has the file open"), "{refused}");
        assert!(refused.contains(&format!("move {} away", image.display())), "{refused}");
        assert!(image.exists());
        drop(user);
        write(&source, &log).unwrap();
        assert_eq!(fs::read(&path).unwrap(), WRITTEN);
        assert!(!image.exists() && said().contains("wrote 23 bytes"), "{}", said());

        let image = save_image(&source, "changed");
        let path = source.path.join("changed");
        fs::write(&path, b"newer").unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        write(&source, &log).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        let kept = image.with_extension(KEPT);
        assert!(said().contains(&format!("23 bytes stay in {}", kept.display())), "{}", said());
        assert!(!image.exists() && kept.exists());
        fs::remove_dir_all(source.saved()).unwrap();
    }
}

//! Facts of a test's own.

use super::*;

/// Files below a directory that is removed with the value.
pub(crate) struct Fake {
    directory: tempfile::TempDir,
    pub(crate) facts: Facts,
}

impl Fake {
    /// Makes the facts of a directory on a machine with nothing but these files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let facts = Facts {
            tree: Tree(directory.path().to_owned()),
            place: Place {
                path: "/mnt/a b".into(),
                kind: Kind::Directory,
                directory: "/mnt/a b".into(),
                owner: 0,
                device: 0,
            },
            process: Process { processors: vec![(0, 3)], ..Process::default() },
            version: KernelVersion { major: 7, minor: 0 },
            offers: Ok(Offers::default()),
            engine: Ok("io_uring: full".to_owned()),
            storage: None,
            trial: None,
            disk: None,
        };
        let fake = Self { directory, facts };
        files.iter().for_each(|(path, text)| fake.write(path, text));
        fake
    }

    /// Writes a file.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let place = self.facts.tree.place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    /// Makes a link. The goal is below the same root.
    pub(crate) fn link(&self, path: &str, goal: &str) {
        let place = self.facts.tree.place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(self.directory.path().join(&goal[1..]), place).unwrap();
    }
}

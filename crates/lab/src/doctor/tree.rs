//! The kernel's files `/proc` and `/sys`, below a root that a test can set.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn real() -> Self {
        Self::below("/")
    }

    pub(super) fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where something is; its path begins with `/`.
    pub(super) fn place(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file; none where it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.place(path)).ok()
    }

    /// The same without blanks around it; none where nothing is left.
    pub(super) fn word(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.text(path)?;
        let word = text.trim();
        (!word.is_empty()).then(|| word.to_owned())
    }

    pub(super) fn number<N: FromStr>(&self, path: impl AsRef<Path>) -> Option<N> {
        self.word(path)?.parse().ok()
    }

    /// The names in a directory, sorted; none where it cannot be read.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.place(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The groups this process is in that limit something, from its own up to the root: of version
    /// 2 those of the one tree, of version 1 those of the controller's.
    pub(super) fn groups(&self, controller: &str) -> Vec<PathBuf> {
        let table = self.text("/proc/self/cgroup").unwrap_or_default();
        let of_line = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, group) = (fields.next()?, fields.next()?);
            let root = match controllers {
                "" => "/sys/fs/cgroup".to_owned(),
                _ if controllers.split(',').any(|one| one == controller) => {
                    format!("/sys/fs/cgroup/{controller}")
                }
                _ => return None,
            };
            let group = Path::new(&root).join(group.trim_start_matches('/'));
            let above = group.ancestors().take_while(|place| place.starts_with(&root));
            Some(above.map(Path::to_owned).collect::<Vec<_>>())
        };
        table.lines().filter_map(of_line).flatten().collect()
    }
}

/// A tree of a test's own.
#[cfg(test)]
pub(super) mod fake {
    use super::*;

    /// Files below a directory that goes with the value.
    pub(crate) struct Fake {
        pub(crate) directory: tempfile::TempDir,
        pub(crate) tree: Tree,
    }

    impl Fake {
        pub(crate) fn new(files: &[(&str, &str)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let fake = Self { tree: Tree::below(directory.path()), directory };
            files.iter().for_each(|(path, text)| fake.write(path, text));
            fake
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let place = self.tree.place(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }

        /// Makes a link. The goal is relative to the tree's root.
        pub(crate) fn link(&self, path: &str, goal: &str) {
            let place = self.tree.place(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(self.tree.place(goal), place).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Fake;

    #[test]
    fn files_are_read_below_the_root() {
        let fake = Fake::new(&[("/proc/a", " 7\n"), ("/proc/b", "\n")]);
        let tree = &fake.tree;
        assert_eq!((tree.number::<u32>("/proc/a"), tree.word("/proc/b")), (Some(7), None));
        assert_eq!((tree.number::<u32>("/proc/b"), tree.text("/proc/c")), (None, None));
        assert_eq!(tree.names("/proc"), ["a", "b"]);
        assert!(tree.names("/nothing").is_empty());
        assert!(fake.directory.path().join("proc/a").exists());
    }

    #[test]
    fn groups_of_both_versions_are_found_up_to_their_roots() {
        let fake = Fake::new(&[(
            "/proc/self/cgroup",
            "4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/u\nnonsense\n",
        )]);
        let paths = |controller| -> Vec<String> {
            fake.tree.groups(controller).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            paths("memory"),
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/u",
                "/sys/fs/cgroup"
            ]
        );
        assert_eq!(
            paths("cpu"),
            ["/sys/fs/cgroup/cpu/c", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/u", "/sys/fs/cgroup"]
        );
    }
}

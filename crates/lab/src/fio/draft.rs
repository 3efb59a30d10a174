//! A job while its options are being read: single options are settled at once, combinations at the
//! end.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::job::{Amount, Caching, Direction, Job, YesNo};
use crate::words::with_defaults;

with_defaults! {
    #[derive(Clone, Debug)]
    pub(crate) struct Draft {
        /// Options that depend on no other option.
        pub(crate) job: Job = Job::default(),
        pub(crate) read_percent: u8 = 50,
        pub(crate) directories: Vec<String> = Vec::new(),
        pub(crate) file_names: Vec<String> = Vec::new(),
        /// The file that the section's own name is of.
        pub(crate) special: Option<PathBuf> = None,
        pub(crate) file_name_format: String = "$jobname.$jobnum.$filenum".into(),
        pub(crate) files: u32 = 1,
        pub(crate) clones: u32 = 1,
        pub(crate) direct: bool = false,
        pub(crate) uncached: bool = false,
        pub(crate) verify: bool = false,
        pub(crate) do_verify: bool = true,
        /// Waits for all sections before it.
        pub(crate) stonewall: bool = false,
    }
}

/// Of a section. Each is open while its job runs.
const MOST_FILES: u64 = 1 << 17;

impl Draft {
    /// Returns the jobs of a section, one per clone, or the reason against them. Relative names of
    /// files are in `directory`, if that is known yet.
    pub(crate) fn finish(
        mut self,
        section: &str,
        directory: Option<&Path>,
    ) -> Result<Vec<Job>, String> {
        self.job.caching = match (self.direct, self.uncached) {
            (true, true) => {
                let what = "direct=1 and uncached=1 exclude each other";
                return Err(format!("{what}: direct I/O has no cache to go through"));
            }
            (true, _) => Caching::Direct,
            (_, true) => Caching::Uncached,
            _ => Caching::Buffered,
        };
        if let Direction::Mixed { read_percent } = &mut self.job.access.direction {
            *read_percent = self.read_percent;
        }
        self.job.verify =
            (self.verify && self.do_verify && self.job.access.direction.writes()).into();
        if self.job.time_based == YesNo::Yes && self.job.runtime_us.is_none() {
            return Err("time_based needs a runtime=".into());
        }
        if self.job.size == Some(Amount::Bytes(0)) {
            return Err("size=0: a job needs something to work on".into());
        }
        let files =
            u64::from(self.clones) * (self.files as usize).max(self.file_names.len()) as u64;
        if files > MOST_FILES {
            return Err(format!("{files} files, all clones together; at most {MOST_FILES}"));
        }
        if self.file_names.is_empty() && self.files == 1 && is_special(section, directory) {
            self.special = Some(PathBuf::from(section));
        }
        (0..self.clones).map(|number| self.clone_job(section, number)).collect()
    }

    /// Returns the job of one clone. Several directories are dealt out to the clones; several files
    /// go into each of them.
    fn clone_job(&self, section: &str, number: u32) -> Result<Job, String> {
        let name =
            if self.clones == 1 { section.to_owned() } else { format!("{section}.{number}") };
        let expand = |text: &str, file| expand(text, section, number, file);
        let directory = self.directories.get(number as usize % self.directories.len().max(1));
        let directory = directory.map(|named| expand(named, 0)).transpose()?;
        let files: Result<Vec<PathBuf>, String> = match (&self.special, &self.file_names[..]) {
            (Some(special), _) => Ok(vec![special.clone()]),
            (None, []) => {
                (0..self.files).map(|file| expand(&self.file_name_format, file)).collect()
            }
            (None, names) => names.iter().map(|name| expand(name, 0)).collect(),
        };
        let mut files = files?;
        if let Some(directory) = &directory {
            let is_outside = |name: &&PathBuf| name.is_absolute() || self.special.is_some();
            if let Some(outside) = files.iter().find(is_outside) {
                let (outside, directory) = (outside.display(), directory.display());
                let what = format!("{outside} is not in directory={directory}");
                return Err(format!("{what}; leave one of them out"));
            }
            files.iter_mut().for_each(|name| *name = directory.join(&*name));
        }
        let mut seen = HashSet::new();
        files.retain(|path| seen.insert(path.clone()));
        assert!(!files.is_empty(), "{name}: a job has a file");
        Ok(Job { name, number, files, directory, ..self.job.clone() })
    }
}

/// Returns whether a section's name is that of a file that exists and is no regular file. As in
/// fio, a section without `filename` works on that file.
fn is_special(section: &str, directory: Option<&Path>) -> bool {
    let path = directory.unwrap_or(Path::new("")).join(section);
    (directory.is_some() || path.is_absolute())
        && fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// Puts the name of a section and numbers into a text.
///
/// # Errors
/// The name of the section changes the directory that the text is in.
fn expand(text: &str, section: &str, number: u32, file: u32) -> Result<PathBuf, String> {
    let name = text
        .replace("$jobname", section)
        .replace("$jobnum", &number.to_string())
        .replace("$filenum", &file.to_string());
    if outward(Path::new(&name)) != outward(Path::new(text)) {
        return Err(format!(
            "{name}, made from the name of the section, leads out of the directory; name the file \
             with filename="
        ));
    }
    Ok(PathBuf::from(name))
}

/// Returns the steps of a path that lead out of a directory.
fn outward(path: &Path) -> Vec<Component<'_>> {
    let steps = path.components();
    steps.filter(|step| matches!(step, Component::RootDir | Component::ParentDir)).collect()
}

/// Returns a format of names inside a directory.
pub(crate) fn file_name_format(text: &str) -> Result<String, String> {
    if text.contains('\0') || !outward(Path::new(text)).is_empty() {
        let what = "allowed: names inside the directory; give another one with directory=";
        return Err(what.into());
    }
    Ok(text.to_owned())
}

/// Splits a list of paths at its colons; `\:` is a colon of a name.
pub(crate) fn split_paths(text: &str) -> Result<Vec<String>, String> {
    const MOST: usize = 65_536;
    if text.contains('\0') {
        return Err("a path has no zero byte".into());
    }
    // A zero byte stands for a colon of a name.
    let text = text.replace("\\:", "\0");
    let paths = text.split(':').filter(|path| !path.is_empty());
    let paths: Vec<String> = paths.map(|path| path.replace('\0', ":")).collect();
    if paths.is_empty() || paths.len() > MOST {
        return Err(format!("from 1 to {MOST} paths, with colons between them"));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_get_names_files_and_directories_of_their_own() {
        let directories = vec!["x".into(), "y$jobnum".into()];
        let draft = Draft { clones: 3, files: 2, directories, ..Draft::default() };
        let jobs = draft.finish("w", None).unwrap();
        let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["w.0", "w.1", "w.2"]);
        assert_eq!(jobs[0].files, [PathBuf::from("x/w.0.0"), PathBuf::from("x/w.0.1")]);
        assert_eq!(jobs[1].files, [PathBuf::from("y1/w.1.0"), PathBuf::from("y1/w.1.1")]);
    }

    #[test]
    fn a_named_file_is_shared_by_the_clones() {
        let draft = Draft { clones: 2, file_names: vec!["f".into()], ..Draft::default() };
        let jobs = draft.finish("w", None).unwrap();
        assert_eq!(jobs[0].files, jobs[1].files);
    }

    #[test]
    fn contradictions_are_refused() {
        let both = Draft { direct: true, uncached: true, ..Draft::default() };
        assert!(both.finish("w", None).unwrap_err().contains("exclude"));
        let mut endless = Draft::default();
        endless.job.time_based = YesNo::Yes;
        assert!(endless.finish("w", None).unwrap_err().contains("runtime"));
    }

    #[test]
    fn paths_split_at_colons() {
        assert_eq!(split_paths(r"a:b\:c::d").unwrap(), ["a", "b:c", "d"]);
        assert!(split_paths(":").is_err());
    }
}

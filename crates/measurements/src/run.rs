//! Running a measurement: its command in a shell, what it printed into the bundle.
//!
//! ```text
//! BUNDLE/NAME.txt   the command and its output, when it ended well
//! BUNDLE/NAME.part  its output so far, or what was left of it when it failed
//! BUNDLE/NAME/      what `forebay compare --bundle` writes, where it is one
//! BUNDLE/index.tsv  name, seconds it took, commit it was made with, date
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use forebay_lab::schema::Document;

use crate::list::Measurement;

/// What leaves a result.
const COMPARE: &str = "forebay compare";

/// Where results go, and where the programs and files are that make them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// Of the bundle.
    pub directory: PathBuf,
    /// The project's, in which commands run.
    pub project: PathBuf,
    /// Where files of measurements go, `$DIR`.
    pub files: PathBuf,
    /// Where the programs are.
    pub programs: Vec<PathBuf>,
}

/// What a measurement came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// Its output is there.
    Done,
    /// It is there from an earlier run.
    WasThere,
}

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file of the bundle.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The command failed.
    #[error("{name}: {status} (what it printed is in {output})")]
    Failed {
        /// Which measurement.
        name: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Where its output is.
        output: PathBuf,
    },
}

impl Bundle {
    /// Runs a measurement unless its output is there.
    pub fn run(&self, measurement: &Measurement) -> Result<Ran, RunError> {
        let name = &measurement.name;
        let (whole, part) = (self.output(name), self.directory.join(format!("{name}.part")));
        if whole.exists() {
            return Ok(Ran::WasThere);
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| RunError::File { path, source }
        };
        // Of an attempt that did not end.
        let result = self.directory.join(name);
        if result.exists() {
            fs::remove_dir_all(&result).map_err(failed(&result))?;
        }
        let mut output = File::create(&part).map_err(failed(&part))?;
        writeln!(output, "{}", measurement.shown()).map_err(failed(&part))?;
        let printed = output.try_clone().map_err(failed(&part))?;
        let began = Instant::now();
        let status = Command::new("sh")
            .args(["-euc", &self.asked(measurement)])
            .current_dir(&self.project)
            .env("DIR", &self.files)
            .env("PATH", self.path())
            .stdin(Stdio::null())
            .stdout(printed)
            .status()
            .map_err(failed(Path::new("sh")))?;
        if !status.success() {
            return Err(RunError::Failed { name: name.clone(), status, output: part });
        }
        fs::rename(&part, &whole).map_err(failed(&part))?;
        self.note(name, began.elapsed().as_secs()).map_err(failed(&self.index()))?;
        Ok(Ran::Done)
    }

    /// What a measurement printed; none if it has not run.
    #[must_use]
    pub fn printed(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.output(name)).ok()
    }

    /// The result of a measurement that has one.
    #[must_use]
    pub fn result(&self, name: &str) -> Option<Document> {
        Document::read(&forebay_lab::bundle::document_in(&self.directory.join(name))).ok()
    }

    fn output(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.txt"))
    }

    fn index(&self) -> PathBuf {
        self.directory.join("index.tsv")
    }

    /// The command, each comparison of it with where its bundle goes.
    fn asked(&self, measurement: &Measurement) -> String {
        let result = self.directory.join(&measurement.name);
        // Right behind its words, for something else may follow.
        let bundled = |line: &str| {
            let option = match line.contains("--check-against") {
                true => format!("--json '{}.json'", result.display()),
                false => format!("--bundle '{}'", result.display()),
            };
            match line.trim_start().starts_with(COMPARE) {
                true => format!("{}\n", line.replacen(COMPARE, &format!("{COMPARE} {option}"), 1)),
                false => format!("{line}\n"),
            }
        };
        measurement.command.trim().lines().map(bundled).collect()
    }

    fn path(&self) -> std::ffi::OsString {
        let known = std::env::var_os("PATH").unwrap_or_default();
        let all = self.programs.iter().cloned().chain(std::env::split_paths(&known));
        std::env::join_paths(all).unwrap_or(known)
    }

    fn note(&self, name: &str, seconds: u64) -> io::Result<()> {
        let said = |program: &str, arguments: &[&str]| -> String {
            let output = Command::new(program).args(arguments).current_dir(&self.project).output();
            output
                .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
                .unwrap_or_default()
        };
        let commit = said("git", &["describe", "--always", "--dirty"]);
        let date = said("date", &["-u", "+%Y-%m-%dT%H:%MZ"]);
        let mut index = OpenOptions::new().create(true).append(true).open(self.index())?;
        writeln!(index, "{name}\t{seconds} s\t{commit}\t{date}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(directory: &Path) -> Bundle {
        Bundle {
            directory: directory.to_owned(),
            project: directory.to_owned(),
            files: "/files".into(),
            programs: vec!["/programs".into()],
        }
    }

    fn measurement(command: &str) -> Measurement {
        Measurement { name: "one".into(), minutes: 1, command: command.into() }
    }

    #[test]
    fn what_it_prints_is_kept_and_it_is_not_run_again() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = bundle(directory.path());
        let one = measurement("echo at $DIR\necho again; echo not this >&2\n");
        assert_eq!(bundle.run(&one).unwrap(), Ran::Done);
        let expected = "$ echo at $DIR\n$ echo again; echo not this >&2\n\nat /files\nagain\n";
        assert_eq!(bundle.printed("one").unwrap(), expected);
        assert_eq!(bundle.run(&measurement("false")).unwrap(), Ran::WasThere);
        let index = fs::read_to_string(bundle.index()).unwrap();
        assert!(index.starts_with("one\t0 s\t") || index.starts_with("one\t1 s\t"), "{index}");
    }

    #[test]
    fn a_failure_ends_it_at_its_first_line_and_is_no_result() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = bundle(directory.path());
        let error = bundle.run(&measurement("echo before\nfalse\necho after")).unwrap_err();
        assert!(error.to_string().starts_with("one: exit status: 1"), "{error}");
        assert_eq!(bundle.printed("one"), None);
        let part = fs::read_to_string(directory.path().join("one.part")).unwrap();
        assert!(part.ends_with("\nbefore\n"), "{part}");
        assert_eq!(bundle.run(&measurement("true")).unwrap(), Ran::Done);
    }

    #[test]
    fn comparisons_leave_their_results_in_the_bundle() {
        let bundle = bundle(Path::new("/b"));
        let lines = "forebay compare plug\ncd x\nforebay compare --check-against-fio || true";
        assert_eq!(
            bundle.asked(&measurement(lines)),
            "forebay compare --bundle '/b/one' plug\ncd x\n\
             forebay compare --json '/b/one.json' --check-against-fio || true\n"
        );
        assert_eq!(bundle.result("one"), None);
    }
}

//! Runs the command of a measurement in a shell and keeps its output in the bundle.
//!
//! ```text
//! BUNDLE/NAME.txt   the command and its output, if it succeeded
//! BUNDLE/NAME.part  its output so far, or until it failed
//! BUNDLE/NAME/      for a comparison, the bundle of `forebay compare --bundle`
//! BUNDLE/index.tsv  name, duration in seconds, commit, date
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use forebay_lab::schema::Document;

use crate::list::Measurement;

/// Start of a command that saves a result.
const COMPARE: &str = "forebay compare";

/// The directories of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// The bundle.
    pub directory: PathBuf,
    /// The project; commands run there.
    pub project: PathBuf,
    /// Files of the measurements: `$DIR`.
    pub files: PathBuf,
    /// Programs, searched before `PATH`.
    pub programs: Vec<PathBuf>,
}

/// Outcome of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// It ran.
    Done,
    /// An earlier run left its output.
    WasThere,
}

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or program could not be used.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The command failed.
    #[error("{name}: {status}; its output is in {output}")]
    Failed {
        /// Name of the measurement.
        name: String,
        /// Exit status.
        status: std::process::ExitStatus,
        /// File with its output.
        output: PathBuf,
    },
}

impl Bundle {
    /// Runs a measurement unless its output exists.
    ///
    /// # Errors
    /// [`RunError`] if the command fails, or a file of the bundle cannot be written.
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
        // Left by an unfinished attempt.
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

    /// Returns the output of a measurement, or `None` if it has not run.
    #[must_use]
    pub fn printed(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.output(name)).ok()
    }

    /// Returns the result of a measurement, if it saved one.
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

    /// Returns the command, with a place for the result added to each comparison.
    fn asked(&self, measurement: &Measurement) -> String {
        let result = self.directory.join(&measurement.name);
        // Directly after the words, because a pipe or `||` may follow.
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
    fn output_is_kept_and_the_command_is_not_run_again() {
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

//! `forebay compare --from BUNDLE`: repeats the recorded command line with the files of the bundle.
//! Targets to write over, machine settings and the file to resume from are never taken from a
//! bundle: the user of this machine must give them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_lab::bundle::job_files_in;
use forebay_lab::manifest::JobFile;
use forebay_lab::schema::Document;
use forebay_lab::suite::own::OwnArm;
use forebay_lab::suite::{self, SHIPPED, Suite, job_file};
use forebay_lab::tuning::{QUEUE, SYSCTL, Tuning};

use crate::args::{self, CompareArgs, Parsed, Verb};
use crate::failure::Failure;
use crate::report;

/// A recorded comparison.
#[derive(Debug)]
pub(crate) struct Repeated {
    /// Its result.
    pub(crate) document: Document,
    /// Its job files, in order.
    job_files: Vec<PathBuf>,
}

/// Combines the recorded command line with the typed one. The directory, the target, the file to
/// resume from and the outputs are the typed ones. `--disk`, `--scratch`, `--cpus` and
/// `--max-writes` are the recorded ones unless they are typed.
pub(super) fn from_bundle(
    typed: CompareArgs,
    directory: &Path,
) -> Result<(CompareArgs, Repeated), Failure> {
    let refused = |why: String| Failure::usage(format!("--from {}: {why}", directory.display()));
    let document = report::read(directory)?;
    let words = document.manifest.command_line.iter().map(OsString::from);
    let not_such = || {
        refused("not a bundle of `forebay compare`; give the directory of its --bundle".to_owned())
    };
    let then = match args::parse(words).map_err(|_| not_such())? {
        Parsed::Typed(typed) => match typed.verb {
            Verb::Compare(then) => *then,
            _ => return Err(not_such()),
        },
        Parsed::Show(_) => return Err(not_such()),
    };
    let job_files = job_files_in(directory)
        .map_err(|error| refused(format!("cannot read job-files: {error}")))?;
    if job_files.is_empty() {
        return Err(refused("job-files is empty; give a complete bundle".to_owned()));
    }
    if let (Some(target), None) = (&then.target, &typed.target) {
        return Err(refused(format!(
            "it was taken with --target {}; give the --target of this machine (and --allow-write-device if it may be \
             written)",
            target.display()
        )));
    }
    confirm_arms(&then.own_arms, &typed.own_arms).map_err(refused)?;
    let device = then.scratch.as_deref().is_some_and(|spec| spec.contains("device="));
    if device && typed.scratch.is_none() {
        return Err(refused(
            "it made file systems on a device; give the --scratch of this machine".to_owned(),
        ));
    }
    // A name that is not a path stays, because it selects the form if no form is given.
    let suite = match &then.suite {
        Some(name) if is_path(name) => job_files.first().cloned(),
        other => other.clone(),
    };
    let again = CompareArgs {
        suite,
        seed: Some(document.manifest.seed.clone()),
        dir: typed.dir,
        target: typed.target,
        allow_write_device: typed.allow_write_device,
        disk: typed.disk.or(then.disk.clone()),
        scratch: typed.scratch.or(then.scratch.clone()),
        cpus: typed.cpus.or(then.cpus.clone()),
        max_writes: typed.max_writes.or(then.max_writes),
        resume: typed.resume,
        batching: typed.batching,
        json: typed.json,
        html: typed.html,
        bundle: typed.bundle,
        verbose: typed.verbose,
        from: None,
        ..then
    };
    Ok((again, Repeated { document, job_files }))
}

/// An arm that sets something of the machine runs only if it is typed here too; no other is.
fn confirm_arms(then: &[String], typed: &[String]) -> Result<(), String> {
    if let Some(other) = typed.iter().find(|arm| !then.contains(arm)) {
        return Err(format!(
            "--arm {other}: the bundle has no such arm; leave it out, or repeat one of the bundle unchanged"
        ));
    }
    let sets_the_machine = |arm: &&String| {
        let Ok(own) = arm.parse::<OwnArm>() else { return false };
        own.keys.iter().any(|(key, _)| key.starts_with(SYSCTL) || key.starts_with(QUEUE))
    };
    match then.iter().filter(sets_the_machine).find(|arm| !typed.contains(arm)) {
        Some(arm) => {
            Err(format!("one of its arms changes machine settings; add --arm {arm} to confirm"))
        }
        None => Ok(()),
    }
}

/// Reads those files as suites, in place of what their names mean to this program.
pub(super) fn suites(repeated: &Repeated) -> Result<Vec<Suite>, Failure> {
    let read = |path: &PathBuf| {
        let suite = match job_file::is_job_file(path) {
            // Keys without effect were reported when the file was first read.
            true => job_file::suite_called(&called(path), path, &mut io::sink()),
            false => suite::read(path),
        };
        let suite = suite.map_err(Failure::usage)?;
        confirm_suite(&suite, path)?;
        Ok(suite)
    };
    repeated.job_files.iter().map(read).collect()
}

/// A suite of a bundle may change only those machine settings that a shipped suite changes.
fn confirm_suite(suite: &Suite, path: &Path) -> Result<(), Failure> {
    let shipped = |known: &Tuning| {
        let suites = SHIPPED.iter().filter_map(|(name, _)| suite::find(Path::new(name)).ok());
        suites.into_iter().any(|suite| suite.needs().any(|tuning| tuning == known))
    };
    match suite.needs().find(|tuning| !shipped(tuning)) {
        Some(tuning) => Err(Failure::usage(format!(
            "{path}: it sets {tuning} on this machine; to accept that, run the suite itself with \
             `forebay compare {path}`",
            path = path.display()
        ))),
        None => Ok(()),
    }
}

/// Reads the job files of the request: the user's own file, or the shipped ones.
pub(super) fn job_files(typed: &CompareArgs, suites: &[Suite]) -> Result<Vec<JobFile>, Failure> {
    let own = typed.suite.as_deref().filter(|name| is_path(name));
    if let Some(path) = own {
        return Ok(vec![as_read(path)?]);
    }
    let shipped =
        suites.iter().filter_map(|suite| SHIPPED.iter().find(|(name, _)| *name == suite.name));
    Ok(shipped
        .map(|(name, text)| JobFile { name: format!("{name}.toml"), text: (*text).to_owned() })
        .collect())
}

impl Repeated {
    /// Its files, as they are read.
    pub(super) fn job_files(&self) -> Result<Vec<JobFile>, Failure> {
        self.job_files.iter().map(|path| as_read(path)).collect()
    }
}

fn as_read(path: &Path) -> Result<JobFile, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("{}: {error} (give a file that can be read)", path.display()))
    })?;
    Ok(JobFile { name: called(path), text })
}

/// The name a file had before it lay in a bundle.
fn called(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    unnumbered(&name).to_owned()
}

fn unnumbered(name: &str) -> &str {
    match name.split_once('-') {
        Some((number, rest))
            if number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest
        }
        _ => name,
    }
}

/// As [`forebay_lab::suite::find`] tells paths from names.
fn is_path(name: &Path) -> bool {
    let word = name.to_string_lossy();
    word.contains('/') || word.ends_with(".toml") || word.ends_with(".fio")
}

/// Whether what is planned here is as large as it was there; why not, if not.
pub(crate) fn check_size(
    then: &Document,
    part: &str,
    cell_bytes: Option<u64>,
) -> Result<(), Failure> {
    let Some(known) = then.parts.iter().find(|known| known.name == part) else { return Ok(()) };
    match (known.cell_bytes, cell_bytes) {
        (Some(then), Some(now)) if then != now => Err(Failure::failed(format!(
            "--from: each cell of {part} wrote {} MiB there, and here there is room for {} MiB (use --dir with more \
             space)",
            then >> 20,
            now >> 20
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use forebay_lab::manifest::Manifest;

    use super::super::{Command, CompareRequest, of};
    use super::*;

    /// A bundle as a stranger may have made it.
    fn bundle(job_file: (&str, &str), words: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("job-files")).unwrap();
        fs::write(directory.path().join("job-files").join(job_file.0), job_file.1).unwrap();
        let mut document = Document::new(Manifest::default(), "layout", Vec::new(), Vec::new());
        document.manifest.seed = "7f3a".into();
        document.manifest.command_line =
            ["forebay", "compare"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        document.write(&directory.path().join("result.json")).unwrap();
        directory
    }

    fn layout(words: &[&str]) -> tempfile::TempDir {
        let (_, text) = SHIPPED.iter().find(|(name, _)| *name == "layout").unwrap();
        bundle(("01-layout.toml", text), &[&["layout"], words].concat())
    }

    fn again(bundle: &Path, words: &[&str]) -> Result<CompareRequest, String> {
        let words = [&["forebay", "compare", "--from", bundle.to_str().unwrap()], words].concat();
        match args::parse(words.iter().map(Into::into)).and_then(of) {
            Ok(Command::Compare(request)) => Ok(*request),
            Ok(other) => panic!("{other:?}"),
            Err(Failure::Usage(what) | Failure::Failed(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_holds_and_what_is_of_another_machine_is_not_taken() {
        let rounds = tempfile::tempdir().unwrap();
        let there = rounds.path().join("rounds").to_str().unwrap().to_owned();
        let words = ["--resume", &there, "--batching", "--max-writes", "9g", "--cpus", "0"];
        let bundle = layout(&words);
        let plain = again(bundle.path(), &[]).unwrap();
        assert_eq!(plain.resume, None);
        assert_eq!(plain.batching, forebay_lab::batching::Batching::Off);
        assert_eq!(
            (plain.max_writes, plain.processors, plain.seed),
            (Some(9 << 30), vec![0], Some(0x7f3a))
        );
        let here = rounds.path().join("mine").to_str().unwrap().to_owned();
        let typed = ["--resume", &here, "--max-writes", "1g", "--batching"];
        let typed = again(bundle.path(), &typed).unwrap();
        assert_eq!(typed.resume.as_deref(), Some(Path::new(&here)));
        assert_eq!(typed.max_writes, Some(1 << 30));
        assert_eq!(typed.batching, forebay_lab::batching::Batching::Counted);
        assert!(
            again(bundle.path(), &["--arms", "forebay"])
                .unwrap_err()
                .contains("cannot be used with")
        );
    }

    #[test]
    fn an_arm_that_sets_the_machine_is_for_who_sits_there_to_say() {
        const SETS: &str = "mine=forebay,sysctl.kernel.modprobe=/tmp/x";
        let bundle = layout(&["--arm", SETS, "--arm", "other=forebay,flight=8"]);
        let refused = again(bundle.path(), &[]).unwrap_err();
        assert!(refused.contains(&format!("add --arm {SETS} to confirm")), "{refused}");
        assert!(again(bundle.path(), &["--arm", SETS]).is_ok());
        let more = again(bundle.path(), &["--arm", SETS, "--arm", "more=forebay"]).unwrap_err();
        assert!(
            more.contains("--arm more=forebay: the bundle has no such arm; leave it out"),
            "{more}"
        );
        let harmless = layout(&["--arm", "other=forebay,flight=8"]);
        assert!(again(harmless.path(), &[]).is_ok());
    }

    #[test]
    fn a_job_file_is_repeated_under_the_name_it_had() {
        let text = "[a]\nrw=write\nsize=1m\n";
        let bundle = bundle(("01-mine.fio", text), &["some/where/mine.fio"]);
        let request = again(bundle.path(), &[]).unwrap();
        let suite = &request.suites[0];
        assert_eq!((suite.name.as_str(), suite.parts[0].name.as_str()), ("mine", "mine"));
        assert!(suite.parts[0].has_workload("mine"));
        assert_eq!(
            (request.job_files[0].name.as_str(), request.job_files[0].text.as_str()),
            ("mine.fio", text)
        );
    }
}

//! `forebay compare --from BUNDLE`: what was typed there, once more, with the files that lie in it. What it would write
//! over is never taken from a bundle: that is for who sits at this machine to say.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use forebay_lab::bundle::job_files_in;
use forebay_lab::manifest::JobFile;
use forebay_lab::schema::Document;
use forebay_lab::suite::{SHIPPED, Suite};

use crate::args::{self, CompareArgs, Parsed, Verb};
use crate::failure::Failure;
use crate::report;

/// What is done again.
#[derive(Debug)]
pub(crate) struct Repeated {
    /// What came out then.
    pub(crate) document: Document,
    /// What was asked, in order.
    job_files: Vec<PathBuf>,
}

/// The words of a bundle in place of those typed, but for where files go, what may be written over, and the results.
pub(super) fn from_bundle(typed: CompareArgs, directory: &Path) -> Result<(CompareArgs, Repeated), Failure> {
    let refused = |why: String| Failure::usage(format!("--from {}: {why}", directory.display()));
    let document = report::read(directory)?;
    let words = document.manifest.command_line.iter().map(OsString::from);
    let not_such =
        || refused("it was not made by `forebay compare` (give the directory of its --bundle)".to_owned());
    let then = match args::parse(words).map_err(|_| not_such())? {
        Parsed::Typed(typed) => match typed.verb {
            Verb::Compare(then) => *then,
            _ => return Err(not_such()),
        },
        Parsed::Show(_) => return Err(not_such()),
    };
    let job_files = job_files_in(directory).map_err(|error| refused(format!("its job files: {error}")))?;
    if job_files.is_empty() {
        return Err(refused("it has no job files".to_owned()));
    }
    if let (Some(target), None) = (&then.target, &typed.target) {
        return Err(refused(format!(
            "it was taken with --target {}: say which it is here (give --target, and --allow-write-device if it may \
             be written over)",
            target.display()
        )));
    }
    let device = then.scratch.as_deref().is_some_and(|spec| spec.contains("device="));
    if device && typed.scratch.is_none() {
        return Err(refused(
            "it made file systems on a device: say on which here (give --scratch)".to_owned(),
        ));
    }
    // A name that is no path stays: it says which form is meant where none is given.
    let suite = match (&then.suite, &then.suite_file) {
        (Some(name), _) if !is_path(name) => Some(name.clone()),
        (Some(_), _) | (None, Some(_)) => job_files.first().cloned(),
        (None, None) => None,
    };
    let again = CompareArgs {
        suite,
        suite_file: None,
        seed: Some(document.manifest.seed.clone()),
        dir: typed.dir,
        target: typed.target,
        allow_write_device: typed.allow_write_device,
        scratch: typed.scratch.or(then.scratch.clone()),
        json: typed.json,
        html: typed.html,
        fio_json: typed.fio_json,
        bundle: typed.bundle,
        markdown: typed.markdown,
        host_name: typed.host_name,
        from: None,
        ..then
    };
    Ok((again, Repeated { document, job_files }))
}

/// Those files as suites, in place of what their names mean to this program.
pub(super) fn suites(
    repeated: &Repeated,
    read: impl Fn(&Path) -> Result<Suite, Failure>,
) -> Result<Vec<Suite>, Failure> {
    repeated.job_files.iter().map(|path| read(path)).collect()
}

/// The files of what is asked, as they are read: one's own, or those shipped.
pub(super) fn job_files(typed: &CompareArgs, suites: &[Suite]) -> Result<Vec<JobFile>, Failure> {
    let own = typed.suite.as_deref().filter(|name| is_path(name));
    if let Some(path) = typed.suite_file.as_deref().or(own) {
        return Ok(vec![job_file(path)?]);
    }
    let shipped = suites.iter().filter_map(|suite| SHIPPED.iter().find(|(name, _)| *name == suite.name));
    Ok(shipped
        .map(|(name, text)| JobFile { name: format!("{name}.toml"), text: (*text).to_owned() })
        .collect())
}

impl Repeated {
    /// Its files, as they are read.
    pub(super) fn job_files(&self) -> Result<Vec<JobFile>, Failure> {
        self.job_files.iter().map(|path| job_file(path)).collect()
    }
}

fn job_file(path: &Path) -> Result<JobFile, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("{}: {error} (give a file that can be read)", path.display()))
    })?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(JobFile { name: unnumbered(&name).to_owned(), text })
}

/// The name it had before it lay in a bundle.
fn unnumbered(name: &str) -> &str {
    match name.split_once('-') {
        Some((number, rest)) if number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => name,
    }
}

/// As [`forebay_lab::suite::find`] tells paths from names.
fn is_path(name: &Path) -> bool {
    let word = name.to_string_lossy();
    word.contains('/') || word.ends_with(".toml") || word.ends_with(".fio")
}

/// Whether what is planned here is as large as it was there; why not, if not.
pub(crate) fn check_size(then: &Document, part: &str, cell_bytes: Option<u64>) -> Result<(), Failure> {
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

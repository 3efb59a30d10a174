//! `forebay recover`: writes data that is not in its files after a crash, of the intent log of a
//! directory, or of an image that a keeper saved.

use std::path::{Path, PathBuf};

use forebay::intent_log::{self, Ask, Fate, Mode};
use forebay::keeper::image::{self, Recovered, Run};
use forebay::{Error, ErrorKind};

use crate::failure::Failure;
use crate::output::print;

/// A recovery to make.
#[derive(Debug)]
pub(crate) struct Request {
    /// Directory with a log, or image.
    pub(crate) path: PathBuf,
    /// Whether to write.
    pub(crate) run: Run,
    /// Directory for bytes of a log that may not be put into their file.
    pub(crate) save: Option<PathBuf>,
}

/// Writes the data, or reports the writes that it would make, one line per file.
pub(crate) fn recover(request: &Request) -> Result<(), Failure> {
    if request.path.is_dir() {
        return of_log(request);
    }
    if request.save.is_some() {
        return Err(Failure::usage("--save is for the intent log of a directory"));
    }
    of_image(&request.path, request.run)
}

fn of_log(Request { path, run, save }: &Request) -> Result<(), Failure> {
    let mode = match run {
        Run::Real => Mode::Real,
        Run::Dry => Mode::Dry,
    };
    let ask = Ask { mode, save: save.clone(), ..Ask::default() };
    let recovery = intent_log::recover(path, &ask).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::Unsupported => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    let lines = recovery.files.iter().map(|file| of_file(file, mode));
    let mut text: String = lines.collect();
    if recovery.is_empty || recovery.files.is_empty() {
        text += &format!("{}: the intent log is empty; its files can be opened\n", path.display());
    }
    print(&text)?;
    let is_settled = |fate: &Fate| {
        matches!(fate, Fate::InPlace | Fate::Deleted | Fate::Skipped { saved: Some(_), .. })
    };
    let kept = recovery.files.iter().filter(|file| !is_settled(&file.fate));
    match kept.count() {
        0 => Ok(()),
        kept => Err(Failure::failed(format!(
            "the intent log keeps records of {kept} file{}; the lines above name the reasons, and \
             no program may open the files yet",
            if kept == 1 { "" } else { "s" }
        ))),
    }
}

fn of_file(file: &intent_log::Recovered, mode: Mode) -> String {
    let (path, bytes) = (file.path.display(), file.bytes);
    match &file.fate {
        Fate::InPlace if bytes == 0 => format!("{path}: nothing to do\n"),
        Fate::InPlace if mode == Mode::Dry => format!("{path}: {bytes} bytes can be put back\n"),
        Fate::InPlace => format!("{path}: {bytes} bytes put back and synced\n"),
        Fate::Deleted if mode == Mode::Dry => {
            format!("{path}: the file was removed; {bytes} bytes would be dropped\n")
        }
        Fate::Deleted => format!("{path}: the file was removed; {bytes} bytes dropped\n"),
        Fate::Skipped { reason, saved: Some(saved) } => {
            format!("{path}: {reason}; {bytes} bytes saved to {}\n", saved.display())
        }
        Fate::Skipped { reason, saved: None } => {
            format!("{path}: {reason}; {bytes} bytes can be saved with --save DIR\n")
        }
        // It begins with the path.
        Fate::Kept(error) => format!("{error}; {bytes} bytes were not put back\n"),
        fate => format!("{path}: {fate:?}\n"),
    }
}

fn of_image(image: &Path, run: Run) -> Result<(), Failure> {
    let files = image::recover(image, run).map_err(|error: Error| match error.kind() {
        ErrorKind::InvalidInput => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    print(&lines(&files, run))?;
    match files.iter().filter(|file| file.result.is_err()).count() {
        0 => Ok(()),
        1 => Err(Failure::failed("1 file was not written; the lines above name it and the reason")),
        failed => Err(Failure::failed(format!(
            "{failed} files were not written; the lines above name them and the reasons"
        ))),
    }
}

fn lines(files: &[Recovered], run: Run) -> String {
    let done = match run {
        Run::Real => "written and synced",
        Run::Dry => "can be written",
    };
    let line = |file: &Recovered| match &file.result {
        Ok(()) => format!("{}: {} bytes {done}\n", file.path.display(), file.bytes),
        // It begins with the path.
        Err(error) => format!("{error}; {} bytes were not written\n", file.bytes),
    };
    if files.is_empty() {
        return "nothing to write: the image holds no unwritten data\n".to_owned();
    }
    files.iter().map(line).collect()
}

//! `forebay recover`: writes the data that a keeper could not write and saved to an image.

use std::path::Path;

use forebay::keeper::image::{self, Recovered, Run};

use crate::failure::Failure;
use crate::output::print;

/// Writes the data of an image, or reports the writes that it would make, one line per file.
pub(crate) fn recover(image: &Path, run: Run) -> Result<(), Failure> {
    let files = match image::recover(image, run) {
        Ok(files) => files,
        Err(error) if error.kind() == forebay::ErrorKind::InvalidInput => {
            return Err(Failure::usage(error));
        }
        Err(error) => return Err(Failure::failed(error)),
    };
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

//! The outputs besides the terminal and `--json`: a page and a bundle. A path that cannot be written
//! is refused before anything runs.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use forebay_lab::bundle;
use forebay_lab::report;
use forebay_lab::schema::Document;
use forebay_lab::whole_file;

use crate::failure::Failure;

/// Files to write when the result is complete.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    html: Option<PathBuf>,
    bundle: Option<PathBuf>,
}

impl Outputs {
    /// As it was typed, if it can be written.
    pub(crate) fn meant(html: Option<PathBuf>, bundle: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = &html {
            file(path)
                .map_err(|why| Failure::usage(format!("--html {}: {why}", path.display())))?;
        }
        if let Some(directory) = bundle {
            bundle::check(directory)
                .map_err(|error| Failure::usage(format!("--bundle {error}")))?;
        }
        Ok(Self { html, bundle: bundle.map(Path::to_owned) })
    }

    /// Writes all of it.
    pub(crate) fn write(&self, document: &Document) -> Result<(), Failure> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| {
                Failure::failed(format!(
                    "cannot write {path}: {error}; free some space or choose another path"
                ))
            }
        };
        if let Some(path) = &self.html {
            let page = report::html(document);
            whole_file::write(path, |mut file| file.write_all(page.as_bytes()))
                .map_err(failed(path))?;
        }
        if let Some(directory) = &self.bundle {
            bundle::write(directory, document).map_err(failed(directory))?;
        }
        Ok(())
    }
}

/// Why no file can be written there.
pub(crate) fn file(path: &Path) -> Result<(), String> {
    if path.is_dir() || path.file_name().is_none() {
        return Err("is a directory; name a file in it".to_owned());
    }
    match fs::metadata(whole_file::directory_of(path)) {
        Ok(data) if data.is_dir() => whole_file::may_be_written(path)
            .map_err(|error| format!("{error}; name a file in a writable directory")),
        Ok(_) => Err("not in a directory; name a file in an existing directory".to_owned()),
        Err(error) => Err(format!("{error}; name a file in an existing directory")),
    }
}

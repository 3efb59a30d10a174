//! The pages of the project that show figures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::answer::{AnswerError, Answers};
use crate::document::{DocumentError, Marker, with_figures};
use crate::figure::Blocks;
use crate::list::{List, ListError};
use crate::question::{QuestionError, Questions};

/// Directory of the lists and of all pages with measured blocks except the README.
pub const MEASUREMENTS: &str = "docs/measurements";

/// Page that answers the threads of the kernel lists.
pub const QUESTIONS: &str = "docs/kernel-questions.md";

/// Why the page of answers cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A file could not be read.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The list of measurements is invalid.
    #[error("measurements.toml: {0}")]
    List(#[from] ListError),
    /// The questions are invalid.
    #[error("questions.toml: {0}")]
    Questions(#[from] QuestionError),
    /// A page has an invalid marker.
    #[error("{page}: {source}")]
    Document {
        /// The page.
        page: String,
        /// Cause.
        source: DocumentError,
    },
    /// A table cannot be made.
    #[error("{QUESTIONS}: {0}")]
    Answer(#[from] AnswerError),
}

/// Returns the paths of all pages with measured blocks except the README, in order.
///
/// # Errors
/// The error of the directory.
pub fn measured(project: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(project.join(MEASUREMENTS))?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    Ok(paths)
}

/// Returns the present and the new text of the page that answers the threads. The new text has our
/// figures from the blocks that stand on the other pages now.
///
/// # Errors
/// [`PageError`] if a page or list cannot be read, or a figure is on no page.
pub fn answered(project: &Path) -> Result<(String, String), PageError> {
    let read = |path: &Path| {
        let failed = |source| PageError::File { path: path.to_owned(), source };
        fs::read_to_string(path).map_err(failed)
    };
    let data = project.join(MEASUREMENTS);
    let list = List::parse(&read(&data.join("measurements.toml"))?)?;
    let questions = Questions::parse(&read(&data.join("questions.toml"))?)?;
    let mut blocks = Blocks::default();
    let failed = |page: &str| {
        let page = page.to_owned();
        move |source| PageError::Document { page, source }
    };
    let pages = measured(project).map_err(|source| PageError::File { path: data, source })?;
    for path in pages {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        blocks.add(&name, &read(&path)?).map_err(failed(&name))?;
    }
    let answers = Answers { questions: &questions, blocks: &blocks, list: &list };
    let old = read(&project.join(QUESTIONS))?;
    let mut first_error = None;
    let new = with_figures(&old, |marker| match marker {
        Marker::Questions { part, thread } => match answers.table(*part, thread) {
            Ok(table) => Some(table),
            Err(error) => {
                first_error.get_or_insert(error);
                None
            }
        },
        Marker::Measured { .. } | Marker::Aims(_) | Marker::Disks { .. } => None,
    });
    let new = new.map_err(failed(QUESTIONS))?;
    match first_error {
        Some(error) => Err(error.into()),
        None => Ok((old, new)),
    }
}

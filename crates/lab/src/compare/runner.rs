//! How a comparison has a cell run. The runner chooses the process and how to end it.

use crate::cell::{Cell, CellResult};

pub trait CellRunner {
    /// Runs one to its end. Returns [`RunError::Interrupted`] soon after the user wanted it to end,
    /// with nothing left running that could write into the cell's directory.
    fn run(&mut self, cell: &Cell) -> Result<CellResult, RunError>;
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// This kernel, file system or kind of file does not do what the arm needs; the reason, with a
    /// remedy.
    #[error("{0}")]
    Refused(String),
    /// It went wrong: an I/O error, a wrong byte, a process that died.
    #[error("{0}")]
    Failed(String),
    #[error("interrupted")]
    Interrupted,
}

impl<F> CellRunner for F
where
    F: FnMut(&Cell) -> Result<CellResult, RunError>,
{
    fn run(&mut self, cell: &Cell) -> Result<CellResult, RunError> {
        self(cell)
    }
}

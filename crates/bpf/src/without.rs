//! [`Counting`] of a build without the programs.

use std::convert::Infallible;
use std::io;

use crate::counter::{Counter, Counts};
use crate::place::{Place, Ring};

const NOT_BUILT: &str = "not counted: this program was built without BPF programs";

/// Nothing can be counted, so there is no value of it.
#[derive(Debug)]
pub struct Counting(Infallible);

impl Counting {
    /// Refuses to count.
    ///
    /// # Errors
    /// Always, with the reason.
    pub fn start(_: Place<'_>, _: Ring) -> Result<(Self, Vec<String>), String> {
        Err(NOT_BUILT.to_owned())
    }

    /// Refuses to count.
    ///
    /// # Errors
    /// Always, with the reason.
    pub fn start_one(_: Counter, _: Place<'_>) -> Result<Self, String> {
        Err(NOT_BUILT.to_owned())
    }

    /// Returns counts of a value that cannot be.
    ///
    /// # Errors
    /// None.
    pub fn read(&self) -> io::Result<Counts> {
        match self.0 {}
    }
}

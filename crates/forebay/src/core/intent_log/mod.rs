//! The intent log of a directory: the file, the marks, and recovery.
//!
//! The format is in the crate `forebay-log`, which opens no file.

pub(crate) mod create;
mod durable;
pub(crate) mod file;
mod heads;
pub(crate) mod marks;
pub(crate) mod promise;
pub(crate) mod recover;

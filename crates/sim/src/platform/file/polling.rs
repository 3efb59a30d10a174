//! Polling for completions, which the simulated device does not have.

use super::OpenFile;

impl OpenFile {
    /// As `forebay_uring::OpenFile::poll`.
    ///
    /// # Errors
    /// Always: the simulated device does not poll.
    pub fn poll(&self) -> Result<(), String> {
        Err("the simulated device has no queue for polling".into())
    }

    /// As `forebay_uring::OpenFile::is_polled`.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        false
    }
}

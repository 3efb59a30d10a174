//! The end of the server on io_uring: all requests are cancelled and waited for.

use std::io;
use std::mem;
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};

use super::{Kind, RingServer, is_passing};

/// Longest wait for the requests in flight.
const GOODBYE: Duration = Duration::from_secs(1);

impl RingServer {
    /// Cancels all requests, and waits for them until the deadline.
    fn wait_out(&mut self) -> io::Result<()> {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build();
        self.push(&cancel.user_data(Kind::Cancel.word(0)));
        let deadline = Instant::now() + GOODBYE;
        let mut completions = Vec::new();
        while self.in_flight > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = Timespec::from(left);
            let arguments = SubmitArgs::new().timespec(&left);
            match self.uring.0.submitter().submit_with_args(1, &arguments) {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
            self.take(&mut completions);
            completions.clear();
        }
        Ok(())
    }
}

impl Drop for RingServer {
    fn drop(&mut self) {
        if self.wait_out().is_err() {
            mem::forget(self.buffers.take());
            mem::forget(mem::take(&mut self.connections));
        }
    }
}

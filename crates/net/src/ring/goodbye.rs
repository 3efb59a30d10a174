//! The end of the ring: all requests are cancelled and waited for, up to a deadline. The memory of
//! those that do not end by then is leaked.

use std::mem::ManuallyDrop;
use std::thread;
use std::time::{Duration, Instant};

use forebay_block::Errno;
use io_uring::opcode;
use rustix::net::{Shutdown, shutdown};

use super::{Going, Kind, NOBODY, SocketRing};

/// Longest wait for requests in flight when the ring is dropped.
const GOODBYE: Duration = Duration::from_secs(1);

impl SocketRing {
    /// Cancels everything, and waits up to the deadline.
    fn wait_out(&mut self) -> Result<(), Errno> {
        let of_listeners = self.listeners.iter().flatten();
        let accepts = of_listeners.filter(|(_, listening)| listening.accept == Going::Yes);
        let mut words: Vec<u64> = accepts.map(|(key, _)| Kind::Accept.word(*key)).collect();
        let of_connections = self.connections.iter().flatten();
        for (key, connected) in of_connections.filter(|(_, connected)| !connected.closing) {
            let receive = (connected.receive == Going::Yes).then_some(Kind::Receive);
            let send = connected.send.as_ref().map(|_| Kind::Send);
            let kinds = receive.into_iter().chain(send);
            words.extend(kinds.map(|kind| kind.word(*key)));
        }
        for word in words {
            let cancel = opcode::AsyncCancel::new(word).build();
            self.staged.push_back(cancel.user_data(Kind::Cancel.word(NOBODY)));
        }
        let deadline = Instant::now() + GOODBYE;
        let mut arrivals = Vec::new();
        while self.under_way > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.submit(1, Some(left))?;
            self.reap(&mut arrivals);
            arrivals.clear();
        }
        Ok(())
    }

    /// Leaks the memory that the kernel may still use. The kernel uses the sockets beyond their
    /// descriptors, so they are shut down, which their peers notice. Sends are freed only by their
    /// completion anyway.
    fn leak(&mut self) {
        self.provided.take().expect("dropped once").leak();
        for (_, connected) in self.connections.iter().flatten() {
            let _ = shutdown(&connected.socket, Shutdown::Both);
        }
        for (_, listening) in self.listeners.iter().flatten() {
            let _ = shutdown(&listening.socket, Shutdown::Both);
        }
    }
}

impl Drop for SocketRing {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A forked child did not inherit the queues, and the requests in flight are its
            // parent's. The boxes of sends are leaked.
            return;
        }
        let here = self.thread.is_none_or(|thread| thread::current().id() == thread);
        if here && self.under_way > 0 {
            // Staged requests are submitted and then cancelled. That is simpler than taking them
            // back, and the ring may never have been entered.
            if let Err(error) = self.wait_out() {
                tracing::error!(%error, "could not wait for the requests in flight");
            }
        }
        if self.under_way > 0 {
            self.leak();
        }
        if here {
            self.setup.door.unregister();
        }
        // SAFETY: nothing uses the ring after its drop.
        unsafe { ManuallyDrop::drop(&mut self.setup) };
    }
}

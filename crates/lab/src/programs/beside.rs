//! Writers beside a program that syncs a little.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use procfs::process::Process;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::stage::content;
use super::store::{Handle, How, Store};
use crate::load::error::{CellError, Context};
use crate::load::kernel::write_behind;

const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes after which the standard library's bulk writer starts writeback and waits for that of the
/// window before. A larger window makes the small syncs wait longer.
const WINDOW_BYTES: u64 = 8 << 20;

/// A thread that writes a file in order, again and again, as fast as it can.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Writer {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn run(&self, store: &Store, path: &Path, file_bytes: u64) -> Result<(), CellError> {
        let file = store.open(path, How::Write)?;
        let data = content(BLOCK_BYTES as usize, file_bytes);
        for block in 0_u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let offset = block * BLOCK_BYTES % file_bytes;
            file.write_at(&data, offset)?;
            self.bytes.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
            if let Handle::Std { file, path } = &file
                && (offset + BLOCK_BYTES).is_multiple_of(WINDOW_BYTES)
            {
                write_behind(file).context_at("cannot write behind", path)?;
            }
        }
        file.close()
    }
}

/// `dd`, started again whenever it ends. It is killed when this is dropped.
pub(crate) struct Dd {
    running: Arc<Mutex<Running>>,
    /// Disconnected once the file has been written.
    first: mpsc::Receiver<()>,
    /// Bytes written by those that have ended.
    ended_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

enum Running {
    Child(Child),
    Stopped,
}

impl Dd {
    pub(crate) fn start(path: &Path, file_bytes: u64) -> Result<Self, CellError> {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=1M", "conv=notrunc", "status=none"]);
        command.arg(format!("of={}", path.display()));
        command.arg(format!("count={}", file_bytes >> 20));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        let child =
            child.map_err(|error| CellError::unavailable(format!("cannot start dd: {error}")))?;
        let mut process = Pid::from_child(&child);
        let running = Arc::new(Mutex::new(Running::Child(child)));
        let ended_bytes = Arc::new(AtomicU64::new(0));
        let (shared, ended) = (Arc::clone(&running), Arc::clone(&ended_bytes));
        let (first_sender, first) = mpsc::channel();
        let mut first_sender = Some(first_sender);
        let thread = thread::spawn(move || {
            loop {
                // Without the lock, and so that the number stays the child's.
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                if waitid(WaitId::Pid(process), options).is_err() {
                    return;
                }
                drop(first_sender.take());
                let mut running = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let Running::Child(child) = &mut *running else { return };
                ended.fetch_add(written_by(child), Ordering::Relaxed);
                let _ = child.wait();
                match command.spawn() {
                    Ok(next) => *child = next,
                    Err(_) => return,
                }
                process = Pid::from_child(child);
            }
        });
        Ok(Self { running, first, ended_bytes, thread: Some(thread) })
    }

    /// Waits until `dd` has written its whole file once. Before, the kernel may not have begun to
    /// write back: that depends on how fast the first use of each page of memory is.
    pub(crate) fn wait_for_file(&self) {
        // Nothing is sent: this returns when the sender is dropped.
        let _ = self.first.recv();
    }

    pub(crate) fn bytes(&self) -> u64 {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let by_running = match &*running {
            Running::Child(child) => written_by(child),
            Running::Stopped => 0,
        };
        self.ended_bytes.load(Ordering::Relaxed) + by_running
    }
}

/// Returns the bytes that a child has passed to `write`; also of one that has ended and was not
/// waited for.
fn written_by(child: &Child) -> u64 {
    let io = Process::new(child.id().cast_signed()).and_then(|process| process.io());
    io.map_or(0, |io| io.wchar)
}

impl Drop for Dd {
    fn drop(&mut self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Running::Child(mut child) = std::mem::replace(&mut *running, Running::Stopped) {
            let _ = child.kill();
            drop(running);
            // The thread waits for the same child and leaves it there.
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn dd_goes_on_beyond_the_end_of_its_file_and_counts_all_runs() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("large");
        let dd = Dd::start(&path, BLOCK_BYTES).unwrap();
        let began = Instant::now();
        while dd.bytes() < 4 * BLOCK_BYTES {
            assert!(began.elapsed() < Duration::from_secs(60), "{} bytes", dd.bytes());
            thread::sleep(Duration::from_millis(1));
        }
        drop(dd);
        assert_eq!(fs::metadata(&path).unwrap().len(), BLOCK_BYTES);
    }
}

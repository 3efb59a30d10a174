//! Writers beside a program that syncs a little.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{Advice, fadvise};

use super::probes::content;
use super::store::{Handle, How, Store};
use crate::load::CellError;
use crate::load::window::write_behind;

const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes after which the standard library's bulk writer starts writeback and waits for that of the
/// window before. A larger window makes the small syncs wait longer.
const WINDOW_BYTES: u64 = 8 << 20;

/// A thread that writes a file in order, again and again, as fast as it can.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Writer {
    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Writes until it is stopped.
    pub(super) fn run(&self, store: &Store, path: &Path, file_bytes: u64) -> Result<(), CellError> {
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
                behind(file).map_err(|error| CellError::io("cannot write behind", path, &error))?;
            }
        }
        file.close()
    }
}

fn behind(file: &File) -> std::io::Result<()> {
    write_behind(file)?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// `dd`, started again whenever it ends. It is killed when this is dropped.
pub(super) struct Dd {
    stop: Arc<AtomicBool>,
    running: Arc<Mutex<Child>>,
    thread: Option<JoinHandle<()>>,
}

impl Dd {
    pub(super) fn start(path: &Path, file_bytes: u64) -> Result<Self, CellError> {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=1M", "conv=notrunc", "status=none"]);
        command.arg(format!("of={}", path.display()));
        command.arg(format!("count={}", file_bytes >> 20));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        let child =
            child.map_err(|error| CellError::unavailable(format!("cannot start dd: {error}")))?;
        let (stop, running) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(child)));
        let (thread_stop, thread_running) = (Arc::clone(&stop), Arc::clone(&running));
        let thread = thread::spawn(move || {
            while !thread_stop.load(Ordering::Relaxed) {
                let mut child = thread_running.lock().unwrap_or_else(PoisonError::into_inner);
                match child.try_wait() {
                    Ok(Some(_)) => match command.spawn() {
                        Ok(next) => *child = next,
                        Err(_) => return,
                    },
                    Ok(None) => {}
                    Err(_) => return,
                }
                drop(child);
                thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        Ok(Self { stop, running, thread: Some(thread) })
    }
}

impl Drop for Dd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut child = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

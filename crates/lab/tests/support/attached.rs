//! Loop devices that are attached to files of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the devices that are attached.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// The longest wait until a device is detached.
const WITHIN: Duration = Duration::from_secs(30);

/// Returns the paths of the files in a directory, or below it, that loop devices are attached to.
pub(crate) fn attached_below(directory: &Path) -> Vec<PathBuf> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files =
        devices.filter_map(|one| fs::read_to_string(one.path().join("loop/backing_file")).ok());
    let files = files.map(|file| PathBuf::from(file.trim_end()));
    files.filter(|file| file.starts_with(&directory)).collect()
}

/// Waits until no loop device is attached below a directory. A device goes with its last opener:
/// the last process of a mount namespace, or one that was started and does not run its program yet.
#[allow(dead_code, reason = "not every test that looks waits")]
pub(crate) fn assert_detached(directory: &Path) {
    let until = Instant::now() + WITHIN;
    while !attached_below(directory).is_empty() {
        assert!(Instant::now() < until, "a loop device is left");
        thread::sleep(BETWEEN_LOOKS);
    }
}

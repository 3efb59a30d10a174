//! Sources that are full or fail, and machines that cannot mount: the caller gets the error, and
//! nothing acknowledged is lost.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{FOREBAY, Place, bytes, forebay, run};

/// A file system of its own on a loop device; unmounted when dropped.
pub(crate) struct Volume(PathBuf);

impl Volume {
    /// Makes one over an image or a device that exists.
    fn new(image: &Path, at: &Path) -> Self {
        // Without a journal: one that cannot be written makes the file system read-only.
        let maker = ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal"];
        Self::made_by(&maker, image, at)
    }

    pub(crate) fn made_by(maker: &[&str], image: &Path, at: &Path) -> Self {
        let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
        done(&[maker, &[image]].concat());
        done(&["mount", "-o", "loop", image, at]);
        Self(at.into())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // After a failed test the mount over it may be there still.
        let unmount = |option| Command::new("umount").args(option).arg(&self.0).status();
        let plain: &[&str] = &[];
        if !unmount(plain).is_ok_and(|status| status.success()) {
            let _ = unmount(&["-l"]);
        }
    }
}

pub(crate) fn done(words: &[&str]) {
    let (code, _, err) = run(words);
    assert_eq!(code, Some(0), "{words:?}: {err}");
}

/// Writes a file in pieces until an error. Returns the bytes that were accepted.
fn fill(path: &Path, most: usize) -> (usize, io::Result<()>) {
    const PIECE: usize = 10_000;
    let content = bytes(most);
    let file = match File::create(path) {
        Ok(file) => file,
        Err(error) => return (0, Err(error)),
    };
    for (number, piece) in content.chunks(PIECE).enumerate() {
        if let Err(error) = file.write_all_at(piece, (number * PIECE) as u64) {
            return (number * PIECE, Err(error));
        }
    }
    (most, Ok(()))
}

#[test]
fn a_full_source_refuses_writes_and_keeps_what_it_accepted() {
    let Some(place) = Place::new() else { return };
    let image = place.directory.path().join("image");
    File::create(&image).unwrap().set_len(24 << 20).unwrap();
    let volume = Volume::new(&image, &place.source);
    place.mount(&[]);
    let mut accepted = Vec::new();
    let mut refused = 0;
    // Small files, and one that is in the engine.
    for (number, most) in [20_000_000].into_iter().chain([50_000; 200]).enumerate() {
        let name = format!("{number}");
        let (wrote, result) = fill(&place.mount.join(&name), most);
        if let Err(error) = result {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{number}: {error}");
            refused += 1;
        }
        accepted.push((name, wrote, most));
    }
    assert!(refused > 0, "the source did not become full");
    place.unmount();
    for (name, wrote, most) in accepted {
        let found = fs::read(place.source.join(&name)).unwrap_or_default();
        assert!(found.len() >= wrote, "{name}: {} of {wrote} bytes", found.len());
        assert!(found[..wrote] == bytes(most)[..wrote], "{name}: other bytes");
    }
    assert_eq!(place.log(), "");
    drop(volume);
}

#[test]
fn the_unmount_flushes_file_systems_inside_of_the_source_also_below_a_renamed_directory() {
    let Some(place) = Place::new() else { return };
    let image = place.directory.path().join("image");
    let (above, renamed) = (place.source.join("above"), place.source.join("renamed"));
    File::create(&image).unwrap().set_len(24 << 20).unwrap();
    fs::create_dir_all(above.join("inside")).unwrap();
    let mut volume = Volume::new(&image, &above.join("inside"));
    place.mount(&[]);
    let text = "text\n".repeat(1000);
    fs::write(place.mount.join("above/inside/file"), &text).unwrap();
    fs::rename(&above, &renamed).unwrap();
    volume.0 = renamed.join("inside");
    place.unmount();
    // Its disk, beside the file system that is mounted.
    let (_, found, err) = run(&["debugfs", "-R", "cat /file", image.to_str().unwrap()]);
    assert!(found == text, "{} bytes are on the disk: {err}", found.len());
    drop(volume);
}

/// A disk whose writes fail while a file is there: nbdkit, shown as a file by nbdfuse.
struct Disk {
    server: Child,
    shown: Child,
    point: PathBuf,
    failing: PathBuf,
}

impl Disk {
    fn new(directory: &Path) -> Option<Self> {
        let missing =
            |program: &&&str| run(&["sh", "-c", &format!("command -v {program}")]).0 != Some(0);
        if let Some(program) = ["nbdkit", "nbdfuse"].iter().find(missing) {
            let is_ci = std::env::var_os("CI").is_some();
            assert!(!is_ci, "there is no {program}");
            eprintln!("skipped: there is no {program}");
            return None;
        }
        let (image, failing) = (directory.join("disk"), directory.join("failing"));
        let (socket, point) = (directory.join("socket"), directory.join("device"));
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(&point).unwrap();
        let server = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--filter=error", "--unix"])
            .arg(&socket)
            .arg("file")
            .arg(&image)
            .args(["error=EIO", "error-pwrite-rate=100%"])
            .arg(format!("error-file={}", failing.display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually(|| socket.exists());
        let shown = Command::new("nbdfuse")
            .arg(point.join("disk"))
            .arg("--unix")
            .arg(&socket)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let disk = Self { server, shown, point, failing };
        eventually(|| disk.file().exists());
        Some(disk)
    }

    fn file(&self) -> PathBuf {
        self.point.join("disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        for child in [&mut self.server, &mut self.shown] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Unmounts. The kernel reports a failure once to each descriptor, also to those of the mount: an
/// unmount that finds one before it begins leaves the mount, and a later one reports it at its end.
fn unmount_after_failures(place: &Place) {
    let unmounted = (0..25).any(|_| {
        std::thread::sleep(Duration::from_millis(200));
        let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
        code == Some(0) || err.contains("is not a mount point")
    });
    assert!(unmounted, "{}", place.log());
}

fn eventually(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_failing_disk_fails_syncs_and_gets_everything_once_it_works_again() {
    let Some(place) = Place::new() else { return };
    let Some(disk) = Disk::new(place.directory.path()) else { return };
    let volume = Volume::new(&disk.file(), &place.source);
    place.mount(&[]);
    let path = |name: &str| place.mount.join(name);
    // Blocks and names are there before, so that the journal has nothing to write.
    let (small, large) = (bytes(10_000), bytes(500_000));
    let files = [("small", &small), ("large", &large)];
    for (name, content) in files {
        fs::write(path(name), vec![1; content.len()]).unwrap();
        File::open(path(name)).unwrap().sync_all().unwrap();
    }
    done(&["sync", "-f", place.source.to_str().unwrap()]);
    let open = files.map(|(name, _)| File::options().write(true).open(path(name)).unwrap());
    File::create(&disk.failing).unwrap();
    for (file, (name, content)) in open.iter().zip(files) {
        file.write_all_at(content, 0).unwrap();
        let error = file.sync_data().expect_err(name);
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}: {error}");
    }
    drop(open);
    let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("stays mounted"), "{err}");
    fs::remove_file(&disk.failing).unwrap();
    for (name, content) in files {
        assert!(fs::read(path(name)).unwrap() == *content, "{name}");
    }
    unmount_after_failures(&place);
    for (name, content) in files {
        assert!(fs::read(place.source.join(name)).unwrap() == *content, "{name}");
    }
    drop(volume);
}

#[test]
fn a_failed_flush_fails_no_sync_after_the_last_close() {
    let Some(place) = Place::new() else { return };
    let Some(disk) = Disk::new(place.directory.path()) else { return };
    let volume = Volume::new(&disk.file(), &place.source);
    place.mount(&[]);
    let (path, content) = (place.mount.join("file"), bytes(500_000));
    fs::write(&path, vec![1; content.len()]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let flush_fails = |_| {
        file.write_all_at(&content, 0).unwrap();
        // The engine writes its pages. The flush has to write its inode, unless the kernel has.
        std::thread::sleep(Duration::from_secs(3));
        File::create(&disk.failing).unwrap();
        let error = file.sync_all().err();
        if error.is_none() {
            fs::remove_file(&disk.failing).unwrap();
        }
        error
    };
    let error = (0..5).find_map(flush_fails).expect("the flush has something to write");
    let again = file.sync_all().unwrap_err();
    assert_eq!([error, again].map(|error| error.raw_os_error()), [Some(libc::EIO); 2]);
    fs::remove_file(&disk.failing).unwrap();
    drop(file);
    let goes_on = || {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&content, 0).unwrap();
        file.sync_all().is_ok()
    };
    let begin = Instant::now();
    while !goes_on() {
        assert!(begin.elapsed() < Duration::from_secs(10), "a program that tries again fails");
        std::thread::sleep(Duration::from_millis(500));
    }
    unmount_after_failures(&place);
    assert!(fs::read(place.source.join("file")).unwrap() == content);
    drop(volume);
}

#[test]
fn without_the_device_of_fuse_the_reason_is_one_line() {
    let Some(place) = Place::new() else { return };
    let (source, mount) = (place.source.to_str().unwrap(), place.mount.to_str().unwrap());
    for (hides, expected, code) in [
        ("mount -t tmpfs none /dev", "/dev/fuse: does not exist", 2),
        ("mount --bind /dev/null /dev/fuse", "could not mount", 1),
        (
            "mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse",
            "/dev/fuse: this process has no right to open it",
            2,
        ),
    ] {
        let script = format!("{hides} && exec {FOREBAY} mount {source} {mount}");
        let (found, _, err) = run(&["unshare", "-m", "sh", "-c", &script]);
        assert_eq!(found, Some(code), "{hides}: {err}");
        assert!(err.contains(expected) && err.trim_end().lines().count() == 1, "{hides}: {err}");
    }
}

//! Disks that charge: their price is measured again, and nothing of them is left, however the
//! comparison ends.

#[path = "../../lab/tests/support/attached.rs"]
mod attached;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use attached::attached_below;
use forebay_lab::loop_device::LoopDevice;

fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Whether this user can make a disk; in continuous integration root has to be able to.
fn can_make_disks(test: &str) -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    let can = id.stdout == b"0\n" && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped {test}: a disk needs root, and FUSE");
    }
    can
}

/// Processes that serve a disk, and loop devices and mounts below a directory.
fn left(directory: &Path) -> Vec<String> {
    let inside = |path: &str| path.contains(directory.to_str().unwrap());
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let mounts = fs::read_to_string(entry.path().join("mountinfo")).ok()?;
        (line.contains("__disk") && inside(&mounts)).then_some(line)
    });
    let devices = attached_below(directory).into_iter().map(|file| file.display().to_string());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts: Vec<String> =
        mounts.lines().filter(|line| inside(line)).map(str::to_owned).collect();
    processes.chain(devices).chain(mounts).collect()
}

fn assert_nothing_is_left(directory: &Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while !left(directory).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(directory), Vec::<String>::new());
}

/// Starts a comparison on a disk, and waits until that is there.
fn started(directory: &Path) -> Child {
    let child = forebay()
        .args(["compare", "layout", "--quick", "--disk", "volume", "--scratch", "ext4,size=1g"])
        .arg("--dir")
        .arg(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while left(directory).is_empty() {
        assert!(Instant::now() < until, "there is no disk after a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Keeps the other tests of this file off: a comparison has a mount namespace of its own, which
/// keeps the mounts of the others until it ends.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_disk_that_cannot_be_is_refused_with_a_remedy() {
    for (words, expected) in [
        (&["--disk", "floppy"][..], "volume, consumer, fast"),
        (&["--scratch", "ext4,iops=0"], "iops"),
        (&["--scratch", "ext4,rate=fast"], "rate"),
        (&["--scratch", "ext4,flush=1"], "flush"),
    ] {
        let output = forebay().args(["compare", "layout", "--quick"]).args(words).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(expected), "{words:?}: {text}");
    }
}

#[test]
fn a_comparison_on_a_disk_says_what_it_charges() {
    if !can_make_disks("a_comparison_on_a_disk_says_what_it_charges") {
        return;
    }
    let _alone = alone();
    let directory = directory();
    let output = forebay()
        .args(["compare", "layout", "--quick", "--rounds", "1", "--scale", "0.1"])
        .args(["--arms", "forebay"])
        .args(["--scratch", "ext4,size=512m,iops=2000,rate=40m,flush=5ms,keep", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    let (out, err) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    let out = String::from_utf8(out).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let line = out.lines().find(|line| line.contains("this disk: about ")).expect("the price");
    let figure = |unit: &str| -> f64 {
        let before = line.split(unit).next().unwrap();
        let word = before.split_whitespace().last().unwrap();
        word.replace(',', "").parse().unwrap_or_else(|_| panic!("{unit} in {line}"))
    };
    // Never more than the disk grants. On a busy machine it may be less.
    assert!((800.0..=2200.0).contains(&figure(" requests/s")), "{line}");
    assert!((15.0..=44.0).contains(&figure(" MB/s")), "{line}");
    assert!(figure(" ms") >= 5.0, "{line}");
    assert_nothing_is_left(directory.path());
}

#[test]
fn nothing_is_left_of_a_disk_after_a_kill() {
    if !can_make_disks("nothing_is_left_of_a_disk_after_a_kill") {
        return;
    }
    let _alone = alone();
    for signal in [libc::SIGKILL, libc::SIGINT] {
        let directory = directory();
        let mut child = started(directory.path());
        std::thread::sleep(Duration::from_millis(500));
        // SAFETY: the child has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
        child.wait().unwrap();
        assert_nothing_is_left(directory.path());
    }
}

/// Fills a block as the jobs fill their files: its words are an arithmetic progression.
fn data_of_a_job(block: u64) -> Vec<u8> {
    let word = |at: u64| (block * 512 + at).wrapping_mul(forebay_block::random::STEP);
    (0..512).flat_map(|at| word(at).to_le_bytes()).collect()
}

fn succeeds(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {text}");
}

fn resident_kib(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    resident.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A file system of 100 GiB in memory: 256 MiB of the jobs' data takes less than half of that,
/// with all that the file system writes of itself meanwhile, and the file system is whole.
#[test]
fn an_image_in_memory_keeps_little_of_the_data_of_jobs() {
    if !can_make_disks("an_image_in_memory_keeps_little_of_the_data_of_jobs") {
        return;
    }
    let _alone = alone();
    const BLOCKS: u64 = (256 << 20) / 4096;
    for (mkfs, fsck) in [("mkfs.xfs", "xfs_repair"), ("mkfs.ext4", "e2fsck")] {
        let directory = directory();
        let [at, above] = ["at", "above"].map(|name| directory.path().join(name));
        for path in [&at, &above] {
            fs::create_dir(path).unwrap();
        }
        let mut server =
            forebay().arg("__disk").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut asks = server.stdin.take().unwrap();
        let (at_text, above_text) = (at.to_str().unwrap(), above.to_str().unwrap());
        let charges = r#"{"requests_per_second":null,"bytes_per_second":null,"flush_us":null}"#;
        let places = format!(r#""at":"{at_text}","above":"{above_text}""#);
        let order = format!(r#""backing":"Memory","bytes":{},"charges":{charges}"#, 100_u64 << 30);
        writeln!(asks, "{{{order},{places}}}").unwrap();
        let mut answer = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
        let image = at.join("image");
        let force = if mkfs == "mkfs.xfs" { "-f" } else { "-F" };
        succeeds(mkfs, &["-q", force, image.to_str().unwrap()]);
        let attached = LoopDevice::over(&image).unwrap();
        let device = attached.path().to_str().unwrap();
        succeeds("mount", &[device, above_text]);
        let before = resident_kib(&server);
        let file = above.join("file");
        let mut writer = fs::File::create(&file).unwrap();
        (0..BLOCKS).for_each(|block| writer.write_all(&data_of_a_job(block)).unwrap());
        writer.sync_all().unwrap();
        drop(writer);
        succeeds("umount", &[above_text]);
        succeeds(fsck, &["-n", "-f", device]);
        succeeds("mount", &[device, above_text]);
        let mut reader = fs::File::open(&file).unwrap();
        let mut found = vec![0; 4096];
        for block in 0..BLOCKS {
            reader.read_exact(&mut found).unwrap();
            assert!(found == data_of_a_job(block), "{mkfs}: block {block}");
        }
        drop(reader);
        let kib = resident_kib(&server).saturating_sub(before);
        println!("{mkfs}: {before} KiB, then {kib} KiB more");
        assert!(kib < BLOCKS * 4 / 2, "{mkfs}: {kib} KiB");
        succeeds("umount", &[above_text]);
        drop(attached);
        drop(asks);
        server.wait().unwrap();
        assert_nothing_is_left(directory.path());
    }
}

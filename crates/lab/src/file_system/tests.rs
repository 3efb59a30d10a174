use std::os::unix::fs::MetadataExt;

use super::*;
use crate::loop_device::attached::{assert_detached, attached_below};

/// Makes one in a directory of its own, or reports why that is not possible. Continuous integration
/// as root requires it.
pub(crate) fn made(test: &str, spec: &str) -> Option<(tempfile::TempDir, FileSystem)> {
    let skipped = |reason: &str| {
        assert!(
            std::env::var_os("CI").is_none_or(|value| value != "true"),
            "{test} must run here: {reason}"
        );
        eprintln!("skipped {test}: {reason}");
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped {test}: only root can mount a file system");
        return None;
    }
    // Not in memory: a loop device wants direct I/O below.
    let directory = tempfile::tempdir_in(".").unwrap();
    match FileSystem::new_in(directory.path(), &spec.parse().unwrap(), &Stop::default()) {
        Ok(file_system) => Some((directory, file_system)),
        Err(error) => {
            skipped(&error.to_string());
            None
        }
    }
}

#[test]
fn each_cell_finds_it_new_and_nothing_is_left() {
    // A thread of its own: the mount namespace changes for good.
    let test = || {
        let Some((directory, mut file_system)) = made("each_cell_finds_it_new", "ext4,size=32m")
        else {
            return;
        };
        let above = fs::metadata(directory.path()).unwrap().dev();
        for _ in 0..2 {
            let mounted = file_system.renew().unwrap().to_owned();
            assert_ne!(fs::metadata(&mounted).unwrap().dev(), above, "it is mounted");
            assert!(!mounted.join("left").exists(), "it is new");
            fs::write(mounted.join("left"), vec![7; 1 << 20]).unwrap();
            file_system.rest(Path::new("left")).unwrap();
            assert_eq!(
                fs::metadata(&mounted).unwrap().dev(),
                above,
                "it is unmounted after the cell"
            );
        }
        assert_eq!(file_system.storage.file_system, "ext4");
        assert!(file_system.made.command.starts_with("mkfs.ext4 -F"), "{:?}", file_system.made);
        assert!(file_system.made.output.contains("inodes"), "{:?}", file_system.made);
        file_system.renew().unwrap();
        assert_eq!(attached_below(directory.path()).len(), 1);
        drop(file_system);
        assert_detached(directory.path());
        directory.close().unwrap();
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn one_that_is_kept_keeps_what_is_not_the_cell_s() {
    let test = || {
        let Some((_directory, mut file_system)) =
            made("one_that_is_kept", "ext4,size=32m,keep,sparse")
        else {
            return;
        };
        let cell = file_system.renew().unwrap().join("cell");
        fs::create_dir(&cell).unwrap();
        fs::write(cell.parent().unwrap().join("stays"), "x").unwrap();
        file_system.rest(Path::new("cell")).unwrap();
        let mounted = file_system.renew().unwrap();
        assert!(mounted.join("stays").exists() && !mounted.join("cell").exists());
        assert!(file_system.bare_device().unwrap_err().to_string().contains("is kept"));
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    let test = || {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped what_cannot_be_had: only root can mount a file system");
            return;
        }
        let directory = tempfile::tempdir_in(".").unwrap();
        let refused = |spec: &str| {
            let spec: Spec = spec.parse().unwrap();
            FileSystem::new_in(directory.path(), &spec, &Stop::default()).unwrap_err().to_string()
        };
        let said = refused("xfs,size=1048576g");
        assert!(said.contains("MiB are free") && said.contains("another --dir"), "{said}");
        let said = refused("xfs,device=/dev/null");
        assert!(said.contains("/dev/null: not a block device"), "{said}");
        fs::remove_dir(directory.path().join(MOUNT_POINT)).unwrap();
        let said = refused("xfs,size=320m,agcount=10000,sparse");
        assert!(
            said.contains("mkfs.xfs: ") && said.to_lowercase().contains("agcount"),
            "mkfs's words: {said}"
        );
        assert_detached(directory.path());
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn the_user_may_end_it_while_the_image_is_written() {
    let test = || {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped the_user_may_end_it: only root can mount a file system");
            return;
        }
        let directory = tempfile::tempdir_in(".").unwrap();
        let stop = Stop::default();
        stop.set();
        let ended = FileSystem::new_in(directory.path(), &"ext4,size=64m".parse().unwrap(), &stop);
        assert!(matches!(ended, Err(FileSystemError::Interrupted)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn a_program_s_words_in_one_line() {
    assert_eq!(reason(b"a\n\nb\nUsage: mkfs.xfs\n/* x */\n", b"out"), "a; b");
    assert_eq!(reason(b" \n", b"said\x08\x08 here\n"), "said   here");
    assert!(reason(b"", b"").contains("did not say why"));
}

#[test]
fn a_full_disk_ends_a_cell_and_the_next_one_finds_space() {
    use crate::arm::Arm;
    use crate::cell::{CellSpec, SyncProbe, Verify};
    use crate::job::Workload;

    let test = || {
        let Some((_directory, mut file_system)) = made("a_full_disk", "ext4,size=32m,sparse")
        else {
            return;
        };
        let mut run = |arm, file_bytes| {
            let directory = file_system.renew().unwrap().join("cell");
            fs::create_dir(&directory).unwrap();
            let spec = CellSpec {
                workload: Workload::random_writes_into_new_files(4, file_bytes, 1 << 16),
                arm,
                directory,
                budget_bytes: 8 << 20,
                settings: Vec::new(),
                seed: 1,
                verify: Verify::After,
                sync_probe: SyncProbe::Off,
                control: None,
                text: None,
            };
            crate::load::run_cell(&spec).map_err(|error| error.to_string())
        };
        for arm in [Arm::KernelBounded, Arm::Forebay] {
            let said = run(arm, 16 << 20).unwrap_err();
            assert!(said.to_lowercase().contains("no space"), "{arm:?}: {said}");
            let result = run(arm, 1 << 20).unwrap();
            assert!(result.metrics["write_bytes_per_s"] > 0.0, "{arm:?}");
        }
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn a_device_in_use_is_refused() {
    let test = || {
        let Some((_directory, mut file_system)) = made("a_device_in_use", "ext4,size=32m,sparse")
        else {
            return;
        };
        let device = file_system.bare_device().unwrap().display().to_string();
        let spec: Spec = format!("ext4,device={device}").parse().unwrap();
        let free = spec.clone().looked_at().unwrap();
        assert_eq!(free.size_bytes, 32 << 20, "of its own size");
        file_system.renew().unwrap();
        let said = spec.looked_at().unwrap_err().to_string();
        assert!(said.contains("mounted at") || said.contains("in use"), "{said}");
    };
    std::thread::spawn(test).join().unwrap();
}

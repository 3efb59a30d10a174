//! Mount points: their names, mounts in mounts, and mount points that go away.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::process::Command;

use crate::place::{Place, forebay, has_ended, run, wait_until};

#[test]
fn a_mount_point_has_any_name_and_is_found_by_a_link() {
    let Some(mut place) = Place::new() else { return };
    place.mount = place.directory.path().join("a b\tc\nd\\e\\040#,ä");
    fs::create_dir(&place.mount).unwrap();
    let link = place.directory.path().join("link");
    symlink(&place.mount, &link).unwrap();
    place.mount(&[]);
    fs::write(place.mount.join("file"), b"text").unwrap();
    let (code, _, err) = forebay(&["unmount", link.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(fs::read_dir(&place.mount).unwrap().count(), 0);
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"text");
}

#[test]
fn a_dead_mount_is_taken_away_by_a_link_and_nothing_is_found_in_it() {
    let Some(place) = Place::new() else { return };
    let real = place.directory.path().join("a b");
    fs::rename(&place.mount, &real).unwrap();
    symlink(&real, &place.mount).unwrap();
    for _ in 0..2 {
        // The second time, this mount takes the dead one away.
        place.mount(&["--plain"]);
        place.kill();
    }
    let inside = place.mount.join("inside");
    for words in [
        &["unmount", inside.to_str().unwrap()][..],
        &["mount", place.directory.path().to_str().unwrap(), inside.to_str().unwrap()],
        &["mount", inside.to_str().unwrap(), place.source.to_str().unwrap()],
    ] {
        let (code, _, err) = forebay(words);
        assert_eq!(code, Some(2), "{words:?}: {err}");
        assert!(err.contains("a mount whose process has died"), "{words:?}: {err}");
        assert_eq!(err.trim_end().lines().count(), 1, "{words:?}: {err}");
    }
    let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("had died"), "{err}");
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
}

/// As a container, or a program that makes file systems for itself.
#[test]
fn a_mount_that_another_namespace_has_is_named() {
    let Some(place) = Place::alone() else { return };
    place.mount(&[]);
    let server = place.server();
    fs::write(place.mount.join("file"), b"text").unwrap();
    let words = ["--mount", "--propagation", "private", "sleep", "60"];
    let mut other = Command::new("unshare").args(words).spawn().unwrap();
    let name = format!("/proc/{}/comm", other.id());
    wait_until("the namespace is there", || fs::read_to_string(&name).unwrap() == "sleep\n");
    let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
    let is_there = !has_ended(server);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("(sleep) has it at") && err.contains(&format!("`kill {server}`")),
        "{err}"
    );
    assert!(is_there, "it is used");
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"text");
    wait_until("the process ends", || has_ended(server));
}

#[test]
fn a_mount_inside_of_a_mount_is_named() {
    let Some(place) = Place::new() else { return };
    fs::create_dir(place.source.join("point")).unwrap();
    place.mount(&[]);
    let inner = place.inner("inner source", place.mount.join("point"));
    inner.mount(&[]);
    fs::write(inner.mount.join("file"), b"inner").unwrap();
    let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{err}");
    let expected = format!("is mounted inside of it, at {}", inner.mount.display());
    assert!(err.contains(&expected), "{err}");
    inner.unmount();
    assert_eq!(fs::read_dir(place.mount.join("point")).unwrap().count(), 0);
    place.unmount();
    assert_eq!(fs::read(inner.source.join("file")).unwrap(), b"inner");
}

#[test]
fn a_mount_is_the_source_of_another_one() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let mut outer = place.inner("outer", place.directory.path().join("outer mount"));
    fs::create_dir(&outer.mount).unwrap();
    outer.source = place.mount.clone();
    outer.mount(&[]);
    let content = crate::place::bytes(1 << 20);
    let mut file = File::create(outer.mount.join("file")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(place.source.join("file")).unwrap(), content);
    drop(file);
    let (code, _, err) = forebay(&["unmount", place.mount.to_str().unwrap()]);
    assert!(code == Some(2) && err.contains("have files of it open"), "{err}");
    outer.unmount();
    place.unmount();
}

#[test]
fn a_mount_whose_directory_was_renamed_ends_by_its_new_name_or_by_a_signal() {
    let Some(place) = Place::new() else { return };
    let mut deep = place.inner("deep source", place.directory.path().join("above/point"));
    fs::create_dir_all(&deep.mount).unwrap();
    let renamed = place.directory.path().join("renamed/point");
    for by_signal in [true, false] {
        let _ = fs::rename(renamed.parent().unwrap(), deep.mount.parent().unwrap());
        deep.mount(&[]);
        fs::write(deep.mount.join("file"), [u8::from(by_signal)]).unwrap();
        let server = deep.server();
        fs::rename(deep.mount.parent().unwrap(), renamed.parent().unwrap()).unwrap();
        let (code, _, err) = forebay(&["unmount", deep.mount.to_str().unwrap()]);
        assert!(code == Some(2) && err.contains("could not find the mount point"), "{err}");
        let source = deep.source.to_str().unwrap();
        let (code, _, err) = forebay(&["mount", source, place.mount.to_str().unwrap()]);
        let expected = format!("is mounted already at {}", renamed.display());
        assert!(code == Some(2) && err.contains(&expected), "{err}");
        if by_signal {
            assert!(run(&["kill", &server.to_string()]).0 == Some(0));
            wait_until("its process ends", || has_ended(server));
        } else {
            let (code, _, err) = forebay(&["unmount", renamed.to_str().unwrap()]);
            assert_eq!(code, Some(0), "{err}");
        }
        assert_eq!(fs::read_dir(&renamed).unwrap().count(), 0, "it is unmounted");
        assert_eq!(fs::read(deep.source.join("file")).unwrap(), [u8::from(by_signal)]);
        assert_eq!(deep.log(), "");
    }
    deep.mount = renamed;
}

#[test]
fn a_detached_mount_ends_with_its_last_file_and_leaves_its_successor_alone() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let server = place.server();
    let file = File::create(place.mount.join("file")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    let mount = place.mount.to_str().unwrap();
    assert_eq!(run(&["umount", "-l", mount]).0, Some(0));
    file.write_all_at(b"after", 6).unwrap();
    let (code, _, err) = forebay(&["unmount", mount]);
    assert!(code == Some(2) && err.contains("is not a mount point"), "{err}");
    let (code, _, err) = forebay(&["mount", place.source.to_str().unwrap(), mount]);
    assert!(code == Some(2) && err.contains("by a mount that was detached"), "{err}");
    assert_eq!(run(&["mount", "-t", "tmpfs", "successor", mount]).0, Some(0));
    drop(file);
    wait_until("its process ends", || has_ended(server));
    let (code, found, _) = run(&["findmnt", "-n", "-o", "SOURCE", mount]);
    assert_eq!((code, found.trim()), (Some(0), "successor"));
    assert_eq!(fs::read(place.source.join("file")).unwrap(), b"beforeafter");
    assert_eq!(run(&["umount", mount]).0, Some(0));
    assert_eq!(place.log(), "");
}

#[test]
fn a_source_that_is_read_only_is_mounted_for_reading() {
    let Some(mut place) = Place::new() else { return };
    fs::write(place.source.join("file"), b"text").unwrap();
    let source = std::mem::replace(&mut place.source, place.directory.path().join("only read"));
    fs::create_dir(&place.source).unwrap();
    let [from, to] = [&source, &place.source].map(|path| path.to_str().unwrap());
    assert_eq!(run(&["mount", "--bind", from, to]).0, Some(0));
    assert_eq!(run(&["mount", "-o", "remount,bind,ro", to]).0, Some(0));
    place.mount(&[]);
    let file = place.mount.join("file");
    assert_eq!(fs::read(&file).unwrap(), b"text");
    for refused in [
        File::create(place.mount.join("new")).map(drop),
        File::options().append(true).open(&file).map(drop),
        fs::remove_file(&file),
        fs::create_dir(place.mount.join("directory")),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EROFS));
    }
    place.unmount();
    assert_eq!(run(&["umount", to]).0, Some(0));
}

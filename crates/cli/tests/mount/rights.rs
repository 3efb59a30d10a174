//! Rights of callers: files that may only grow, owners of new objects, limits.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::place::{FOREBAY, Place, bytes, run};

fn protect(path: &std::path::Path, attribute: &str) -> bool {
    let set = Command::new("chattr").arg(attribute).arg(path).output();
    set.is_ok_and(|set| set.status.success())
}

#[test]
fn a_file_with_the_attribute_a_is_appended_to_and_changed_in_no_other_way() {
    let Some(place) = Place::new() else { return };
    let content = bytes(300_000);
    let (log, kept) = (place.source.join("log"), place.source.join("kept"));
    fs::write(&log, &content).unwrap();
    if !protect(&log, "+a") {
        eprintln!("skipped: no chattr, or this file system has no attribute a");
        return;
    }
    place.mount(&[]);
    let append = |name: &str, text: &[u8]| {
        let file = File::options().append(true).open(place.mount.join(name));
        file.and_then(|mut file| file.write_all(text))
    };
    append("log", b"one").unwrap();
    append("log", b"two").unwrap();
    let refused = |name: &str| {
        let path = place.mount.join(name);
        let write = File::options().write(true).open(&path).map(drop);
        let cut = File::options().append(true).open(&path).and_then(|file| file.set_len(3));
        [write, cut].map(|done| done.unwrap_err().raw_os_error())
    };
    let of_log = refused("log");
    // The mount has this one open still when it gets the attribute.
    let file = File::create(place.mount.join("kept")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    drop(file);
    // chattr does not wait until the mount has released its lease.
    assert!(fs::read(&kept).unwrap() == content);
    assert!(protect(&kept, "+a"));
    let of_kept = refused("kept");
    append("kept", b"three").unwrap();
    place.unmount();
    assert!(protect(&log, "-a") && protect(&kept, "-a"));
    assert_eq!((of_log, of_kept), ([Some(libc::EPERM); 2], [Some(libc::EPERM); 2]));
    assert!(fs::read(&log).unwrap() == [&content[..], b"onetwo"].concat());
    assert!(fs::read(&kept).unwrap() == [&content[..], b"three"].concat());
    assert_eq!(place.log(), "");
}

/// Commands as other users, in directories that they can reach.
pub(crate) struct Others {
    pub(crate) place: Place,
    _away: tempfile::TempDir,
}

impl Others {
    fn new() -> Option<Self> {
        Some(Self::of(Place::new()?))
    }

    pub(crate) fn of(mut place: Place) -> Self {
        // The directories above may be closed to other users.
        let away = tempfile::tempdir().unwrap();
        fs::set_permissions(away.path(), fs::Permissions::from_mode(0o755)).unwrap();
        place.mount = away.path().join("mount");
        fs::create_dir(&place.mount).unwrap();
        fs::set_permissions(&place.source, fs::Permissions::from_mode(0o777)).unwrap();
        Self { place, _away: away }
    }

    /// Has others use the mount of a user. Returns what is printed, or `None`, after a message, if
    /// no user can mount.
    pub(crate) fn use_mount_of_user(&self, option: &str) -> Option<String> {
        if run(&["sh", "-c", "command -v fusermount3"]).0 != Some(0) {
            let reason = "no program fusermount3 (package fuse3)";
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            eprintln!("skipped: {reason}");
            return None;
        }
        let away = self.place.mount.parent().unwrap();
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", OF_USER, "sh", FOREBAY, option]).current_dir(away);
        let output = shell.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(said.matches("Operation not permitted").count(), 4, "{said}");
        assert!(said.ends_with("own\ntext\nmore\nmore\n"), "{said}");
        Some(said)
    }

    /// Makes one object of each kind in the mount. Returns the names of those that are there.
    fn make(&self, user: u32, group: u32) -> Vec<String> {
        let made = "touch file; mkdir directory; ln -s target link; mkfifo fifo";
        let mut shell = Command::new("sh");
        shell.args(["-c", made]).current_dir(&self.place.mount).uid(user).gid(group);
        let output = shell.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let names = fs::read_dir(&self.place.source).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(said.matches("Operation not permitted").count(), 4 - names.len(), "{said}");
        for name in &names {
            let found = self.place.source.join(name).symlink_metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (user, group), "{name}");
        }
        for name in &names {
            let path = self.place.mount.join(name);
            if name == "directory" { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        }
        names
    }
}

const ALL: [&str; 4] = ["directory", "fifo", "file", "link"];

#[test]
fn objects_belong_to_their_caller() {
    let Some(others) = Others::new() else { return };
    others.place.mount(&[]);
    for (user, group) in [(0, 0), (1, 1), (1, 0), (0, 1), (70_000, 80_000)] {
        assert_eq!(others.make(user, group), ALL, "{user}:{group}");
    }
    others.place.unmount();
}

#[test]
fn nothing_is_made_for_a_caller_whose_identity_the_mount_cannot_take() {
    // As in a container without these capabilities.
    for (without, refused) in [
        ("-setuid,-setgid", &[(1, 1), (1, 0), (0, 1)][..]),
        ("-setuid", &[(1, 1), (1, 0)]),
        ("-setgid", &[(1, 1), (0, 1)]),
    ] {
        let Some(others) = Others::new() else { return };
        let set = format!("--bounding-set={without}");
        others.place.mount_by(&["setpriv", &set, "--"], &[]);
        for &(user, group) in refused {
            assert!(others.make(user, group).is_empty(), "{without}: {user}:{group}");
        }
        assert_eq!(others.make(0, 0), ALL, "{without}: its own");
        others.place.unmount();
    }
}

/// A mount of user 65534, in a place of its own where users may let others use theirs.
const OF_USER: &str = r#"
set -e
umask 022
echo user_allow_other > conf && mount --bind conf /etc/fuse.conf
mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse
mkdir -p user/source user/mount user/run && cp "$1" user/forebay && chmod -R 777 user
cd user
as() { user=$1; shift; setpriv --reuid=$user --regid=$user --clear-groups "$@"; }
chown -R 65534:65534 .
export XDG_RUNTIME_DIR=$PWD/run
as 65534 ./forebay mount source mount --allow-other $2 --background --log log
as 65534 sh -c 'touch mount/own; echo text > mount/own; chmod 666 mount/own'
for user in 1 0; do
    as $user touch mount/of-$user 2>&1 || true
    as $user mkdir mount/of-$user 2>&1 || true
    as $user sh -c 'echo more >> mount/own'
done
as 65534 ./forebay unmount mount
ls source
cat source/own log
"#;

#[test]
fn others_write_on_the_mount_of_a_user_and_make_nothing() {
    let Some(others) = Place::alone().map(Others::of) else { return };
    others.use_mount_of_user("");
}

#[test]
fn a_limit_of_sizes_for_the_mount_is_none_for_its_callers() {
    let Some(place) = Place::new() else { return };
    // More than the memory of the cache.
    place.mount_by(&["prlimit", "--fsize=60000000:", "--"], &["--set", "cache_bytes=16m"]);
    let file = File::create(place.mount.join("file")).unwrap();
    file.write_all_at(&bytes(200_000), 100_000_000).unwrap();
    file.sync_all().unwrap();
    drop(file);
    place.unmount();
    assert_eq!(place.source.join("file").metadata().unwrap().len(), 100_200_000);
}

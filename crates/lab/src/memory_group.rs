//! A control group that limits the memory of this process, its page cache included: version 1 or 2
//! of the memory controller, as root.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_uring::mounts::Mount;

/// Memory besides data: the process itself, and the kernel's own objects.
const BESIDES_BYTES: u64 = 8 << 20;

/// The file with the members of a group.
const MEMBERS: &str = "cgroup.procs";

/// This process is a member until this is dropped. If it is killed, it leaves an empty group, which
/// [`killed_for_memory`] removes.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    before: PathBuf,
    own: PathBuf,
}

/// A version of the memory controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// Makes a group with a limit of `bytes` for data, and moves this process there. Its present
    /// memory stays where it is counted.
    pub(crate) fn join(bytes: u64) -> Result<Self, String> {
        let (version, before) =
            here().ok_or("no control groups of the memory controller are mounted")?;
        let above = above(version, &before);
        let limit = match version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        if version == Version::Two {
            let control = above.join("cgroup.subtree_control");
            fs::write(&control, "+memory").map_err(|error| {
                format!("cannot limit memory by control group: {}: {error}", control.display())
            })?;
        }
        assert!(bytes <= u64::MAX - BESIDES_BYTES, "{bytes} bytes cannot be a limit");
        let own = above.join(name_of(std::process::id()));
        let shown = own.display().to_string();
        fs::create_dir(&own)
            .map_err(|error| format!("cannot make the control group {shown}: {error}"))?;
        let group = Self { before, own };
        fs::write(group.own.join(limit), (bytes + BESIDES_BYTES).to_string())
            .and_then(|()| fs::write(group.own.join(MEMBERS), std::process::id().to_string()))
            .map_err(|error| format!("control group {shown}: {error}"))?;
        Ok(group)
    }
}

/// Removes the group that a dead process has left. Returns whether the kernel killed a process
/// there because it had no memory left.
pub(crate) fn killed_for_memory(process: u32) -> bool {
    let Some((version, before)) = here() else { return false };
    let count = match version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    };
    let group = above(version, &before).join(name_of(process));
    let counts = fs::read_to_string(group.join(count)).unwrap_or_default();
    let _ = fs::remove_dir(&group);
    counts.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
}

fn here() -> Option<(Version, PathBuf)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    present(Mount::all().ok()?, &groups)
}

fn name_of(process: u32) -> String {
    format!("forebay-{process}")
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Processes that this one has started are members too.
        let members = fs::read_to_string(self.own.join(MEMBERS)).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(self.before.join(MEMBERS), member);
        }
        let _ = fs::remove_dir(&self.own);
    }
}

/// Returns where a group is made: below this one, or, in version 2, beside it, because a group with
/// processes has no groups below it. A root of its hierarchy has none beside it.
fn above(version: Version, group: &Path) -> &Path {
    let beside = group.parent().filter(|above| above.join(MEMBERS).exists());
    beside.filter(|_| version == Version::Two).unwrap_or(group)
}

/// Finds the group of this process in the hierarchy with the memory controller, from all mounts and
/// the text of `/proc/self/cgroup`.
fn present(mounts: Vec<Mount>, groups: &str) -> Option<(Version, PathBuf)> {
    let has_memory = |controllers: &str| controllers.split(',').any(|one| one == "memory");
    let group = |is_it: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_it(controllers).then_some(path)
        })
    };
    let (version, kind, group) = match group(&has_memory) {
        Some(group) => (Version::One, "cgroup", group),
        None => (Version::Two, "cgroup2", group(&str::is_empty)?),
    };
    mounts.into_iter().find_map(|mount| {
        let is_it =
            mount.file_system == kind && (version == Version::Two || has_memory(&mount.options));
        let below = Path::new(group).strip_prefix(&mount.root).ok()?;
        is_it.then(|| (version, mount.point.join(below)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 25 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        31 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        32 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        33 30 0:30 /a /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";

    #[test]
    fn the_group_of_a_process_is_found_below_its_mount() {
        let present = |mounts: &str, groups| present(Mount::listed(mounts.as_bytes()), groups);
        let groups = "4:memory:/a/b\n2:cpu:/\n0::/\n";
        let one = (Version::One, "/sys/fs/cgroup/memory/b".into());
        assert_eq!(present(MOUNTS, groups), Some(one));
        let two = (Version::Two, "/sys/fs/cgroup/unified/c".into());
        assert_eq!(present(MOUNTS, "2:cpu:/\n0::/c\n"), Some(two));
        assert_eq!(present("31 30 0:28 / /c rw - cgroup2 cgroup2 rw\n", groups), None);
    }

    #[test]
    fn a_limit_holds_or_the_reason_is_returned() {
        // Another thread of this process is moved too, so the limit is far above all of them.
        match MemoryGroup::join(8 << 30) {
            Ok(group) => {
                let own = group.own.clone();
                let limit = fs::read_to_string(own.join("memory.limit_in_bytes"))
                    .or_else(|_| fs::read_to_string(own.join("memory.max")))
                    .unwrap();
                assert_eq!(limit.trim(), ((8_u64 << 30) + BESIDES_BYTES).to_string());
                let members = fs::read_to_string(own.join("cgroup.procs")).unwrap();
                let process = std::process::id().to_string();
                assert!(members.lines().any(|member| member == process), "{members}");
                drop(group);
                assert!(!own.exists());
            }
            Err(reason) => assert!(reason.contains("control group"), "{reason}"),
        }
    }
}

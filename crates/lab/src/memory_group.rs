//! A control group that limits the memory of this process, its page cache included: version 1 of
//! the memory controller, and root.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory besides data: the process itself, and the kernel's own objects.
const BESIDES_BYTES: u64 = 8 << 20;

/// This process is a member until this is dropped. If it is killed, an empty group is left.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    above: PathBuf,
    own: PathBuf,
}

impl MemoryGroup {
    /// Makes a group with a limit of `bytes` for data, and moves this process there. Its present
    /// memory stays where it is counted.
    pub(super) fn join(bytes: u64) -> Result<Self, String> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let above = directory(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        let above = above.ok_or("this needs version 1 of the memory controller")?;
        let own = above.join(format!("forebay-{}", std::process::id()));
        fs::create_dir(&own)
            .map_err(|error| format!("cannot make the control group {}: {error}", own.display()))?;
        let group = Self { above, own };
        let limit = (bytes + BESIDES_BYTES).to_string();
        fs::write(group.own.join("memory.limit_in_bytes"), limit)
            .and_then(|()| {
                fs::write(group.own.join("cgroup.procs"), std::process::id().to_string())
            })
            .map_err(|error| format!("control group {}: {error}", group.own.display()))?;
        Ok(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Processes that this one has started are members too.
        let members = fs::read_to_string(self.own.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(self.above.join("cgroup.procs"), member);
        }
        let _ = fs::remove_dir(&self.own);
    }
}

/// The directory of this process's group, from the text of `/proc/self/mountinfo` and
/// `/proc/self/cgroup`.
fn directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let has_memory = |controllers: &str| controllers.split(',').any(|one| one == "memory");
    let group = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        has_memory(controllers).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut of_type = after.split(' ');
        let is_it = of_type.next() == Some("cgroup") && of_type.nth(1).is_some_and(has_memory);
        let (root, mount_point) = before.split(' ').nth(3).zip(before.split(' ').nth(4))?;
        let below = Path::new(group).strip_prefix(root).ok()?;
        is_it.then(|| Path::new(mount_point).join(below))
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
        let groups = "4:memory:/a/b\n2:cpu:/\n0::/\n";
        assert_eq!(directory(MOUNTS, groups), Some("/sys/fs/cgroup/memory/b".into()));
        assert_eq!(directory(MOUNTS, "0::/\n"), None);
        assert_eq!(directory("31 30 0:28 / /c rw - cgroup2 cgroup2 rw\n", groups), None);
    }

    #[test]
    fn a_limit_holds_or_the_reason_is_returned() {
        // Another thread of this process is moved too, so the limit is far above all of them.
        match MemoryGroup::join(8 << 30) {
            Ok(group) => {
                let own = group.own.clone();
                let limit = fs::read_to_string(own.join("memory.limit_in_bytes")).unwrap();
                assert_eq!(limit.trim(), ((8_u64 << 30) + BESIDES_BYTES).to_string());
                let members = fs::read_to_string(own.join("cgroup.procs")).unwrap();
                let process = std::process::id().to_string();
                assert!(members.lines().any(|member| member == process), "{members}");
                drop(group);
                assert!(!own.exists());
            }
            Err(reason) => assert!(reason.contains("control group") || reason.contains("version")),
        }
    }
}

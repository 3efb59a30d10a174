//! The user and the rights of this process, from `/proc/self/status`.

use super::tree::Tree;

/// A right of a process, by the kernel's number.
#[derive(Clone, Copy)]
pub(super) enum Capability {
    IpcLock = 14,
    SysAdmin = 21,
    Lease = 28,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) user: u32,
    pub(super) group: u32,
    capabilities: u64,
    /// A filter looks at its system calls.
    pub(super) is_filtered: bool,
    /// Processors it may run on, as a list such as `0-3,8`; none where that is not told.
    pub(super) processors: Option<String>,
    /// Huge pages are forbidden to it.
    pub(super) is_without_huge_pages: bool,
}

impl Process {
    pub(super) fn of(tree: &Tree) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Self::read(&tree.text("/proc/self/status").unwrap_or_default(), user, group)
    }

    pub(super) fn read(status: &str, user: u32, group: u32) -> Self {
        let field = |name: &str| {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim())
        };
        let capabilities = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        Self {
            user,
            group,
            capabilities: capabilities.unwrap_or(0),
            is_filtered: field("Seccomp") == Some("2"),
            processors: field("Cpus_allowed_list").map(str::to_owned),
            is_without_huge_pages: field("THP_enabled") == Some("0"),
        }
    }

    pub(super) fn may(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u32 & 1 == 1
    }
}

/// How many are in a list such as `0-3,8`.
pub(super) fn counted(list: &str) -> Option<u32> {
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(one).try_fold(0, |sum: u32, many| sum.checked_add(many?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "Name:\tx\nCapEff:\t0000000010204000\nSeccomp:\t2\nSeccomp_filters:\t1\n\
                      THP_enabled:\t0\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n";
        let process = Process::read(status, 7, 8);
        assert!(process.is_filtered && process.is_without_huge_pages);
        let all = [Capability::IpcLock, Capability::SysAdmin, Capability::Lease];
        assert!(all.into_iter().all(|capability| process.may(capability)));
        assert_eq!(process.processors.as_deref(), Some("0-3,8"));
        let nobody = Process::read("Seccomp:\t0\nTHP_enabled:\t1\n", 7, 8);
        assert!(!nobody.is_filtered && !nobody.is_without_huge_pages);
        assert!(!all.into_iter().any(|capability| nobody.may(capability)));
        assert_eq!((nobody.user, nobody.group, nobody.processors), (7, 8, None));
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(counted("0-3,8"), Some(5));
        assert_eq!(counted("5"), Some(1));
        assert_eq!(counted("3-1"), None);
        assert_eq!(counted("0-4294967295,1"), None);
        assert_eq!(counted(""), None);
    }
}

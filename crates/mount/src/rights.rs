//! Rules for callers that the source would not apply: it sees the rights of this process.
//!
//! The kernel checks a caller before it sends a request, and clears the bits that a change of mode
//! may not set. Other changes can remove set bits, too: of the content, the owner, or the access
//! list. As root this process would keep the bits, so it removes them itself. A request contains
//! neither groups nor capabilities of its caller. They are read from `/proc` while the caller
//! waits for the answer.

use std::fs::{read_link, read_to_string};
use std::io;
use std::time::SystemTime;

use fuser::INodeNo;
use procfs::process::Process;
use rustix::fs::{FileType, Mode, Stat};
use rustix::thread::{CapabilitySet, capabilities};

use crate::caller::{Caller, GroupBit};
use crate::limits::TIME_STEP;
use crate::mounted::Mount;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::times::changed_at;

/// The user namespace that exists from the start, as `/proc/PID/ns/user` names it.
const INITIAL: &str = "user:[4026531837]";

/// Attribute with the capabilities of a program.
pub(crate) const CAPABILITY: &str = "security.capability";

/// Attribute with the access list of a file.
pub(crate) const ACCESS_LIST: &str = "system.posix_acl_access";

/// Groups and capabilities of a caller.
#[derive(Debug)]
pub(crate) struct Rights {
    groups: Vec<u32>,
    capabilities: CapabilitySet,
    reach: Reach,
    /// As that of [`Caller`].
    loses_bits: bool,
}

/// Users and groups whose files a capability of the process covers.
#[derive(Debug)]
enum Reach {
    /// All, also for what only the initial user namespace permits.
    Initial,
    /// All that this process knows.
    Own,
    Mapped {
        users: Vec<Range>,
        groups: Vec<Range>,
    },
}

/// First number and count, in the numbers of this process.
type Range = (u32, u32);

impl Caller {
    /// Looks up groups and capabilities. A process that cannot be seen from here has the
    /// capabilities of its user.
    pub(crate) fn rights(&self) -> Rights {
        let mut rights = Rights::of_process(self.process).unwrap_or_else(|| Rights {
            groups: Vec::new(),
            capabilities: match self.user {
                0 => CapabilitySet::all(),
                _ => CapabilitySet::empty(),
            },
            reach: Reach::Initial,
            loses_bits: false,
        });
        rights.groups.push(self.group);
        rights.loses_bits = self.loses_bits;
        rights
    }
}

impl Rights {
    fn of_process(number: u32) -> Option<Self> {
        let number = i32::try_from(number).ok().filter(|&number| number != 0)?;
        let status = Process::new(number).ok()?.status().ok()?;
        Some(Self {
            groups: status.groups,
            capabilities: CapabilitySet::from_bits_retain(status.capeff),
            reach: Reach::of_process(number),
            loses_bits: false,
        })
    }

    pub(crate) fn is_member(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }

    /// Whether the caller may set the set-group-ID bit of a file.
    pub(crate) fn may_set_group_bit(&self, status: &Stat) -> bool {
        self.is_member(status.st_gid) || self.has(CapabilitySet::FSETID, status)
    }

    /// Whether the caller has a capability that counts for this file.
    fn has(&self, capability: CapabilitySet, status: &Stat) -> bool {
        self.capabilities.contains(capability) && self.reach.covers(status)
    }

    /// Returns the bits that a change of the content of a file removes.
    fn lost_bits(&self, status: &Stat) -> Mode {
        if !self.loses_bits && self.has_everywhere(CapabilitySet::FSETID) {
            return Mode::empty();
        }
        let mode = Mode::from_raw_mode(status.st_mode);
        let mut lost = Mode::SUID;
        // Without the right to execute, the bit of the group means a kind of lock.
        lost.set(Mode::SGID, mode.contains(Mode::XGRP) || !self.may_set_group_bit(status));
        mode & lost
    }

    /// Whether the caller may see attributes of the system.
    pub(crate) fn sees_trusted(&self) -> bool {
        self.has_everywhere(CapabilitySet::SYS_ADMIN)
    }

    /// Whether the caller has a capability in the initial user namespace.
    fn has_everywhere(&self, capability: CapabilitySet) -> bool {
        matches!(self.reach, Reach::Initial) && self.capabilities.contains(capability)
    }
}

impl Reach {
    fn of_process(number: i32) -> Self {
        let namespace = |process: &str| read_link(format!("/proc/{process}/ns/user")).ok();
        let map = |of: &str| ranges(&read_to_string(format!("/proc/{number}/{of}")).ok()?);
        match namespace(&number.to_string()) {
            Some(its) if its == *INITIAL => Self::Initial,
            Some(its) if Some(&its) == namespace("self").as_ref() => Self::Own,
            // Nothing if it cannot be read.
            _ => Self::Mapped {
                users: map("uid_map").unwrap_or_default(),
                groups: map("gid_map").unwrap_or_default(),
            },
        }
    }

    fn covers(&self, status: &Stat) -> bool {
        let Self::Mapped { users, groups } = self else { return true };
        let is_in = |ranges: &[Range], number: u32| {
            ranges.iter().any(|&(first, count)| number.wrapping_sub(first) < count)
        };
        is_in(users, status.st_uid) && is_in(groups, status.st_gid)
    }
}

/// Reads a map of numbers: lines of the first number inside, the first one here, and a count.
fn ranges(map: &str) -> Option<Vec<Range>> {
    map.lines()
        .map(|line| {
            let mut numbers = line.split_whitespace().skip(1).map(|word| word.parse().ok());
            Some((numbers.next()??, numbers.next()??))
        })
        .collect()
}

/// Returns the mode of a new file, and who decides on its set-group-ID bit.
pub(crate) fn mode_of_new(
    caller: &Caller,
    parent: &Node,
    mode: u32,
) -> io::Result<(Mode, GroupBit)> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    if !mode.contains(Mode::SGID | Mode::XGRP) {
        return Ok((mode, GroupBit::AsThere));
    }
    let above = parent.status()?;
    if !Mode::from_raw_mode(above.st_mode).contains(Mode::SGID) {
        return Ok((mode, GroupBit::AsThere));
    }
    if caller.rights().may_set_group_bit(&above) {
        return Ok((mode, GroupBit::Kept));
    }
    // The thread may be in that group, as root's often are.
    Ok((mode - Mode::SGID, GroupBit::AsThere))
}

/// Whether set bits stay when this process writes to a file.
pub(crate) fn keeps_bits() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::FSETID))
}

impl Mount {
    /// Removes what a program could gain rights by, before the content of a file changes: file
    /// capabilities, and the bits for the identity of owner and group unless the caller may keep
    /// them.
    pub(crate) fn drop_privileges(&self, file: &OpenFile, caller: &Caller) -> io::Result<()> {
        let status = file.node.status()?;
        if file.data.is_in_engine() {
            drop_capability(&file.node, &status);
        }
        self.drop_bits(&file.node, &status, caller)
    }

    /// Removes the bits for the identity of owner and group, unless the caller may keep them.
    pub(crate) fn drop_bits(&self, node: &Node, status: &Stat, caller: &Caller) -> io::Result<()> {
        let mode = Mode::from_raw_mode(status.st_mode & 0o7777);
        if !node.is_file() || !mode.intersects(Mode::SUID | Mode::SGID) {
            return Ok(());
        }
        let lost = caller.rights().lost_bits(status);
        if lost.is_empty() {
            return Ok(());
        }
        node.set_mode(mode - lost)?;
        self.forget_attributes(node);
        Ok(())
    }

    /// Has the kernel ask for the attributes of a node again. Until then it would execute the file
    /// with the old bits.
    fn forget_attributes(&self, node: &Node) {
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have forgotten the node.
            let _ = notifier.inval_inode(INodeNo(node.number), -1, 0);
        }
    }
}

/// Removes the capabilities of a program. The source does so with each write, and the engine writes
/// later. Most files have none, and a look is repeated only after the source has changed.
fn drop_capability(node: &Node, status: &Stat) {
    let changed = changed_at(status);
    if node.state().without_capability == Some(changed) {
        return;
    }
    if node.at_path(|path| rustix::fs::getxattr(path, CAPABILITY, &mut [0_u8; 0])).is_ok() {
        // The source removes them, if this process may not.
        let _ = node.at_path(|path| rustix::fs::removexattr(path, CAPABILITY));
        return;
    }
    // A change right after this look may have the same time.
    if SystemTime::now().duration_since(changed).is_ok_and(|age| age > TIME_STEP) {
        node.state().without_capability = Some(changed);
    }
}

/// Clears the set-group-ID bit after the access list of a file was set, if the caller may not set
/// that bit.
pub(crate) fn after_access_list(node: &Node, caller: &Caller) -> io::Result<()> {
    let status = node.status()?;
    let mode = Mode::from_raw_mode(status.st_mode & 0o7777);
    if !mode.contains(Mode::SGID) || caller.rights().may_set_group_bit(&status) {
        return Ok(());
    }
    node.set_mode(mode - Mode::SGID)
}

/// Clears the set-group-ID bit of a file without the right to execute after a change of its owner,
/// if the caller may not set that bit. The source clears the others for each caller. A caller that
/// changed nothing must be one that may: a stranger's write arrives like that, too.
pub(crate) fn after_new_owner(
    node: &Node,
    before: &Stat,
    caller: &Caller,
    is_changed: bool,
) -> io::Result<()> {
    let old = Mode::from_raw_mode(before.st_mode);
    if node.kind == FileType::Directory || !old.contains(Mode::SGID) {
        return Ok(());
    }
    let now = node.status()?;
    let mode = Mode::from_raw_mode(now.st_mode);
    if !mode.contains(Mode::SGID) {
        return Ok(());
    }
    let rights = caller.rights();
    let may_clear =
        is_changed || caller.user == now.st_uid || rights.has(CapabilitySet::FOWNER, &now);
    // If the other bit is cleared, the mode is set, and its new group counts.
    let keeps = rights.may_set_group_bit(before)
        && (!old.contains(Mode::SUID) || rights.may_set_group_bit(&now));
    if keeps || !may_clear {
        return Ok(());
    }
    node.set_mode((mode - Mode::SGID) & Mode::from_raw_mode(0o7777))
}

/// Leaves the attributes out that only the system sees.
pub(crate) fn visible(names: Vec<u8>, caller: &Caller) -> Vec<u8> {
    let is_trusted = |name: &[u8]| name.starts_with(b"trusted.");
    let mut each = names.split_inclusive(|&byte| byte == 0);
    if !each.clone().any(is_trusted) || caller.rights().sees_trusted() {
        return names;
    }
    each.by_ref().filter(|name| !is_trusted(name)).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(mode: Mode, user: u32, group: u32) -> Stat {
        let mut status = rustix::fs::stat("/").unwrap();
        status.st_mode = mode.as_raw_mode();
        (status.st_uid, status.st_gid) = (user, group);
        status
    }

    fn rights(groups: &[u32], capabilities: CapabilitySet, reach: Reach) -> Rights {
        Rights { groups: groups.to_vec(), capabilities, reach, loses_bits: false }
    }

    #[test]
    fn a_change_of_the_content_removes_the_bits_that_the_caller_may_not_keep() {
        let (both, set) = (Mode::SUID | Mode::SGID, CapabilitySet::FSETID);
        let none = CapabilitySet::empty();
        let mapped = || Reach::Mapped { users: vec![(0, 100)], groups: vec![(0, 100)] };
        for (mode, rights, lost) in [
            (both | Mode::XGRP, rights(&[7], none, Reach::Initial), both),
            (both, rights(&[7], none, Reach::Initial), Mode::SUID),
            (both, rights(&[8], none, Reach::Initial), both),
            (both | Mode::XGRP, rights(&[8], set, Reach::Initial), Mode::empty()),
            // Root of a container is not one everywhere.
            (both | Mode::XGRP, rights(&[7], set, mapped()), both),
            (both, rights(&[8], set, mapped()), Mode::SUID),
            (both | Mode::XGRP, rights(&[7], set, Reach::Own), both),
            (Mode::XGRP, rights(&[8], none, Reach::Initial), Mode::empty()),
        ] {
            assert_eq!(rights.lost_bits(&status(mode, 5, 7)), lost, "{mode:?} {rights:?}");
        }
    }

    #[test]
    fn the_right_to_set_the_bit_of_the_group_reaches_as_far_as_the_user_namespace() {
        let set = CapabilitySet::FSETID;
        let mapped = || Reach::Mapped { users: vec![(5, 1)], groups: vec![(100, 10), (7, 1)] };
        for (rights, group, may) in [
            (rights(&[7], CapabilitySet::empty(), Reach::Initial), 7, true),
            (rights(&[8], CapabilitySet::empty(), Reach::Initial), 7, false),
            (rights(&[8], set, Reach::Initial), 7, true),
            (rights(&[8], set, mapped()), 7, true),
            (rights(&[8], set, mapped()), 109, true),
            (rights(&[8], set, mapped()), 110, false),
            (rights(&[8], set, mapped()), 99, false),
        ] {
            let status = status(Mode::SGID, 5, group);
            assert_eq!(rights.may_set_group_bit(&status), may, "{group} {rights:?}");
        }
        assert_eq!(ranges("0 1000 1\n  1 100000 65536\n"), Some(vec![(1000, 1), (100_000, 65536)]));
        assert_eq!(ranges("0 x 1\n"), None);
    }

    #[test]
    fn the_rights_of_this_process_are_those_of_its_status() {
        let caller = Caller::here();
        let rights = caller.rights();
        assert!(rights.is_member(caller.group));
        let own = capabilities(None).unwrap().effective;
        assert_eq!(rights.capabilities, own);
        let unseen = Caller { process: 0, user: 1, group: 4242, loses_bits: false };
        assert!(unseen.rights().is_member(4242) && !unseen.rights().sees_trusted());
    }

    #[test]
    fn names_of_attributes_of_the_system_are_for_the_system() {
        let names = b"user.one\0trusted.two\0system.three\0".to_vec();
        let unseen = |user| Caller { process: 0, user, group: 0, loses_bits: false };
        assert_eq!(visible(names.clone(), &unseen(0)), names);
        assert_eq!(visible(names, &unseen(1)), b"user.one\0system.three\0");
    }
}

//! Allocations of XFS, and tasks that find its allocation groups locked.

use crate::code::{ARGUMENTS, Code, END, Helper, KEPT, RESULT, Register, Width};
use crate::counter::{Counter, GROUPS};

use super::writer::{Program, Writer, begun, count, count_at};

/// XFS's name for the header of a group. It is locked for each allocation in the group.
const HEADER: [u8; 8] = *b"xfs_agf\0";

/// Offset below the top of the stack: the name of a buffer.
const NAME: u8 = 16;

impl Writer<'_> {
    pub(super) fn allocations(self) -> Option<Program> {
        let ([context, ..], [mount, ..]) = (KEPT, ARGUMENTS);
        let mut code = begun();
        code.load(mount, Width::Eight, context, 0);
        self.follow(&mut code, mount, "xfs_alloc_arg", "mp")?;
        self.only_of_mount(&mut code, mount)?;
        self.count(&mut code, Counter::Allocations);
        self.at("xfs_alloc_vextent_finish", Some("xfs_alloc_arg"), code)
    }

    /// A lock that is free has a count of 1. A task that asks for it otherwise is about to wait.
    pub(super) fn group_waits(self) -> Option<Program> {
        let (group, [buffer, count, ..]) = (KEPT[1], ARGUMENTS);
        let mut code = begun();
        code.load(buffer, Width::Eight, KEPT[0], 0);
        let free = self.btf.member("xfs_buf", "b_sema")? + self.btf.member("semaphore", "count")?;
        code.load(count, Width::Four, buffer, free);
        code.jump_if_other(count, 0, END);
        self.only_of_groups(&mut code)?;
        code.and_number(group, GROUPS as i32 - 1);
        count_at(&mut code, Counter::GroupWaits, group);
        self.at("xfs_buf_lock", Some("xfs_buf"), code)
    }

    /// The first pass of the allocator tries the locks of groups, and does not wait for them.
    pub(super) fn group_refusals(self) -> Option<Program> {
        let mut code = begun();
        code.load(ARGUMENTS[0], Width::Eight, KEPT[0], 0);
        self.only_of_groups(&mut code)?;
        count(&mut code, Counter::GroupRefusals);
        self.at("xfs_buf_trylock_fail", Some("xfs_buf"), code)
    }

    /// Ends the program if the buffer, its first argument, is not the header of a group. Keeps the
    /// number of the group, and finds the counters.
    fn only_of_groups(self, code: &mut Code) -> Option<()> {
        let [context, group, ..] = KEPT;
        let [buffer, ..] = ARGUMENTS;
        code.load(group, Width::Eight, buffer, self.btf.member("xfs_buf", "b_pag")?);
        code.jump_if_equal(group, 0, END);
        let number = match self.btf.member("xfs_perag", "pag_agno") {
            Some(number) => number,
            None => {
                self.btf.member("xfs_perag", "pag_group")?
                    + self.btf.member("xfs_group", "xg_gno")?
            }
        };
        code.load(group, Width::Four, group, number);
        self.follow(code, buffer, "xfs_buf", "b_mount")?;
        self.only_of_mount(code, buffer)?;
        // The name is no struct of the kernel, so it is read by a call.
        let [to, bytes, from, _] = ARGUMENTS;
        code.load(from, Width::Eight, context, 0);
        self.follow(code, from, "xfs_buf", "b_ops")?;
        code.jump_if_equal(from, 0, END);
        self.follow(code, from, "xfs_buf_ops", "name")?;
        code.address_on_stack(to, NAME);
        code.set(bytes, HEADER.len() as i32);
        code.call(Helper::ReadKernel);
        code.jump_if_other(RESULT, 0, END);
        code.load_from_stack(to, Width::Eight, NAME);
        code.set_wide(bytes, u64::from_ne_bytes(HEADER));
        code.jump_unless_same(to, bytes, END);
        self.find_counters(code);
        Some(())
    }

    /// Ends the program if the mount is not of the file system.
    fn only_of_mount(self, code: &mut Code, mount: Register) -> Option<()> {
        self.follow(code, mount, "xfs_mount", "m_super")?;
        code.load(mount, Width::Four, mount, self.btf.member("super_block", "s_dev")?);
        self.only_on_file_system(code, mount);
        Some(())
    }
}

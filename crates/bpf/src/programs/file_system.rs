//! Pages, workers and journals of one file system.

use crate::code::{ARGUMENTS, END, KEPT, Width};
use crate::counter::Counter;
use crate::place::Kind;

use super::writer::{Program, Writer, add, begun};

/// Flag of a buffer of the XFS log with a commit record (`XLOG_ICL_NEED_FUA`).
const HOLDS_COMMIT: i32 = 2;

impl Writer<'_> {
    pub(super) fn workers(self, workers: &[u64]) -> Option<Program> {
        let [context, ..] = KEPT;
        let [work, known, ..] = ARGUMENTS;
        let mut code = begun();
        let found = code.label();
        code.load(work, Width::Eight, context, 0);
        code.load(work, Width::Eight, work, self.btf.member("work_struct", "func")?);
        for &worker in workers {
            code.set_wide(known, worker);
            code.jump_if_same(work, known, found);
        }
        code.jump(END);
        code.place(found);
        self.count(&mut code, Counter::WorkerRuns);
        self.at("workqueue_execute_start", Some("work_struct"), code)
    }

    /// ext4 reports the pages of each run. For other file systems the background writeback of an
    /// inode reports how many pages it may write, and its control how many of these are left.
    pub(super) fn writeback(self) -> Option<Program> {
        let [context, _, _, pages] = KEPT;
        let [inode, _, control, ..] = ARGUMENTS;
        let mut code = begun();
        code.load(inode, Width::Eight, context, 0);
        self.follow(&mut code, inode, "inode", "i_sb")?;
        code.load(inode, Width::Four, inode, self.btf.member("super_block", "s_dev")?);
        self.only_on_file_system(&mut code, inode);
        let tracepoint = match self.place.file_system.kind {
            Kind::Ext4 => {
                code.load(pages, Width::Eight, context, 24);
                code.copy_lower(pages, pages);
                "ext4_writepages_result"
            }
            Kind::Xfs | Kind::Other => {
                code.load(pages, Width::Eight, context, 16);
                code.load(control, Width::Eight, context, 8);
                let left = self.btf.member("writeback_control", "nr_to_write")?;
                code.load(control, Width::Eight, control, left);
                code.subtract(pages, control);
                "writeback_single_inode"
            }
        };
        code.jump_if_not_above_zero(pages, END);
        self.count(&mut code, Counter::WritebackRuns);
        add(&mut code, Counter::WritebackPages, pages);
        self.at(tracepoint, Some("inode"), code)
    }

    pub(super) fn commits(self) -> Option<Program> {
        let [context, ..] = KEPT;
        let [number, flags, ..] = ARGUMENTS;
        let mut code = begun();
        code.load(number, Width::Eight, context, 0);
        let (tracepoint, first) = match self.place.file_system.kind {
            Kind::Ext4 => {
                self.follow(&mut code, number, "journal_s", "j_fs_dev")?;
                code.load(number, Width::Four, number, self.btf.member("block_device", "bd_dev")?);
                ("jbd2_end_commit", "journal_s")
            }
            Kind::Xfs => {
                let member = self.btf.member("xlog_in_core", "ic_flags")?;
                code.load(flags, Width::Four, number, member);
                code.and_number(flags, HOLDS_COMMIT);
                code.jump_if_equal(flags, 0, END);
                self.follow(&mut code, number, "xlog_in_core", "ic_log")?;
                self.follow(&mut code, number, "xlog", "l_mp")?;
                self.follow(&mut code, number, "xfs_mount", "m_super")?;
                code.load(number, Width::Four, number, self.btf.member("super_block", "s_dev")?);
                ("xlog_iclog_write", "xlog_in_core")
            }
            Kind::Other => return None,
        };
        self.only_on_file_system(&mut code, number);
        self.count(&mut code, Counter::Commits);
        self.at(tracepoint, Some(first), code)
    }
}

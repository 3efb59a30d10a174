//! Requests on one disk: from the bio to the completion.

use crate::code::{ARGUMENTS, END, Helper, KEPT, RESULT, Width};
use crate::counter::Counter;
use crate::place::Disk;

use super::writer::{Program, Writer, add, begun, count, of_block, offset};

/// Number of a flush among the operations of a request, and the bits of an operation.
const OPERATION_FLUSH: i32 = 2;
const OPERATION_BITS: i32 = 0xff;

/// Requests that a plug holds (`BLK_MAX_REQUEST_COUNT`).
const FULL_PLUG: i32 = 32;

impl Writer<'_> {
    pub(super) fn requests(self, disk: Disk) -> Option<Vec<Program>> {
        let [context, what, _, bytes] = KEPT;
        let [disk_of_it, ..] = ARGUMENTS;
        let of_bio = |counter| {
            let mut code = begun();
            code.load(disk_of_it, Width::Eight, context, 0);
            self.follow(&mut code, disk_of_it, "bio", "bi_bdev")?;
            self.follow(&mut code, disk_of_it, "block_device", "bd_disk")?;
            self.only_of(&mut code, disk_of_it, disk)?;
            self.count(&mut code, counter);
            Some(code)
        };

        let mut made = of_bio(Counter::Made)?;
        let (plugged, counted) = (what, made.label());
        made.call(Helper::CurrentTask);
        self.follow(&mut made, RESULT, "task_struct", "plug")?;
        made.set(plugged, 0);
        made.jump_if_equal(RESULT, 0, counted);
        made.load(plugged, Width::Two, RESULT, self.btf.member("blk_plug", "rq_count")?);
        // The request is about to be added.
        made.add_number(plugged, 1);
        made.place(counted);
        made.store(KEPT[2], offset(Counter::Plugged), plugged);

        let of_request = |counter| {
            let mut code = begun();
            self.request(&mut code, disk)?;
            self.count(&mut code, counter);
            Some(code)
        };

        let mut issues = begun();
        self.request(&mut issues, disk)?;
        issues.load(what, Width::Eight, context, 0);
        issues.load(bytes, Width::Four, what, self.btf.member("request", "__data_len")?);
        self.count(&mut issues, Counter::Issues);
        add(&mut issues, Counter::IssuedBytes, bytes);

        Some(vec![
            self.at("block_bio_queue", Some("bio"), of_bio(Counter::Bios)?)?,
            self.at("block_getrq", Some("bio"), made)?,
            self.unplug(disk)?,
            self.at("block_rq_insert", Some("request"), of_request(Counter::Inserts)?)?,
            self.at("block_rq_issue", Some("request"), issues)?,
            self.at("block_rq_requeue", Some("request"), of_request(Counter::Requeues)?)?,
        ])
    }

    pub(super) fn unplug(self, disk: Disk) -> Option<Program> {
        let [context, _, _, depth] = KEPT;
        let [asked, queue, ..] = ARGUMENTS;
        let mut code = begun();
        code.load(queue, Width::Eight, context, 0);
        self.only_on(&mut code, queue, disk)?;
        code.load(depth, Width::Eight, context, 8);
        code.copy_lower(depth, depth);
        self.find_counters(&mut code);
        code.load(queue, Width::Eight, KEPT[2], offset(Counter::Plugged));
        code.jump_if_less(queue, depth, END);
        code.subtract(queue, depth);
        code.store(KEPT[2], offset(Counter::Plugged), queue);
        let (sleeping, not_full) = (code.label(), code.label());
        code.jump_if_below(depth, FULL_PLUG, not_full);
        count(&mut code, Counter::FullUnplugs);
        code.place(not_full);
        code.load(asked, Width::Eight, context, 16);
        // A truth value: only its lowest byte is valid.
        code.and_number(asked, 0xff);
        code.jump_if_equal(asked, 0, sleeping);
        count(&mut code, Counter::AskedUnplugs);
        add(&mut code, Counter::AskedRequests, depth);
        code.jump(END);
        code.place(sleeping);
        count(&mut code, Counter::SleepingUnplugs);
        add(&mut code, Counter::SleepingRequests, depth);
        self.at("block_unplug", Some("request_queue"), code)
    }

    pub(super) fn flushes(self, disk: Disk) -> Option<Program> {
        let [context, operation, ..] = KEPT;
        let mut code = begun();
        self.request(&mut code, disk)?;
        code.load(operation, Width::Eight, context, 0);
        code.load(operation, Width::Four, operation, self.btf.member("request", "cmd_flags")?);
        code.and_number(operation, OPERATION_BITS);
        code.jump_if_other(operation, OPERATION_FLUSH, END);
        self.count(&mut code, Counter::Flushes);
        self.at("block_rq_issue", Some("request"), code)
    }

    pub(super) fn completions(self, disk: Disk) -> Option<Vec<Program>> {
        let [_, _, counters, _] = KEPT;
        let [value, last, ..] = ARGUMENTS;
        let mut code = begun();
        self.request(&mut code, disk)?;
        self.count(&mut code, Counter::Completions);
        let (soft, polled) = (code.label(), code.label());
        let interrupts = [
            (Counter::InInterrupt, Counter::Interrupts, Counter::LastInterrupt, soft),
            (Counter::InSoftInterrupt, Counter::SoftInterrupts, Counter::LastSoftInterrupt, polled),
        ];
        for (inside, number, last_number, otherwise) in interrupts {
            code.load(value, Width::Eight, counters, offset(inside));
            code.jump_if_equal(value, 0, otherwise);
            code.load(value, Width::Eight, counters, offset(number));
            code.load(last, Width::Eight, counters, offset(last_number));
            code.jump_if_same(value, last, END);
            code.store(counters, offset(last_number), value);
            count(&mut code, Counter::CompletionRuns);
            code.jump(END);
            code.place(otherwise);
        }
        count(&mut code, Counter::PolledCompletions);

        let mut interrupt = begun();
        self.enter(&mut interrupt, Counter::Interrupts, Counter::InInterrupt);
        let mut interrupt_over = begun();
        self.leave(&mut interrupt_over, Counter::InInterrupt);
        let mut soft_interrupt = begun();
        of_block(&mut soft_interrupt);
        self.enter(&mut soft_interrupt, Counter::SoftInterrupts, Counter::InSoftInterrupt);
        let mut soft_interrupt_over = begun();
        of_block(&mut soft_interrupt_over);
        self.leave(&mut soft_interrupt_over, Counter::InSoftInterrupt);
        Some(vec![
            self.at("irq_handler_entry", None, interrupt)?,
            self.at("irq_handler_exit", None, interrupt_over)?,
            self.at("softirq_entry", None, soft_interrupt)?,
            self.at("softirq_exit", None, soft_interrupt_over)?,
            // Last: it needs the state that the others keep.
            self.at("block_rq_complete", Some("request"), code)?,
        ])
    }
}

//! Every option of a job file with its effect, or the reason for none. The parser, the messages and
//! the tests know no option themselves.
//!
//! An option that makes it another job if it is left out, and that is not there yet, is
//! *unsupported*: an error. One that changes how fio itself works, or reports, is *without effect*.

use std::path::{Component, Path};

use super::draft::{Draft, file_name_format, split_paths};
use super::value::{Unit, Value};
use crate::job::{
    Access, Amount, BlockSize, Create, Direction, Fallocate, FinalSync, IoEngine, NextFile, Order,
    RandomMap,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// It goes into the job.
    Honoured,
    /// It is accepted, and the reason why it does nothing is reported.
    WithoutEffect(&'static str),
    /// It is known and cannot be done without changing the job.
    Unsupported(&'static str),
}

pub(super) fn class(name: &str) -> Option<Class> {
    if HONOURED.contains(&name) {
        return Some(Class::Honoured);
    }
    let reason = |table: &[(&'static str, &str)]| {
        let has = |names: &str| names.split_whitespace().any(|one| one == name);
        table.iter().find(|(_, names)| has(names)).map(|(why, _)| *why)
    };
    let without = reason(WITHOUT_EFFECT).map(Class::WithoutEffect);
    without.or_else(|| reason(UNSUPPORTED).map(Class::Unsupported))
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let others = WITHOUT_EFFECT.iter().chain(UNSUPPORTED);
    HONOURED.iter().copied().chain(others.flat_map(|(_, names)| names.split_whitespace()))
}

const MOST_OPERATIONS: u64 = 1 << 60;
const FROM_DUE: &str = "latencies count from when an operation was due, started or not";

/// Declares the options that go into a job. One that is not obeyed to the letter sets `reduced` to
/// the reason.
macro_rules! honoured {
    (($draft:ident, $value:ident, $reduced:ident) $($($name:literal)|+ => $effect:expr;)*) => {
        const HONOURED: &[&str] = &[$($($name),+),*];

        /// Puts the value of an honoured option into a draft. Returns the reason if it is not
        /// obeyed to the letter.
        pub(super) fn honour(
            $draft: &mut Draft,
            name: &str,
            $value: Value<'_>,
        ) -> Result<Option<&'static str>, String> {
            let mut $reduced = None;
            match name {
                $($($name)|+ => $effect,)*
                _ => unreachable!("{name} is not honoured"),
            }
            Ok($reduced)
        }
    };
}

honoured! { (draft, value, reduced)
    // Operations.
    "rw" | "readwrite" => draft.job.access = access(value)?;
    "rwmixread" => draft.read_percent = value.number(0, 100)? as u8;
    "rwmixwrite" => draft.read_percent = 100 - value.number(0, 100)? as u8;
    "bs" | "blocksize" => value.each(Value::block, blocks(draft))?;
    "bsrange" | "blocksize_range" => value.each(Value::block_range, blocks(draft))?;
    "bssplit" => value.each(Value::block_split, blocks(draft))?;
    "size" => draft.job.size = Some(value.amount()?);
    // fio takes zero for none.
    "io_size" | "io_limit" => {
        draft.job.io_bytes = Some(value.amount()?).filter(|amount| *amount != Amount::Bytes(0));
    };
    "number_ios" => draft.job.operations = Some(value.number(1, MOST_OPERATIONS)?);
    "loops" => draft.job.loops = value.count(1, 1_000_000)?;
    "numjobs" => draft.clones = value.count(1, 4096)?;
    "stonewall" | "wait_for_previous" => draft.stonewall = value.boolean()?;

    // On what.
    "filename" => draft.file_names = split_paths(value.text()?)?;
    "directory" => draft.directories = split_paths(value.text()?)?;
    "filename_format" => draft.file_name_format = file_name_format(value.text()?)?;
    "nrfiles" => draft.files = value.count(1, 65_536)?;
    "filesize" => draft.job.file_size = Some(value.file_size()?);
    "file_service_type" => (draft.job.next_file, reduced) = next_file(value)?;
    "offset" => draft.job.offset = value.amount()?;
    "offset_increment" => draft.job.offset_increment = value.bytes()?;
    "create_on_open" => {
        draft.job.create = if value.boolean()? { Create::OnOpen } else { Create::Before };
    };
    "fallocate" => draft.job.fallocate = value.choice(&[
        ("none", Fallocate::None),
        ("native", Fallocate::Native),
        ("posix", Fallocate::Native),
        ("keep", Fallocate::KeepSize),
        ("truncate", Fallocate::Truncate),
        ("0", Fallocate::None),
        ("1", Fallocate::Native),
    ])?;
    "overwrite" => draft.job.overwrite = value.boolean()?.into();
    "unlink" => draft.job.unlink = value.boolean()?.into();
    "invalidate" => draft.job.invalidate = value.boolean()?.into();

    // In what way.
    "ioengine" => (draft.job.io_engine, reduced) = value.choice(&[
        ("sync", (IoEngine::Calls, None)),
        ("psync", (IoEngine::Calls, None)),
        ("vsync", (IoEngine::Calls, Some("neighbours are not gathered into one call"))),
        ("pvsync", (IoEngine::Calls, None)),
        ("pvsync2", (IoEngine::Calls, None)),
        ("io_uring", (IoEngine::Ring, None)),
        ("libaio", (IoEngine::Ring, Some("served by io_uring at the same depth"))),
        ("posixaio", (IoEngine::Ring, Some("served by io_uring at the same depth"))),
        ("null", (IoEngine::Null, None)),
    ])?;
    "iodepth" => draft.job.depth = value.count(1, 32_768)?;
    "iodepth_batch" | "iodepth_batch_submit" => {
        draft.job.submit_batch = Some(value.count(0, 32_768)?).filter(|batch| *batch > 0);
    };
    "iodepth_batch_complete" | "iodepth_batch_complete_min" => {
        draft.job.complete_batch = value.count(0, 32_768)?.max(1);
    };
    "direct" => draft.direct = value.boolean()?;
    "buffered" => draft.direct = !value.boolean()?;
    "uncached" => draft.uncached = value.boolean()?;
    "hipri" => if value.boolean()? {
        return Err("completions are not polled for (set hipri=0)".to_owned());
    };

    // Durably.
    "fsync" => draft.job.fsync_every = value.count(0, u32::MAX)?;
    "fdatasync" => draft.job.fdatasync_every = value.count(0, u32::MAX)?;
    "end_fsync" | "fsync_on_close" => if value.boolean()? {
        draft.job.final_sync = FinalSync::All;
    } else {
        draft.job.final_sync = FinalSync::Data;
        reduced = Some("a write clock always stops after a final sync");
    };
    "sync" => {
        let job = &mut draft.job;
        (job.fsync_every, job.fdatasync_every) = value.choice(&[
            ("none", (0, 0)),
            ("0", (0, 0)),
            ("sync", (1, 0)),
            ("1", (1, 0)),
            ("dsync", (0, 1)),
        ])?;
        if job.fsync_every + job.fdatasync_every > 0 {
            reduced = Some("a sync call after each write, in place of O_SYNC or O_DSYNC");
        }
    };

    // When, and how long.
    "runtime" | "timeout" => {
        draft.job.runtime_us = Some(value.time_us(Unit::Seconds)?).filter(|us| *us > 0);
    };
    "time_based" => draft.job.time_based = value.boolean()?.into();
    "ramp_time" => draft.job.ramp_us = value.time_us(Unit::Seconds)?;
    "startdelay" => {
        let text = value.text()?;
        let first = text.split_once('-').map(|(first, _)| first);
        reduced = first.map(|_| "the shortest of the range is taken");
        draft.job.start_delay_us = value.with(first.unwrap_or(text)).time_us(Unit::Seconds)?;
    };
    "rate" => {
        let pace = &mut draft.job.pace;
        value.each(Value::bytes, [&mut pace.read.bytes_per_s, &mut pace.write.bytes_per_s])?;
        reduced = Some(FROM_DUE);
    };
    "rate_iops" => {
        let pace = &mut draft.job.pace;
        let rates = [&mut pace.read.operations_per_s, &mut pace.write.operations_per_s];
        value.each(|value| value.number(0, MOST_OPERATIONS), rates)?;
        reduced = Some(FROM_DUE);
    };
    "thinktime" => draft.job.pace.think_us = value.time_us(Unit::Microseconds)?;
    "thinktime_blocks" => draft.job.pace.think_operations = value.count(1, u32::MAX)?;

    // At random.
    "randseed" => draft.job.seed = Some(value.number(0, u64::MAX)?);
    "norandommap" => draft.job.random_map = match value.boolean()? {
        true => RandomMap::WithReplacement,
        false => RandomMap::EachOnce,
    };
    "random_distribution" => if value.text()? != "random" {
        reduced = Some("random offsets are spread evenly over the range");
    };

    // Verification, processors, units.
    "verify" => {
        draft.verify = !matches!(value.text()?, "0" | "none" | "null");
        reduced = draft.verify.then_some("ignored: every byte written is compared");
    };
    "do_verify" => draft.do_verify = value.boolean()?;
    "cpus_allowed" => draft.job.cpus = value.numbers()?;
    "kb_base" => {};
}

fn access(value: Value<'_>) -> Result<Access, String> {
    if value.text()?.contains(':') {
        return Err("steps after a colon are not supported; allowed: the order alone".to_owned());
    }
    // The share is another option's.
    let mixed = Direction::Mixed { read_percent: 50 };
    let (direction, order) = value.choice(&[
        ("read", (Direction::Read, Order::Sequential)),
        ("write", (Direction::Write, Order::Sequential)),
        ("randread", (Direction::Read, Order::Random)),
        ("randwrite", (Direction::Write, Order::Random)),
        ("rw", (mixed, Order::Sequential)),
        ("readwrite", (mixed, Order::Sequential)),
        ("randrw", (mixed, Order::Random)),
    ])?;
    Ok(Access { direction, order })
}

fn blocks(draft: &mut Draft) -> [&mut BlockSize; 2] {
    let blocks = &mut draft.job.blocks;
    [&mut blocks.read, &mut blocks.write]
}

fn next_file(value: Value<'_>) -> Result<(NextFile, Option<&'static str>), String> {
    let name = value.text()?;
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    if ["zipf", "pareto", "normal", "gauss"].contains(&name) {
        return Ok((NextFile::Random, Some("files are chosen evenly")));
    }
    let next_file = value.with(name).choice(&[
        ("roundrobin", NextFile::RoundRobin),
        ("random", NextFile::Random),
        ("sequential", NextFile::Sequential),
    ])?;
    Ok((next_file, None))
}

/// Options that do nothing here: the reason, and their names.
#[rustfmt::skip]
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    // On what.
    ("all files of a job are open at once", "openfiles"),
    ("there are no network clients", "unique_filename"),
    ("jobs do not lock their files against each other", "lockfile"),
    ("ignored: no hint is given", "fadvise_hint write_hint"),
    ("files are laid out one after the other and synced", "create_serialize create_fsync"),
    ("files that are missing are made", "allow_file_create"),
    ("a mounted device is never written", "allow_mounted_write"),
    ("the kernel's page cache is filled and emptied by the arm", "pre_read"),
    ("files are removed at the end, with unlink=1", "unlink_each_loop"),
    // In what way.
    ("completions are waited for one batch at a time", "iodepth_batch_complete_max iodepth_low"),
    ("a job's blocks in flight do not overlap unless norandommap is set", "serialize_overlap"),
    ("a job's own thread submits", "io_submit_mode"),
    ("completions are not polled for", "hipri_percentage"),
    ("the ring is set up as this kernel does it best",
        "registerfiles sqthread_poll sqthread_poll_cpu force_async nowait userspace_reap \
         libaio_vectored"),
    ("all operations have the same priority",
        "cmdprio cmdprio_percentage cmdprio_class cmdprio_bssplit cmdprio_split"),
    ("buffers are single, of ordinary memory, aligned to 4096 bytes, and not registered",
        "mem iomem mem_align iomem_align hugepage-size lockmem fixedbufs nonvectored"),
    ("the arm kernel-bounded does that, by the memory budget", "sync_file_range"),
    ("there are no barriers; use fsync=", "write_barrier"),
    // When, and how long.
    ("a thinking job sleeps after operations that were started",
        "thinktime_spin thinktime_blocks_type thinktime_iotime"),
    ("operations are spaced evenly over the whole run; a job that is too slow goes on",
        "rate_process rate_cycle ratecycle rate_ignore_thinktime rate_min ratemin rate_iops_min"),
    ("the depth stays what iodepth says",
        "latency_target latency_window latency_percentile latency_run max_latency"),
    ("jobs are not throttled by each other; give rate= or rate_iops=",
        "flow flow_id flow_watermark flow_sleep"),
    ("every job ends by its own work or runtime; an error ends all",
        "steadystate ss steadystate_duration ss_dur steadystate_ramp_time ss_ramp exitall \
         exit_what exitall_on_error"),
    // At random.
    ("runs repeat for the same --seed, and differ for another", "randrepeat allrandrepeat"),
    ("the order is a permutation worked out from the seed", "random_generator softrandommap"),
    ("an order is either random or sequential", "percentage_random"),
    ("each operation is drawn by itself", "rwmixcycle rw_sequencer"),
    ("offsets and sizes are multiples of the smallest block",
        "blockalign ba offset_align bs_unaligned blocksize_unaligned"),
    ("sizes are given for reads and writes", "bs_is_seq_rand"),
    // Data and verification.
    ("verification compares every byte once, after the job",
        "verify_backlog verify_backlog_batch verify_async verify_async_cpus verify_interval \
         header_interval verify_offset header_offset verifysort verifysort_nr verify_state_save \
         verify_state_load experimental_verify verify_write_sequence"),
    ("data always depends on seed, file and offset, so that it can be verified",
        "verify_pattern verify_pattern_interval buffer_pattern zero_buffers refill_buffers \
         scramble_buffers buffer_compress_percentage buffer_compress_chunk dedupe_percentage \
         dedupe_mode dedupe_working_set_percentage dedupe_global"),
    ("the first wrong byte ends the run and is named", "verify_fatal verify_dump"),
    // Where it runs.
    ("give the processors with cpus_allowed=", "cpumask"),
    ("all jobs of a section share its processors", "cpus_allowed_policy"),
    ("set it for the whole program, with the system's own tools",
        "numa_cpu_nodes numa_mem_policy nice prio prioclass uid gid cgroup cgroup_weight \
         cgroup_nodelete"),
    ("the device keeps its scheduler", "ioscheduler"),
    ("a job is always a thread", "thread"),
    ("no commands are run; run them around this program", "exec_prerun exec_postrun"),
    // Reporting.
    ("a job's name is that of its section", "name"),
    ("there is a row for each job and one for all", "group_reporting"),
    ("groups are what stonewall makes", "new_group"),
    ("reads and writes are reported apart", "unified_rw_reporting"),
    ("the clock is read twice an operation", "gtod_reduce gtod_cpu clocksource"),
    ("the report has its own columns",
        "description unit_base stats clat_percentiles slat_percentiles lat_percentiles \
         percentile_list significant_figures disk_util disable_lat disable_clat disable_slat \
         disable_bw_measurement disable_bw"),
    ("no log files are written",
        "write_bw_log write_lat_log write_iops_log write_hist_log write_iolog log_avg_msec \
         log_offset log_hist_msec log_hist_coarseness log_max_value log_prio log_entries \
         log_compression log_compression_cpus log_store_compressed log_unix_epoch \
         log_alternate_epoch log_alternate_epoch_clock_id log_window_value log_issue_time \
         per_job_logs bwavgtime iopsavgtime"),
    ("there are no trims", "block_error_percentiles"),
    ("the first error ends the run", "ignore_error continue_on_error error_dump"),
];

/// Options without which the job would be another one: the reason, and their names.
#[rustfmt::skip]
const UNSUPPORTED: &[(&str, &str)] = &[
    ("files have to be named", "opendir"),
    ("filling a device to its end is not supported", "fill_device fill_fs"),
    ("starting at the end of a file is not supported; give offset=", "file_append"),
    ("there is nothing to measure in making files alone", "create_only"),
    ("atomic writes are not supported", "atomic"),
    ("waiting for one job is not supported; use stonewall", "wait_for"),
    ("only what this run wrote can be verified", "verify_only"),
    ("there are no trims",
        "trim_percentage trim_verify_zero trim_backlog trim_backlog_batch num_range"),
    ("operations come from the job, never from a trace",
        "read_iolog replay_redirect replay_no_stall replay_scale replay_align replay_time_scale \
         replay_skip read_iolog_chunked merge_blktrace_file merge_blktrace_scalars \
         merge_blktrace_iters"),
    ("zoned devices are not supported",
        "zonemode zonesize zonerange zoneskip zonecapacity read_beyond_wp max_open_zones \
         job_max_open_zones ignore_zone_limits zone_reset_threshold zone_reset_frequency"),
    ("a built-in profile of fio is not a job", "profile"),
];

/// Returns what an option that does nothing here makes fio itself do outside the directory it runs
/// in. A user who gives an unchanged job file to fio has to know it.
pub(super) fn reach(name: &str, value: Value<'_>) -> Option<&'static str> {
    let text = value.text().unwrap_or_default();
    let leads_out = |path: &str| {
        let mut parts = Path::new(path).components();
        parts.any(|part| matches!(part, Component::RootDir | Component::ParentDir))
    };
    match name {
        "ioscheduler" => Some("fio would switch the device's scheduler, and leave it so"),
        "exec_prerun" | "exec_postrun" => Some("fio would run the command"),
        "cgroup" => Some("fio would make a control group"),
        "unlink_each_loop" => {
            value.boolean().unwrap_or(true).then_some("fio would remove files between two loops")
        }
        "write_iolog" | "write_bw_log" | "write_lat_log" | "write_iops_log" | "write_hist_log" => {
            leads_out(text).then_some("fio would write its log there")
        }
        // fio makes, cuts and removes a file that it maps.
        "mem" | "iomem" => {
            let file = text.split_once(':').map(|(_, file)| file);
            file.is_some_and(leads_out).then_some("fio would write over that file")
        }
        _ => None,
    }
}

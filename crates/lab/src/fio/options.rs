//! Every option of a job file with its effect, or the reason for none. The one table: the parser,
//! the messages and the tests read it and know no option themselves.
//! Sorted by what they are about. An option that would make it a different job if it were left out,
//! and that is not there yet, is *unsupported*: an error. One that changes how fio itself works, or
//! reports, is *without effect*.

use super::draft::{self, Draft, Effect, split_paths};
use super::value::{Unit, Value, ValueError};
use crate::job::{
    Access, Amount, Create, Direction, Fallocate, FinalSync, IoEngine, NextFile, Order, RandomMap,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct JobOption {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) class: Class,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    /// It goes into the job.
    Honoured(fn(&mut Draft, Value<'_>) -> Result<Effect, ValueError>),
    /// It is accepted, and the reason why it does nothing is reported.
    WithoutEffect(&'static str),
    /// It is known and cannot be done without changing the job.
    Unsupported(&'static str),
}

/// By any of its names.
pub(crate) fn find(name: &str) -> Option<&'static JobOption> {
    OPTIONS.iter().find(|option| option.name == name || option.aliases.contains(&name))
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS
        .iter()
        .flat_map(|option| std::iter::once(option.name).chain(option.aliases.iter().copied()))
}

const WHOLE: Result<Effect, ValueError> = Ok(Effect::Whole);
const MOST_OPERATIONS: u64 = 1 << 60;

macro_rules! options {
    ($($name:literal $(| $alias:literal)* => $class:ident($what:expr);)*) => {
        &[$(JobOption { name: $name, aliases: &[$($alias),*], class: Class::$class($what) }),*]
    };
}

/// An option that is obeyed to the letter: it sets one field.
macro_rules! set {
    ($($field:ident).+ = |$value:ident| $parsed:expr) => {
        |draft: &mut Draft, $value: Value<'_>| {
            draft.$($field).+ = $parsed;
            WHOLE
        }
    };
}

const REPORTING: &str = "the report has its own columns";
const LOGS: &str = "no log files are written";
const DATA: &str = "data always depends on seed, file and offset, so that it can be verified";
const UNIFORM: &str = "random offsets are spread evenly over the range";
const VERIFYING: &str = "verification compares every byte once, after the job";
const RING: &str = "the ring is set up as this kernel does it best";
const SCHEDULING: &str = "set it for the whole program, with the system's own tools";
const BATCHES: &str = "completions are waited for one batch at a time";
const ERRORS: &str = "the first error ends the run";
const TRIM: &str = "there are no trims";
const ZONES: &str = "zoned devices are not supported";
const REPLAY: &str = "operations come from the job, never from a trace";
const FROM_DUE: &str = "latencies count from when an operation was due, started or not";
const LATENCY_TARGET: &str = "the depth stays what iodepth says";
const PROBE: &str = "the kernel's page cache is filled and emptied by the arm";

pub(crate) const OPTIONS: &[JobOption] = options! {
    // Operations.
    "rw" | "readwrite" => Honoured(|draft, value| {
        if value.text()?.contains(':') {
            return Err(ValueError("steps after a colon are not supported; allowed: the order alone".into()));
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
        draft.job.access = Access { direction, order };
        WHOLE
    });
    "rwmixread" => Honoured(set!(read_percent = |value| value.number(0, 100)? as u8));
    "rwmixwrite" => Honoured(set!(read_percent = |value| 100 - value.number(0, 100)? as u8));
    "bs" | "blocksize" => Honoured(|draft, value| {
        let blocks = &mut draft.job.blocks;
        Draft::each_direction(value, Value::block, [&mut blocks.read, &mut blocks.write])
    });
    "bsrange" | "blocksize_range" => Honoured(|draft, value| {
        let blocks = &mut draft.job.blocks;
        Draft::each_direction(value, Value::block_range, [&mut blocks.read, &mut blocks.write])
    });
    "bssplit" => Honoured(|draft, value| {
        let blocks = &mut draft.job.blocks;
        Draft::each_direction(value, Value::block_split, [&mut blocks.read, &mut blocks.write])
    });
    "size" => Honoured(set!(job.size = |value| Some(value.amount()?)));
    "io_size" | "io_limit" => Honoured(set!(job.io_bytes = |value| {
        // None is what fio takes it for.
        Some(value.amount()?).filter(|amount| *amount != Amount::Bytes(0))
    }));
    "number_ios" => Honoured(set!(job.operations = |value| {
        Some(value.number(1, MOST_OPERATIONS)?)
    }));
    "loops" => Honoured(set!(job.loops = |value| value.number(1, 1_000_000)? as u32));
    "numjobs" => Honoured(set!(clones = |value| value.number(1, 4096)? as u32));
    "stonewall" | "wait_for_previous" => Honoured(set!(stonewall = |value| value.boolean()?));

    // On what.
    "filename" => Honoured(set!(file_names = |value| split_paths(value.text()?)?));
    "directory" => Honoured(set!(directories = |value| {
        split_paths(value.text()?)?.into_iter().map(Into::into).collect()
    }));
    "filename_format" => Honoured(set!(file_name_format = |value| {
        draft::file_name_format(value.text()?)?
    }));
    "nrfiles" => Honoured(set!(files = |value| value.number(1, 65_536)? as u32));
    "filesize" => Honoured(set!(job.file_size = |value| Some(value.file_size()?)));
    "file_service_type" => Honoured(|draft, value| {
        let name = value.text()?;
        let name = name.split_once(':').map_or(name, |(name, _)| name);
        let near = &[("zipf", ()), ("pareto", ()), ("normal", ()), ("gauss", ())];
        if (Value { text: Some(name), ..value }).choice(near).is_ok() {
            draft.job.next_file = NextFile::Random;
            return Ok(Effect::Reduced("files are chosen evenly"));
        }
        draft.job.next_file = Value { text: Some(name), ..value }.choice(&[
            ("roundrobin", NextFile::RoundRobin),
            ("random", NextFile::Random),
            ("sequential", NextFile::Sequential),
        ])?;
        WHOLE
    });
    "offset" => Honoured(set!(job.offset = |value| value.amount()?));
    "offset_increment" => Honoured(set!(job.offset_increment = |value| value.bytes()?));
    "create_on_open" => Honoured(set!(job.create = |value| {
        if value.boolean()? { Create::OnOpen } else { Create::Before }
    }));
    "fallocate" => Honoured(|draft, value| {
        draft.job.fallocate = value.choice(&[
            ("none", Fallocate::None),
            ("native", Fallocate::Native),
            ("posix", Fallocate::Native),
            ("keep", Fallocate::KeepSize),
            ("truncate", Fallocate::Truncate),
            ("0", Fallocate::None),
            ("1", Fallocate::Native),
        ])?;
        WHOLE
    });
    "overwrite" => Honoured(set!(job.overwrite = |value| value.boolean()?.into()));
    "unlink" => Honoured(set!(job.unlink = |value| value.boolean()?.into()));
    "invalidate" => Honoured(set!(job.invalidate = |value| value.boolean()?.into()));
    "openfiles" => WithoutEffect("all files of a job are open at once");
    "unique_filename" => WithoutEffect("there are no network clients");
    "lockfile" => WithoutEffect("jobs do not lock their files against each other");
    "fadvise_hint" => WithoutEffect("ignored: no hint is given");
    "write_hint" => WithoutEffect("no lifetime hint is given");
    "create_serialize" | "create_fsync" => WithoutEffect("files are laid out one after the other and synced");
    "allow_file_create" => WithoutEffect("files that are missing are made");
    "allow_mounted_write" => WithoutEffect("a mounted device is never written");
    "pre_read" => WithoutEffect(PROBE);
    "unlink_each_loop" => WithoutEffect("files are removed at the end, with unlink=1");
    "opendir" => Unsupported("files have to be named");
    "fill_device" | "fill_fs" => Unsupported("filling a device to its end is not supported");
    "file_append" => Unsupported("starting at the end of a file is not supported; give offset=");
    "create_only" => Unsupported("there is nothing to measure in making files alone");

    // In what way.
    "ioengine" => Honoured(|draft, value| {
        let name = value.text()?;
        draft.job.io_engine = value.choice(&[
            ("sync", IoEngine::Calls),
            ("psync", IoEngine::Calls),
            ("vsync", IoEngine::Calls),
            ("pvsync", IoEngine::Calls),
            ("pvsync2", IoEngine::Calls),
            ("io_uring", IoEngine::Ring),
            ("libaio", IoEngine::Ring),
            ("posixaio", IoEngine::Ring),
            ("null", IoEngine::Null),
        ])?;
        Ok(match name {
            "libaio" | "posixaio" => Effect::Reduced("served by io_uring at the same depth"),
            "vsync" => Effect::Reduced("neighbours are not gathered into one call"),
            _ => Effect::Whole,
        })
    });
    "iodepth" => Honoured(set!(job.depth = |value| value.number(1, 32_768)? as u32));
    "iodepth_batch" | "iodepth_batch_submit" => Honoured(|draft, value| {
        let batch = value.number(0, 32_768)? as u32;
        draft.job.submit_batch = (batch > 0).then_some(batch);
        WHOLE
    });
    "iodepth_batch_complete" | "iodepth_batch_complete_min" =>
        Honoured(set!(job.complete_batch = |value| {
            value.number(0, 32_768)?.max(1) as u32
        }));
    "direct" => Honoured(set!(direct = |value| value.boolean()?));
    "buffered" => Honoured(set!(direct = |value| !value.boolean()?));
    "uncached" => Honoured(set!(uncached = |value| value.boolean()?));
    "iodepth_batch_complete_max" => WithoutEffect(BATCHES);
    "iodepth_low" => WithoutEffect(BATCHES);
    "serialize_overlap" => WithoutEffect("a job's blocks in flight do not overlap unless norandommap is set");
    "io_submit_mode" => WithoutEffect("a job's own thread submits");
    "atomic" => Unsupported("atomic writes are not supported");
    "hipri" => Honoured(|_, value| match value.boolean()? {
        true => Err(ValueError("completions are not polled for (set hipri=0)".into())),
        false => WHOLE,
    });
    "hipri_percentage" => WithoutEffect("completions are not polled for");
    "fixedbufs" => WithoutEffect("buffers are not registered with the ring");
    "registerfiles" => WithoutEffect(RING);
    "nonvectored" => WithoutEffect("buffers are single, never vectors");
    "sqthread_poll" | "sqthread_poll_cpu" => WithoutEffect(RING);
    "force_async" => WithoutEffect(RING);
    "nowait" => WithoutEffect(RING);
    "cmdprio_percentage" | "cmdprio_class" | "cmdprio" | "cmdprio_bssplit" | "cmdprio_split" =>
        WithoutEffect("all operations have the same priority");
    "userspace_reap" | "libaio_vectored" => WithoutEffect(RING);
    "mem" | "iomem" => WithoutEffect("buffers are ordinary memory");
    "iomem_align" | "mem_align" => WithoutEffect("buffers are aligned to 4096 bytes");
    "hugepage-size" => WithoutEffect("buffers are ordinary memory");
    "lockmem" => WithoutEffect("no memory is taken from the system");

    // Durably.
    "fsync" => Honoured(set!(job.fsync_every = |value| {
        value.number(0, u64::from(u32::MAX))? as u32
    }));
    "fdatasync" => Honoured(set!(job.fdatasync_every = |value| {
        value.number(0, u64::from(u32::MAX))? as u32
    }));
    "end_fsync" => Honoured(final_sync);
    "fsync_on_close" => Honoured(final_sync);
    "sync" => Honoured(|draft, value| {
        let job = &mut draft.job;
        (job.fsync_every, job.fdatasync_every) =
            value.choice(&[("none", (0, 0)), ("0", (0, 0)), ("sync", (1, 0)), ("1", (1, 0)), ("dsync", (0, 1))])?;
        if job.fsync_every + job.fdatasync_every == 0 {
            return WHOLE;
        }
        Ok(Effect::Reduced("a sync call after each write, in place of O_SYNC or O_DSYNC"))
    });
    "sync_file_range" => WithoutEffect("the arm kernel-bounded does that, by the memory budget");
    "write_barrier" => WithoutEffect("there are no barriers; use fsync=");

    // When, and how long.
    "runtime" | "timeout" => Honoured(|draft, value| {
        let us = value.time_us(Unit::Seconds)?;
        draft.job.runtime_us = (us > 0).then_some(us);
        WHOLE
    });
    "time_based" => Honoured(set!(job.time_based = |value| value.boolean()?.into()));
    "ramp_time" => Honoured(set!(job.ramp_us = |value| value.time_us(Unit::Seconds)?));
    "startdelay" => Honoured(|draft, value| {
        let text = value.text()?;
        let (first, range) = text.split_once('-').map_or((text, false), |(first, _)| (first, true));
        draft.job.start_delay_us = Value { text: Some(first), ..value }.time_us(Unit::Seconds)?;
        Ok(if range { Effect::Reduced("the shortest of the range is taken") } else { Effect::Whole })
    });
    "rate" => Honoured(|draft, value| {
        let pace = &mut draft.job.pace;
        let rates = [&mut pace.read.bytes_per_s, &mut pace.write.bytes_per_s];
        Draft::each_direction(value, Value::bytes, rates)?;
        Ok(Effect::Reduced(FROM_DUE))
    });
    "rate_iops" => Honoured(|draft, value| {
        let pace = &mut draft.job.pace;
        let number = |value: Value<'_>| value.number(0, MOST_OPERATIONS);
        let rates = [&mut pace.read.operations_per_s, &mut pace.write.operations_per_s];
        Draft::each_direction(value, number, rates)?;
        Ok(Effect::Reduced(FROM_DUE))
    });
    "thinktime" => Honoured(set!(job.pace.think_us = |value| value.time_us(Unit::Microseconds)?));
    "thinktime_blocks" => Honoured(set!(job.pace.think_operations = |value| {
        value.number(1, u64::from(u32::MAX))? as u32
    }));
    "thinktime_spin" => WithoutEffect("a thinking job sleeps");
    "thinktime_blocks_type" | "thinktime_iotime" => WithoutEffect("thinktime counts operations that were started");
    "rate_min" | "ratemin" | "rate_iops_min" => WithoutEffect("a job that is too slow goes on");
    "rate_process" => WithoutEffect("operations are spaced evenly");
    "rate_cycle" | "ratecycle" => WithoutEffect("the rate is kept over the whole run");
    "rate_ignore_thinktime" => WithoutEffect("thinking does not earn a faster rate");
    "latency_target" | "latency_window" | "latency_percentile" | "latency_run" | "max_latency" =>
        WithoutEffect(LATENCY_TARGET);
    "flow" | "flow_id" | "flow_watermark" | "flow_sleep" =>
        WithoutEffect("jobs are not throttled by each other; give rate= or rate_iops=");
    "steadystate" | "ss" | "steadystate_duration" | "ss_dur" | "steadystate_ramp_time" | "ss_ramp" =>
        WithoutEffect("a run ends by its work or its runtime");
    "exitall" | "exit_what" | "exitall_on_error" => WithoutEffect("every job runs to its own end; an error ends all");
    "wait_for" => Unsupported("waiting for one job is not supported; use stonewall");

    // At random.
    "randseed" => Honoured(set!(job.seed = |value| Some(value.number(0, u64::MAX)?)));
    "norandommap" => Honoured(set!(job.random_map = |value| {
        if value.boolean()? { RandomMap::WithReplacement } else { RandomMap::EachOnce }
    }));
    "random_distribution" => Honoured(|_draft, value| {
        Ok(if value.text()? == "random" { Effect::Whole } else { Effect::Reduced(UNIFORM) })
    });
    "randrepeat" | "allrandrepeat" => WithoutEffect("runs repeat for the same --seed, and differ for another");
    "random_generator" => WithoutEffect("the order is a permutation worked out from the seed");
    "softrandommap" => WithoutEffect("the random map needs no memory");
    "percentage_random" => WithoutEffect("an order is either random or sequential");
    "rw_sequencer" => WithoutEffect("each operation has an offset of its own");
    "blockalign" | "ba" | "offset_align" => WithoutEffect("offsets are multiples of the smallest block");
    "bs_unaligned" | "blocksize_unaligned" => WithoutEffect("sizes are multiples of the smallest block");
    "rwmixcycle" => WithoutEffect("each operation is drawn by itself");
    "bs_is_seq_rand" => WithoutEffect("sizes are given for reads and writes");

    // Data and verification.
    "verify" => Honoured(|draft, value| {
        draft.verify = !matches!(value.text()?, "0" | "none" | "null");
        Ok(if draft.verify { Effect::Reduced("ignored: every byte written is compared") } else { Effect::Whole })
    });
    "do_verify" => Honoured(set!(do_verify = |value| value.boolean()?));
    "verify_backlog" | "verify_backlog_batch" | "verify_async" | "verify_async_cpus" => WithoutEffect(VERIFYING);
    "verify_interval" | "header_interval" | "verify_offset" | "header_offset" | "verifysort"
        | "verifysort_nr" | "verify_state_save" | "verify_state_load" | "experimental_verify"
        | "verify_write_sequence" => WithoutEffect(VERIFYING);
    "verify_pattern" | "verify_pattern_interval" => WithoutEffect(DATA);
    "verify_fatal" | "verify_dump" => WithoutEffect("the first wrong byte ends the run and is named");
    "verify_only" => Unsupported("only what this run wrote can be verified");
    "buffer_pattern" | "zero_buffers" | "refill_buffers" | "scramble_buffers" => WithoutEffect(DATA);
    "buffer_compress_percentage" | "buffer_compress_chunk" => WithoutEffect(DATA);
    "dedupe_percentage" | "dedupe_mode" | "dedupe_working_set_percentage" | "dedupe_global" => WithoutEffect(DATA);
    "trim_percentage" | "trim_verify_zero" | "trim_backlog" | "trim_backlog_batch" => Unsupported(TRIM);
    "num_range" => Unsupported(TRIM);
    "read_iolog" | "replay_redirect" | "replay_no_stall" | "replay_scale" | "replay_align" | "replay_time_scale"
        | "replay_skip" | "read_iolog_chunked" | "merge_blktrace_file" | "merge_blktrace_scalars"
        | "merge_blktrace_iters" => Unsupported(REPLAY);
    "write_iolog" => WithoutEffect(LOGS);
    "zonemode" | "zonesize" | "zonerange" | "zoneskip" | "zonecapacity" | "read_beyond_wp" | "max_open_zones"
        | "job_max_open_zones" | "ignore_zone_limits" | "zone_reset_threshold"
        | "zone_reset_frequency" => Unsupported(ZONES);

    // Where it runs.
    "cpus_allowed" => Honoured(set!(job.cpus = |value| value.numbers()?));
    "cpumask" => WithoutEffect("give the processors with cpus_allowed=");
    "cpus_allowed_policy" => WithoutEffect("all jobs of a section share its processors");
    "numa_cpu_nodes" | "numa_mem_policy" | "nice" | "prio" | "prioclass" | "uid" | "gid" =>
        WithoutEffect(SCHEDULING);
    "cgroup" | "cgroup_weight" | "cgroup_nodelete" => WithoutEffect(SCHEDULING);
    "ioscheduler" => WithoutEffect("the device keeps its scheduler");
    "thread" => WithoutEffect("a job is always a thread");
    "exec_prerun" | "exec_postrun" => WithoutEffect("no commands are run; run them around this program");
    "profile" => Unsupported("a built-in profile of fio is not a job");

    // Reporting.
    "kb_base" => Honoured(|_draft, _value| WHOLE);
    "name" => WithoutEffect("a job's name is that of its section");
    "group_reporting" => WithoutEffect("there is a row for each job and one for all");
    "new_group" => WithoutEffect("groups are what stonewall makes");
    "unified_rw_reporting" => WithoutEffect("reads and writes are reported apart");
    "gtod_reduce" | "gtod_cpu" | "clocksource" => WithoutEffect("the clock is read twice an operation");
    "description" | "unit_base" | "stats" | "clat_percentiles" | "slat_percentiles"
        | "lat_percentiles" | "percentile_list" | "significant_figures" | "disk_util"
        | "disable_lat" | "disable_clat" | "disable_slat" | "disable_bw_measurement"
        | "disable_bw" => WithoutEffect(REPORTING);
    "block_error_percentiles" => WithoutEffect(TRIM);
    "write_bw_log" => WithoutEffect(LOGS);
    "write_lat_log" => WithoutEffect(LOGS);
    "write_iops_log" => WithoutEffect(LOGS);
    "write_hist_log" => WithoutEffect(LOGS);
    "log_avg_msec" => WithoutEffect(LOGS);
    "log_offset" => WithoutEffect(LOGS);
    "log_hist_msec" | "log_hist_coarseness" | "log_max_value" | "log_prio" | "log_entries" | "log_compression"
        | "log_compression_cpus" | "log_store_compressed" | "log_unix_epoch" | "log_alternate_epoch"
        | "log_alternate_epoch_clock_id" | "log_window_value" | "log_issue_time" | "per_job_logs" | "bwavgtime"
        | "iopsavgtime" => WithoutEffect(LOGS);
    "ignore_error" | "continue_on_error" | "error_dump" => WithoutEffect(ERRORS);
};

fn final_sync(draft: &mut Draft, value: Value<'_>) -> Result<Effect, ValueError> {
    if value.boolean()? {
        draft.job.final_sync = FinalSync::All;
        return WHOLE;
    }
    draft.job.final_sync = FinalSync::Data;
    Ok(Effect::Reduced("a write clock always stops after a final sync"))
}

//! Examples of parsing and of messages; and that the parser never panics.

use proptest::prelude::*;

use super::*;
use crate::job::*;

fn strict(text: &str) -> Result<ParsedJobs, ParseError> {
    parse_with(text, Path::new("job.fio"), Leniency::Strict, None, &|_| None)
}

fn one(text: &str) -> Job {
    let parsed = strict(text).unwrap();
    assert_eq!((parsed.groups.len(), parsed.groups[0].jobs.len()), (1, 1));
    parsed.groups[0].jobs[0].clone()
}

/// How often each is used in fio's own examples and on the kernel lists.
const USED_IN_PRACTICE: &str = "rw readwrite ioengine bs size iodepth filename numjobs stonewall direct runtime \
    time_based verify startdelay thread filesize group_reporting offset norandommap number_ios loops flow do_verify \
    io_size directory bssplit log_offset buffered rwmixread nrfiles write_bw_log write_lat_log write_iops_log \
    clat_percentiles lat_percentiles percentile_list bsrange description buffer_pattern sqthread_poll verify_backlog \
    registerfiles random_distribution rate randrepeat iodepth_batch_complete fsync end_fsync ramp_time fallocate \
    invalidate randseed allrandrepeat create_on_open overwrite unlink cpus_allowed uncached hipri fixedbufs \
    nonvectored log_avg_msec exec_prerun thinktime rate_iops filename_format kb_base fdatasync";

#[test]
fn whatever_is_used_in_practice_is_accepted() {
    for name in USED_IN_PRACTICE.split_whitespace() {
        let class = options::class(name).unwrap_or_else(|| panic!("{name} is not in a table"));
        assert!(!matches!(class, Class::Unsupported(_)), "{name}");
    }
}

#[test]
fn no_name_stands_twice() {
    let mut names: Vec<_> = options::names().collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
}

/// A file of jobs that a thread of the kernel lists published, for the device `/dev/nvme9n9`.
fn published(name: &str) -> ParsedJobs {
    let path =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../suites/published")).join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let device = |variable: &str| (variable == "DEVICE").then(|| "/dev/nvme9n9".to_owned());
    parse_with(&text, &path, Leniency::Strict, None, &device).unwrap()
}

#[test]
fn the_published_jobs_of_completion_parse() {
    let parsed = published("completion.fio");
    let counts: Vec<_> = parsed.groups.iter().map(|group| group.jobs.len()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 4]);
    let on_device = published("completion-device.fio");
    let groups = || parsed.groups.iter().chain(&on_device.groups);
    assert!(groups().flat_map(|group| &group.jobs).all(|job| {
        job.caching == Caching::Uncached
            && job.runtime_us == Some(60_000_000)
            && job.time_based == YesNo::Yes
    }));
    let job = |group: usize| &parsed.groups[group].jobs[0];
    assert_eq!(job(0).io_engine, IoEngine::Calls);
    assert_eq!((job(1).io_engine, job(1).depth), (IoEngine::Ring, 128));
    assert_eq!(job(2).access, Access { direction: Direction::Write, order: Order::Random });
    assert_eq!(job(3).access.direction, Direction::Mixed { read_percent: 50 });
    assert_eq!(job(3).blocks.read, BlockSize::Fixed(65_536));
    assert_eq!(parsed.groups[4].jobs[3].name, "F.3");
    assert_eq!(on_device.groups[0].jobs[0].files, [PathBuf::from("/dev/nvme9n9")]);
}

#[test]
fn the_published_jobs_of_the_plug_and_of_writeback_parse() {
    let plug = published("plug.fio");
    let depths: Vec<_> = plug.groups.iter().map(|group| group.jobs[0].depth).collect();
    assert_eq!(depths, [128, 128]);
    for (name, jobs, files, gib) in [
        ("writeback-a.fio", 12, 12, 144),
        ("writeback-b.fio", 6, 6, 720),
        ("writeback-c.fio", 1, 6, 6),
    ] {
        let parsed = published(name);
        let jobs_of: Vec<_> = parsed.groups.iter().flat_map(|group| &group.jobs).collect();
        assert_eq!(jobs_of.len(), jobs, "{name}");
        assert!(jobs_of.iter().all(|job| job.files.len() == files), "{name}");
        assert!(
            jobs_of.iter().all(|job| job.size == Some(Amount::Bytes((gib << 30) / jobs as u64)))
        );
    }
}

/// The job of the parallel-writeback measurements: files in directories of their own.
#[test]
fn files_in_many_directories_parse() {
    let text = "[w]\nrw=randwrite\nbs=4k\nsize=1g\nnumjobs=12\nnrfiles=12\niodepth=32\ndirect=0\ncreate_on_open=1\n\
                directory=d0:d1:d2:d3:d4:d5:d6:d7:d8:d9:d10:d11\nioengine=io_uring\nend_fsync=1\nfallocate=none\n";
    let parsed = strict(text).unwrap();
    let jobs = &parsed.groups[0].jobs;
    assert_eq!(jobs.len(), 12);
    assert_eq!(jobs[11].files[11], PathBuf::from("d11/w.11.11"));
    assert_eq!(jobs[0].create, Create::OnOpen);
    assert_eq!(jobs[0].final_sync, FinalSync::All);
}

#[test]
fn values_reach_the_job() {
    let job = one(
        "[a]\nrw=randrw\nrwmixwrite=30\nbs=4k,8k\nsize=20%\nio_size=1g\noffset=1m\noffset_increment=2m\n\
        filename=x:y\\:z\nfsync=8\nfdatasync=9\nrate=1m,2m\nrate_iops=,100\nthinktime=5\nthinktime_blocks=2\n\
        ramp_time=2\nstartdelay=100ms\nloops=3\nnumber_ios=77\nrandseed=5\nnorandommap\nfilesize=1m-4m\n\
        cpus_allowed=0-1\nverify=crc32c\nunlink=1\noverwrite=1\ninvalidate=0\nfile_service_type=random:8\n\
        iodepth_batch=4\niodepth_batch_complete=2\nbuffered=0\n",
    );
    assert_eq!(job.access.direction, Direction::Mixed { read_percent: 70 });
    assert_eq!(job.blocks, Blocks { read: BlockSize::Fixed(4096), write: BlockSize::Fixed(8192) });
    assert_eq!((job.size, job.io_bytes), (Some(Amount::Percent(20)), Some(Amount::Bytes(1 << 30))));
    assert_eq!((job.offset, job.offset_increment), (Amount::Bytes(1 << 20), 2 << 20));
    assert_eq!(job.files, [PathBuf::from("x"), PathBuf::from("y:z")]);
    assert_eq!((job.fsync_every, job.fdatasync_every), (8, 9));
    assert_eq!(job.pace.read, Rate { bytes_per_s: 1 << 20, operations_per_s: 0 });
    assert_eq!(job.pace.write, Rate { bytes_per_s: 2 << 20, operations_per_s: 100 });
    assert_eq!((job.pace.think_us, job.pace.think_operations), (5, 2));
    assert_eq!((job.ramp_us, job.start_delay_us), (2_000_000, 100_000));
    assert_eq!((job.loops, job.operations, job.seed), (3, Some(77), Some(5)));
    assert_eq!(job.random_map, RandomMap::WithReplacement);
    assert_eq!(job.file_size, Some(FileSize::Range { min: 1 << 20, max: 4 << 20 }));
    assert_eq!((job.verify, job.cpus), (YesNo::Yes, vec![0, 1]));
    assert_eq!((job.unlink, job.overwrite, job.invalidate), (YesNo::Yes, YesNo::Yes, YesNo::No));
    assert_eq!(job.next_file, NextFile::Random);
    assert_eq!((job.submit_batch, job.complete_batch), (Some(4), 2));
    assert_eq!(job.caching, Caching::Direct);
}

#[test]
fn globals_add_up_and_reach_only_what_follows() {
    let parsed = strict("[global]\nbs=8k\n[a]\n[global]\nrw=write\n[b]\nbs=16k\n").unwrap();
    let jobs = &parsed.groups[0].jobs;
    assert_eq!(
        (jobs[0].access.direction, &jobs[0].blocks.read),
        (Direction::Read, &BlockSize::Fixed(8192))
    );
    assert_eq!(
        (jobs[1].access.direction, &jobs[1].blocks.read),
        (Direction::Write, &BlockSize::Fixed(16_384))
    );
}

#[test]
fn kb_base_counts_wherever_it_stands() {
    assert_eq!(one("[a]\nbs=4k\nkb_base=1000\n").blocks.read, BlockSize::Fixed(4000));
    assert!(strict("[a]\nkb_base=512\n").unwrap_err().what.contains("1024, 1000"));
}

#[test]
fn what_is_wrong_is_said_with_place_and_remedy() {
    for (text, line, says) in [
        ("[a]\niodpeth=4\n", 2, "did you mean iodepth?"),
        ("[a]\nfrobnicate=4\n", 2, "no such option"),
        ("[a]\nbs=4q\n", 2, "bs=4q: allowed: a whole number with k, m, g"),
        ("[a]\n\nrw=trim\n", 3, "allowed: read, write, randread"),
        ("[a]\nnumjobs=4096\nnrfiles=65536\n", 1, "all clones together"),
        ("[a]\nrw=read:-8k\n", 2, "after a colon"),
        ("[a]\nioengine=mmap\n", 2, "allowed: sync, psync"),
        ("[a]\niodepth=0\n", 2, "from 1 to 32768"),
        ("[a]\nnumjobs=999999\n", 2, "from 1 to 4096"),
        ("[a]\nrw\n", 2, "a value is needed"),
        ("[a]\ntime_based=maybe\n", 2, "0, 1, or the key alone"),
        ("[a]\ntime_based\n", 1, "needs a runtime="),
        ("[a]\ndirect=1\nuncached=1\n", 1, "exclude each other"),
        ("[a]\nread_iolog=x\n", 2, "never from a trace"),
        ("[a]\nruntime=3y\n", 2, "us, ms, s, m, h or d"),
        ("[global]\nbs=4k\n", 2, "there is no job"),
        ("[global]\nbs=4q\n", 2, "bs=4q"),
        ("", 1, "there is no job"),
    ] {
        let error = strict(text).unwrap_err();
        assert_eq!(
            (error.line, error.path.as_path()),
            (line, Path::new("job.fio")),
            "{text:?}: {error}"
        );
        assert!(error.what.contains(says), "{error}");
    }
}

#[test]
fn leniency_turns_unknown_options_into_warnings_and_nothing_else() {
    let lenient = |text| parse_with(text, Path::new("job.fio"), Leniency::Lenient, None, &|_| None);
    let parsed = lenient("[global]\niodpeth=4\n[a]\n[b]\nzonemode=zbd\n").unwrap();
    let warnings: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "job.fio:2: iodpeth: no such option; did you mean iodepth?",
            "job.fio:5: zonemode: zoned devices are not supported",
        ]
    );
    assert!(lenient("[a]\nbs=4q\n").is_err());
}

#[test]
fn values_that_do_nothing_are_reported() {
    let whys = |text: &str| {
        let parsed = strict(text).unwrap();
        parsed.without_effect.iter().map(|notice| notice.option.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        whys("[a]\nend_fsync=0\nrandom_distribution=zipf:1.2\nioengine=libaio\n"),
        ["end_fsync", "random_distribution", "ioengine"]
    );
    assert!(whys("[a]\nend_fsync=1\nrandom_distribution=random\nioengine=io_uring\n").is_empty());
}

#[test]
fn sections_of_one_name_are_distinguished() {
    let parsed = strict("[a]\n[a]\n[a]\n").unwrap();
    let names: Vec<_> = parsed.groups[0].jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["a", "a#2", "a#3"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(text in "(?s).{0,200}") {
        let _ = strict(&text);
    }

    #[test]
    fn any_value_of_any_option_is_answered(
        lines in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9a-zA-Z:/,.%\\\\$ {}x\u{e9}]{0,24}"), 1..6),
    ) {
        let names: Vec<_> = options::names().collect();
        let mut text = String::from("[a]\n");
        for (index, value) in &lines {
            text.push_str(&format!("{}={value}\n", index.get(&names)));
        }
        let _ = strict(&text);
    }
}

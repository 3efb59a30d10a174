use super::super::finding::Level;
use super::super::tree::fake::Fake;
use super::*;

/// A disk with a partition, `8:1`, as fast disks are set.
fn fake() -> Fake {
    let fake = Fake::new(&[
        ("/sys/devices/pci/sda/queue/scheduler", "[none] mq-deadline kyber bfq \n"),
        ("/sys/devices/pci/sda/queue/nomerges", "0\n"),
        ("/sys/devices/pci/sda/queue/nr_requests", "1023\n"),
        ("/sys/devices/pci/sda/queue/io_poll", "0\n"),
        ("/sys/devices/pci/sda/queue/wbt_lat_usec", "2000\n"),
        ("/sys/devices/pci/sda/queue/iostats", "1\n"),
        ("/sys/devices/pci/sda/queue/write_cache", "write back\n"),
        ("/sys/devices/pci/sda/queue/fua", "1\n"),
        ("/sys/devices/pci/sda/queue/rotational", "0\n"),
        ("/sys/devices/pci/sda/queue/logical_block_size", "512\n"),
        ("/sys/devices/pci/sda/queue/physical_block_size", "4096\n"),
        ("/sys/devices/pci/sda/queue/max_sectors_kb", "1280\n"),
        ("/sys/devices/pci/sda/queue/max_hw_sectors_kb", "2048\n"),
        ("/sys/devices/pci/sda/queue/max_segments", "127\n"),
        ("/sys/devices/pci/sda/sda1/partition", "1\n"),
    ]);
    fake.link("/sys/dev/block/8:0", "/sys/devices/pci/sda");
    fake.link("/sys/dev/block/8:1", "/sys/devices/pci/sda/sda1");
    fake
}

fn queue_of(fake: &Fake, major: u32, minor: u32) -> Option<Queue> {
    Queue::of(&disk(&fake.tree, major, minor)?)
}

fn queue() -> Queue {
    queue_of(&fake(), 8, 0).unwrap()
}

fn found(queue: &Queue, name: &str) -> Finding {
    let findings = queue.findings(Mode::Direct, HugePages::Yes);
    findings.into_iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{name}"))
}

fn told(queue: Queue, name: &str) -> (Level, String, String) {
    let Finding { level, found, remedy, .. } = found(&queue, name);
    let line = remedy.and_then(|remedy| remedy.command).map(|command| command.line);
    (level, found, line.unwrap_or_default())
}

#[test]
fn a_partition_has_its_disks_queue() {
    let fake = fake();
    let queue = queue_of(&fake, 8, 1).unwrap();
    assert_eq!((queue.name.as_str(), queue.nr_requests), ("sda", Some(1023)));
    assert_eq!(queue_of(&fake, 8, 0), Some(queue));
    assert_eq!(queue_of(&fake, 9, 9), None);
}

#[test]
fn a_fast_disk_is_full() {
    let findings = queue().findings(Mode::Direct, HugePages::Yes);
    assert_eq!(findings.len(), 10);
    for finding in findings {
        assert_eq!(finding.level, Level::Full, "{finding:?}");
        assert!(!finding.found.is_empty() && !finding.means.is_empty(), "{finding:?}");
    }
    assert!(
        Queue::default().findings(Mode::Direct, HugePages::Yes).is_empty(),
        "what is not told is absent"
    );
}

#[test]
fn the_scheduler_depends_on_what_turns() {
    let with = |list: &str, rotational, name: &str| Queue {
        scheduler: Some(list.into()),
        rotational: Some(rotational),
        name: name.into(),
        ..queue()
    };
    let all = |chosen: &str| {
        let one = |name: &str| if name == chosen { format!("[{name}]") } else { name.to_owned() };
        ["none", "mq-deadline", "kyber", "bfq"].map(one).join(" ")
    };
    for (chosen, rotational, name, level, line) in [
        ("none", 0, "sda", Level::Full, ""),
        ("mq-deadline", 0, "sda", Level::Degraded, "echo none > /sys/block/sda/queue/scheduler"),
        ("kyber", 0, "sda", Level::Degraded, "echo none > /sys/block/sda/queue/scheduler"),
        ("bfq", 0, "sda", Level::Degraded, "echo none > /sys/block/sda/queue/scheduler"),
        ("mq-deadline", 1, "sda", Level::Full, ""),
        ("none", 1, "sda", Level::Degraded, "echo mq-deadline > /sys/block/sda/queue/scheduler"),
        ("bfq", 1, "sda", Level::Degraded, "echo mq-deadline > /sys/block/sda/queue/scheduler"),
        // A virtual disk says that it turns.
        ("mq-deadline", 1, "vda", Level::Degraded, "echo none > /sys/block/vda/queue/scheduler"),
        ("none", 1, "vda", Level::Full, ""),
    ] {
        let expected = (level, chosen.to_owned(), line.to_owned());
        assert_eq!(
            told(with(&all(chosen), rotational, name), "scheduler"),
            expected,
            "{rotational} {name}"
        );
    }
    // A disk that turns, and no other scheduler; a device that has none at all.
    assert_eq!(told(with("[none]", 1, "sda"), "scheduler").0, Level::Full);
    assert_eq!(told(with("none", 0, "dm-0"), "scheduler").0, Level::Full);
}

#[test]
fn each_setting_in_the_way_has_its_command() {
    let cases: &[(Queue, &str, &str)] = &[
        (
            Queue { nomerges: Some(1), ..queue() },
            "nomerges",
            "echo 0 > /sys/block/sda/queue/nomerges",
        ),
        (
            Queue { nomerges: Some(2), ..queue() },
            "nomerges",
            "echo 0 > /sys/block/sda/queue/nomerges",
        ),
        (Queue { nr_requests: Some(64), ..queue() }, "nr_requests", ""),
        (
            Queue { nr_requests: Some(64), scheduler: Some("none [bfq]".into()), ..queue() },
            "nr_requests",
            "echo 256 > /sys/block/sda/queue/nr_requests",
        ),
        (
            Queue { max_kib: Some(512), ..queue() },
            "request size",
            "echo 1024 > /sys/block/sda/queue/max_sectors_kb",
        ),
        (Queue { max_kib: Some(512), max_hardware_kib: Some(512), ..queue() }, "request size", ""),
        (Queue { physical_block: Some(16_384), ..queue() }, "blocks", ""),
        (Queue { iostats: Some(0), ..queue() }, "iostats", "echo 1 > /sys/block/sda/queue/iostats"),
        (Queue { fua: Some(0), ..queue() }, "write cache", ""),
        (
            Queue { rotational: Some(1), name: "vda".into(), ..queue() },
            "rotational",
            "echo 0 > /sys/block/vda/queue/rotational",
        ),
        (
            Queue { backing: Some(("/a b".into(), false)), name: "loop3".into(), ..queue() },
            "below it",
            "losetup --direct-io=on /dev/loop3",
        ),
    ];
    for (queue, name, line) in cases {
        let (level, _, told) = told(queue.clone(), name);
        assert_eq!((level, told.as_str()), (Level::Degraded, *line), "{name}");
        assert!(found(queue, name).remedy.is_some(), "{name}");
    }
}

#[test]
fn what_is_there_is_told_though_nothing_is_in_the_way() {
    let poll = Queue { io_poll: Some(1), ..queue() };
    assert_eq!(
        told(poll, "poll queues"),
        (Level::Full, "queues that can be polled".into(), String::new())
    );
    let turns = Queue { rotational: Some(1), ..queue() };
    assert_eq!(told(turns, "rotational").0, Level::Full);
    let through = |name: &str| Queue {
        write_cache: Some("write through".into()),
        name: name.into(),
        ..queue()
    };
    assert_eq!(told(through("sda"), "write cache").0, Level::Full);
    assert!(found(&through("vda"), "write cache").means.contains("the host's"));
    assert!(
        found(&Queue { fua: Some(0), ..queue() }, "write cache")
            .remedy
            .unwrap()
            .what
            .contains("libata.fua")
    );
    let lame = Queue { fua: Some(0), name: "vda".into(), ..queue() };
    assert!(found(&lame, "write cache").remedy.unwrap().what.contains("share a flush"));
    let direct = Queue { backing: Some(("/a b".into(), true)), name: "loop3".into(), ..queue() };
    assert_eq!(
        told(direct, "below it"),
        (Level::Full, "loop3 is the file /a b".into(), "forebay doctor '/a b'".into())
    );
    let made = Queue { slaves: vec!["sda".into(), "sdb".into()], name: "md0".into(), ..queue() };
    assert_eq!(told(made, "below it").1, "md0 is made of sda, sdb");
}

#[test]
fn writeback_throttling_matters_where_writes_are_not_direct() {
    let level = |queue: &Queue, mode| {
        let findings = queue.findings(mode, HugePages::Yes);
        findings.into_iter().find(|finding| finding.name == "wbt").unwrap().level
    };
    assert_eq!(level(&queue(), Mode::Direct), Level::Full);
    assert_eq!(level(&queue(), Mode::Buffered), Level::Degraded);
    for off in [None, Some(0), Some(-1)] {
        assert_eq!(level(&Queue { wbt_latency: off, ..queue() }, Mode::Buffered), Level::Full);
    }
}

#[test]
fn small_pages_make_many_pieces() {
    let level = |pieces, huge_pages| {
        let queue = Queue { max_segments: pieces, ..queue() };
        let findings = queue.findings(Mode::Direct, huge_pages);
        findings.into_iter().find(|finding| finding.name == "request size").unwrap().level
    };
    assert_eq!(level(Some(127), HugePages::Yes), Level::Full);
    assert_eq!(level(Some(127), HugePages::No), Level::Degraded);
    assert_eq!(level(Some(256), HugePages::No), Level::Full);
    assert_eq!(level(None, HugePages::No), Level::Full);
}

fn own() -> Own {
    Own {
        path: "/dev/sda".into(),
        user: 1000,
        exclusive: Ok("memory by 512, offsets and lengths by 512 bytes".into()),
        mounted_at: None,
        is_read_only: false,
        uncached_read: Ok(()),
        zoned: None,
    }
}

#[test]
fn a_device_that_cannot_be_had_stops_everything() {
    let busy = || Err(io::Error::from_raw_os_error(libc::EBUSY));
    let line = |own: &Own| own.access().remedy.unwrap().command.unwrap().line;
    assert_eq!(own().access().level, Level::Full);
    let mounted = Own { exclusive: busy(), mounted_at: Some("/mnt/a".into()), ..own() };
    assert!(mounted.access().stops_everything());
    assert_eq!(
        (mounted.access().found.as_str(), line(&mounted).as_str()),
        ("mounted at /mnt/a", "umount /mnt/a")
    );
    assert!(mounted.findings().iter().any(|finding| finding.level == Level::NotKnown));
    let held = Own { exclusive: busy(), ..own() };
    assert!(held.access().found.starts_with("in use") && line(&held) == "lsblk /dev/sda");
    let foreign = Own { exclusive: Err(io::Error::from_raw_os_error(libc::EACCES)), ..own() };
    assert!(foreign.access().stops_everything() && line(&foreign) == "chown 1000 /dev/sda");
    let fenced = Own { user: 0, ..foreign };
    assert!(fenced.access().remedy.unwrap().what.contains("--device"));
    let fixed = Own { is_read_only: true, ..own() };
    assert_eq!(
        (fixed.access().level, line(&fixed).as_str()),
        (Level::Degraded, "blockdev --setrw /dev/sda")
    );
}

#[test]
fn a_device_is_never_written_and_says_so() {
    let lacks = Own { uncached_read: Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)), ..own() };
    for own in [own(), lacks] {
        let findings = own.findings();
        let write = findings.iter().find(|finding| finding.name == "uncached write").unwrap();
        assert!(
            write.level == Level::NotKnown && write.found.starts_with("not tried"),
            "{write:?}"
        );
    }
}

#[test]
fn zones_are_told_where_there_are_any() {
    assert_eq!(own().zones(), None);
    let zones = |kind: &str| Own { zoned: Some(kind.into()), ..own() }.zones().unwrap();
    assert!(zones("host-managed").stops_everything());
    assert_eq!(zones("host-aware").level, Level::Degraded);
}

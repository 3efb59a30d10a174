//! `forebay run` as it is built: job files, engines, refusals with their remedies.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use forebay_lab::loop_device::LoopDevice;

/// Smaller versions of the six workloads that the delay of completions is argued with on the kernel
/// lists.
const JOBS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Bench {
    directory: tempfile::TempDir,
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Bench {
    /// Beside the tests' own binaries: a real file system, where `/tmp` may be memory.
    fn new() -> Self {
        Self { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn run(&self, job_file: &Path, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg("run").arg(job_file).args(["--dir", self.path().to_str().unwrap()]).args(words);
        let Output { status, stdout, stderr } =
            command.env("DEVICE", "in-its-place").output().unwrap();
        let err = String::from_utf8(stderr).unwrap();
        assert!(!err.contains("panicked"), "{err}");
        Said { code: status.code(), out: String::from_utf8(stdout).unwrap(), err }
    }

    fn run_text(&self, text: &str, words: &[&str]) -> Said {
        let job_file = self.path().join("job.fio");
        fs::write(&job_file, text).unwrap();
        self.run(&job_file, words)
    }

    /// One line on standard error, code 2, and nothing made.
    fn refused(&self, text: &str, words: &[&str]) -> String {
        let Said { code, out, err } = self.run_text(text, words);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{words:?}: {err}");
        assert_eq!(fs::read_dir(self.path()).unwrap().count(), 1, "{err}");
        err
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/jobs/{name}.fio"))
}

#[test]
fn every_job_runs_through_every_engine() {
    for engine in ["forebay", "kernel", "null"] {
        for name in JOBS {
            let bench = Bench::new();
            let json = bench.path().join("result.json");
            let words = ["--engine", engine, "--seed", "7f3a", "--json", json.to_str().unwrap()];
            let Said { code, out, err } = bench.run(&fixture(name), &words);
            if engine == "kernel" && err.contains("RWF_DONTCACHE") {
                eprintln!("{name} on the kernel: {err}");
                assert_eq!(code, Some(2));
                continue;
            }
            assert_eq!(code, Some(0), "{name} on {engine}: {err}");
            assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
            assert!(out.contains(&format!("{name}.fio on {engine}, until synced")), "{out}");
            assert!(out.contains("total") && out.contains("elapsed, until synced"), "{out}");
            assert_eq!(out.contains("io_uring"), engine == "forebay", "{out}");
            let mut totals = out.lines().filter(|line| line.starts_with("total "));
            assert_eq!(totals.any(|line| line.contains(" read ")), name == "d", "{out}");
            let json = fs::read_to_string(&json).unwrap();
            for word in [r#""schema": 1"#, r#""comparisons": []"#, r#""job": "total""#, "elapsed_s"]
            {
                assert!(json.contains(word), "{word}: {json}");
            }
        }
    }
}

#[test]
fn files_have_the_length_the_job_says_and_one_that_is_removed_is_gone() {
    let bench = Bench::new();
    let said = bench.run(&fixture("f"), &["--set", "cache_bytes=8m"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.err.matches("group_reporting").count(), 1, "{}", said.err);
    for number in 0..4 {
        assert_eq!(
            fs::metadata(bench.path().join(format!("f.{number}.0"))).unwrap().len(),
            16 << 20
        );
    }
    let said = bench.run_text("[gone]\nsize=64k\nrw=write\nunlink=1\nverify=crc32c\n", &[]);
    assert!(said.out.contains("note: verified 65536 bytes"), "{}{}", said.out, said.err);
    assert!(!bench.path().join("gone.0.0").exists());
}

#[test]
fn groups_have_rows_and_costs_of_their_own() {
    let bench = Bench::new();
    let text =
        "[one]\nsize=1m\nrw=write\n[two]\nstonewall\nsize=1m\nrw=randread\nfilename=one.0.0\n";
    let Said { code, out, err } = bench.run_text(text, &[]);
    assert_eq!(code, Some(0), "{err}");
    for word in ["total, group 1", "total, group 2", " read ", "write"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert_eq!(out.matches("elapsed, until synced").count(), 2, "{out}");
}

#[test]
fn what_a_result_has_to_say_is_noted() {
    let bench = Bench::new();
    let mixed = bench.run_text("[a]\nsize=1m\nrw=randwrite\nbsrange=4k-16k\n", &[]);
    assert!(mixed.out.contains("note: mixed block sizes"), "{}", mixed.out);
    let fixed = bench.run_text("[a]\nsize=1m\nrw=randwrite\nbs=4k\n", &[]);
    // The engine may have learned what a flush costs on this disk, and says so.
    assert!(!fixed.out.contains("note: mixed"), "{}", fixed.out);
    let lenient = bench.run_text("[a]\nsize=64k\nrw=write\niodepht=3\n", &["--lenient"]);
    assert_eq!(lenient.code, Some(0));
    assert!(
        lenient.err.contains("warning: ") && lenient.err.contains("did you mean iodepth?"),
        "{}",
        lenient.err
    );
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_remedy() {
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "[a]\nsize=1m\niodepht=3\n",
            &[],
            "job.fio:3: iodepht: no such option; did you mean iodepth?",
        ),
        (
            "[a]\nsize=1mq\n",
            &[],
            "job.fio:2: size=1mq: allowed: a whole number with k, m, g, t or p",
        ),
        ("[a]\nrw=writ\n", &[], "job.fio:2: rw=writ: allowed: read, write"),
        ("", &[], "there is no job"),
        (
            "[a]\nfilename=missing\n",
            &[],
            "missing: it is not there or empty, and the job has no size=",
        ),
        (
            "[a]\nsize=4k\ndirectory=nowhere\n",
            &[],
            "nowhere: there is no such directory; make it first",
        ),
        (
            "[a]\nsize=80p\nrw=write\n",
            &["--engine", "kernel"],
            "(use a smaller size, or another --dir)",
        ),
        ("[a]\nsize=4k\nfilename=/dev/null\n", &[], "neither a file nor a block device"),
        ("[/data/x]\nsize=4k\nrw=write\n", &[], "/data/x.0.0, made from the name of the section"),
        ("[../x]\nsize=4k\nrw=write\n", &[], "leads out of the directory; name the file with"),
        ("[a/../../x]\nsize=4k\nrw=write\nnrfiles=2\n", &[], "leads out of the directory"),
        ("[../x]\nsize=4k\nrw=write\nfilename=$jobname\n", &[], "leads out of the directory"),
        ("[../x]\nsize=4k\nrw=write\ndirectory=$jobname\n", &[], "leads out of the directory"),
        ("[/x]\nsize=4k\nrw=write\ndirectory=.\n", &[], "leads out of the directory"),
        (
            "[a]\nsize=4k\nrw=write\nfilename_format=../$jobname\n",
            &[],
            "filename_format=../$jobname: allowed: names inside the directory; give another one",
        ),
        ("[a]\nsize=4k\nfilename_format=/x/$jobnum\n", &[], "names inside the directory"),
        (
            "[a]\nsize=4k\nrw=write\ndirectory=.\nfilename=/x\n",
            &[],
            "/x is not in directory=.; leave one of them out",
        ),
        (
            "[a]\nsize=8k\nrw=write\nnrfiles=4\n",
            &[],
            "a.0.0 holds no block of 4096 bytes: its range is 2048 bytes from 0, of 8192 bytes in \
             4",
        ),
        ("[a]\nsize=3\nrw=write\nnrfiles=4\n", &[], "of 3 bytes in 4 files; use a larger size"),
        ("[a]\nsize=0\nfilesize=8k\nrw=write\n", &[], "size=0: a job needs something to work on"),
        ("[a]\nfilesize=8k\noffset=8k\nrw=write\n", &[], "its range is 0 bytes from 8192"),
        ("[a]\nfilesize=1k-64k\nrw=write\nnrfiles=300\n", &[], "holds no block of 4096 bytes"),
        (
            "[a]\nsize=64k\nio_size=2k\nrw=write\n",
            &[],
            "2048 bytes to do are less than a block of 4096 bytes",
        ),
        ("[a]\nsize=64k\nio_size=1%\nrw=randread\n", &[], "655 bytes to do are less than"),
        (
            "[a]\nsize=32k\nrw=rw\nrwmixread=0\nbs=4k,64k\n",
            &[],
            "holds no block of 65536 bytes: its range is 32768 bytes",
        ),
        ("[a]\nsize=32k\nrw=rw\nbs=4k,64k\n", &[], "holds no block of 65536 bytes"),
        (
            "[a]\nsize=4k\n",
            &["--set", "cash_bytes=8m"],
            "unknown knob `cash_bytes` (known knobs: plug,",
        ),
        ("[a]\nsize=4k\n", &["--set", "cache_bytes=3"], "(allowed: 8388608 to "),
        ("[a]\nsize=4k\n", &["--set", "flight=3", "--engine", "null"], "only forebay has knobs"),
        ("[a]\nsize=4k\n", &["--seed", "x"], "--seed x: not a seed"),
    ];
    for (text, words, expected) in cases {
        let said = Bench::new().refused(text, words);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn a_directory_nothing_can_be_made_in_is_a_failure_with_its_path() {
    let bench = Bench::new();
    // /proc is a directory everywhere, and no user can make a file in it.
    let said = bench.run_text("[a]\nsize=4k\nrw=write\ndirectory=/proc\n", &["--engine", "kernel"]);
    assert!(matches!(said.code, Some(1 | 2)), "{}", said.err);
    assert!(said.err.starts_with("forebay: /proc"), "{}", said.err);
}

/// As in fio: a section without `filename` works on the file of its name, if that is no regular
/// one.
#[test]
fn a_section_named_as_a_device_works_on_the_device() {
    let (bench, images) = (Bench::new(), Bench::new());
    let image = images.path().join("image");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    let device = match LoopDevice::over(&image) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("skipped: no loop device: {error}");
            return;
        }
    };
    let name = device.path().to_str().unwrap();
    let json = images.path().join("result.json");
    let words = ["--engine", "kernel", "--json", json.to_str().unwrap()];
    let said = bench.run_text(&format!("[{name}]\nrw=read\nbs=64k\nverify=md5\n"), &words);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let said = bench.run_text(&format!("[{name}]\nrw=read\nsize=128k\nnumjobs=2\n"), &words);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let refused = bench.refused(&format!("[{name}]\nrw=write\nbs=64k\n"), &[]);
    assert!(refused.contains("a block device, whose data would be lost"), "{refused}");
    let refused = bench.refused(&format!("[{name}]\nrw=write\nsize=8k\nnrfiles=2\n"), &[]);
    assert!(refused.contains("leads out of the directory"), "{refused}");
    let beside = format!("{}.", device.path().file_name().unwrap().to_str().unwrap());
    let mut devices = fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().file_name());
    assert!(devices.all(|name| !name.to_str().unwrap().starts_with(&beside)));
    assert_eq!(fs::read(&image).unwrap(), vec![7; 1 << 20]);
    assert_eq!(fs::read_dir(bench.path()).unwrap().count(), 1, "only the job file");
}

#[test]
fn a_name_with_a_directory_stays_inside() {
    let bench = Bench::new();
    let said = bench.run_text("[a/b]\nsize=8k\nrw=write\n", &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(fs::metadata(bench.path().join("a/b.0.0")).unwrap().len(), 8192);
    // As in fio, a directory of that name is no file to work on.
    let said = bench.run_text("[a]\nsize=8k\nrw=write\n", &[]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("neither a file nor a block device"), "{}", said.err);
}

#[test]
fn a_job_does_some_of_its_work_at_least() {
    for (text, bytes) in [
        // A block of any size, and not none because a larger one was drawn.
        ("size=64k\nio_size=4k\nrw=write\nbsrange=4k-64k\n", 4096),
        ("size=64k\nio_size=20k\nrw=write\nbsrange=4k-64k\n", 20_480),
        // None is all, as in fio.
        ("size=64k\nio_size=0\nrw=write\n", 65_536),
        ("size=32k\nrw=rw\nrwmixread=100\nbs=4k,64k\n", 32_768),
    ] {
        let bench = Bench::new();
        let json = bench.path().join("result.json");
        let said = bench.run_text(&format!("[a]\n{text}"), &["--json", json.to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{text}: {}", said.err);
        assert_eq!(moved(&json), bytes, "{text}");
    }
    // It opens its file in more time than it has.
    let bench = Bench::new();
    let text = "[a]\nsize=64k\nrw=write\ntime_based\nruntime=1us\n";
    let json = bench.path().join("result.json");
    let said = bench.run_text(text, &["--json", json.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(moved(&json) >= 4096, "{}", said.out);
}

/// Bytes that a run has read and written.
fn moved(json: &Path) -> u64 {
    let document: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let value = |metric: &str| {
        let rows = document["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["job"] == "total" && row["metric"] == metric);
        row.map_or(0.0, |row| row["mean"].as_f64().unwrap())
    };
    let rates = value("read_bytes_per_s") + value("write_bytes_per_s");
    (rates * value("elapsed_s")).round() as u64
}

/// The ramp is longer than the work of all jobs, of one of two, and than the time of another.
#[test]
fn a_ramp_ends_with_the_work() {
    for engine in ["forebay", "kernel"] {
        let run = |text: &str| {
            let bench = Bench::new();
            let json = bench.path().join("result.json");
            let began = Instant::now();
            let words = ["--engine", engine, "--json", json.to_str().unwrap()];
            let said = bench.run_text(text, &words);
            assert_eq!(said.code, Some(0), "{text}: {}", said.err);
            (said.out, moved(&json), began.elapsed())
        };
        let (out, bytes, took) = run("[a]\nrw=write\nsize=1m\nramp_time=60\n");
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert_eq!(bytes, 0, "{out}");
        assert!(out.contains("note: a: ended before its ramp_time did"), "{out}");
        let both = "[global]\nrw=write\nsize=1m\n[a]\nramp_time=60\n[b]\n";
        let (out, bytes, took) = run(both);
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert_eq!(bytes, 1 << 20, "{out}");
        let long = "[a]\nrw=randwrite\nsize=1m\nramp_time=2\nruntime=1\ntime_based\n";
        let (out, bytes, took) = run(long);
        assert!(took >= Duration::from_secs(3) && bytes > 0, "{took:?}: {out}");
    }
}

/// Each wait of a job ends when another has failed.
#[test]
fn a_job_that_waits_ends_when_another_fails() {
    let bench = Bench::new();
    // No file system takes a file of that length.
    let failing = "[a]\nrw=write\nsize=8k\noffset=1024p\ncreate_on_open=1\n";
    for waiting in ["startdelay=60\nsize=4k", "rate_iops=1\nsize=1m", "thinktime=60s\nsize=1m"] {
        let began = Instant::now();
        let said = bench
            .run_text(&format!("{failing}[b]\nrw=write\n{waiting}\n"), &["--engine", "kernel"]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(began.elapsed() < Duration::from_secs(30), "{waiting}");
    }
}

/// Each through Forebay, which serves no devices: what a broken refusal would do is refused once
/// more behind it.
#[test]
fn block_devices_are_written_neither_unasked_nor_mounted() {
    let devices = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_device =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device());
    let Some(device) = devices.filter(is_device).min() else {
        eprintln!("skipped: there is no block device here");
        return;
    };
    let job = |path: &Path| format!("[a]\nsize=4k\nrw=write\nfilename={}\n", path.display());
    let said = Bench::new().refused(&job(&device), &[]);
    assert!(
        said.contains("a block device, whose data would be lost; add --allow-write-device"),
        "{said}"
    );

    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut sources = mounts.lines().filter_map(|line| line.split(' ').next()).map(PathBuf::from);
    let Some(mounted) = sources.find(is_device) else {
        eprintln!("skipped: no block device is mounted here");
        return;
    };
    let said = Bench::new().refused(&job(&mounted), &["--allow-write-device"]);
    assert!(said.contains("mounted at"), "{said}");
}

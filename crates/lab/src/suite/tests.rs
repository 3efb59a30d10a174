use super::model::{Arm, Cut};
use super::*;

fn shipped(name: &str) -> Suite {
    find(Path::new(name)).unwrap()
}

fn refused(name: &str, from: &str, to: &str) -> String {
    let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).unwrap();
    assert!(text.contains(from), "{from}");
    check::parse(&text.replacen(from, to, 1), "x.toml").unwrap_err().to_string()
}

#[test]
fn all_shipped_suites_are_sound() {
    for (name, _) in SHIPPED {
        let suite = shipped(name);
        assert_eq!(suite.name, name);
        for form in [Form::Full, Form::Quick, Form::Bare] {
            let cuts: Vec<&Cut> = suite.parts.iter().filter_map(|part| part.cut(form)).collect();
            let asked = form != Form::Bare || BARE.contains(&name);
            assert_eq!(!cuts.is_empty(), asked, "{name} in form {form:?}");
            assert!(cuts.iter().all(|cut| !cut.names().is_empty()));
        }
        assert!(list().contains(&suite.title));
    }
    assert!(list().lines().all(|line| line.len() <= 80), "\n{}", list());
}

#[test]
fn what_is_published_runs_beside_its_figures() {
    for name in ["completion", "plug", "writeback"] {
        let parts = shipped(name).parts;
        let mut published =
            parts.iter().filter_map(|part| Some((part, part.cut(Form::Published)?)));
        let (part, cut) = published.next().unwrap();
        assert!(published.next().is_none(), "{name}");
        let works: Vec<&str> = part.figures.iter().map(|one| one.workload.as_str()).collect();
        assert!(cut.workloads.iter().all(|one| works.contains(&one.name.as_str())), "{name}");
        // Each pair is compared, so it has an interval.
        let base = match &part.base {
            Base::Arm(base) => base.as_str(),
            Base::BestOf(_) => "",
        };
        let is_paired = |arm: &str, with: &str| {
            with == base || cut.also.iter().any(|pair| pair.arm == arm && pair.base == with)
        };
        assert!(part.figures.iter().all(|one| is_paired(&one.arm, &one.base)), "{name}");
    }
}

#[test]
fn a_published_figure_of_nothing_that_runs_is_refused() {
    let figure = "{ workload = \"A\", metric = \"write_bytes_per_s\"";
    let wrong = |to: &str| refused("completion", figure, to);
    let why = wrong("{ workload = \"H\", metric = \"write_bytes_per_s\"");
    assert!(why.contains("H: no such workload in the published form"), "{why}");
    let why = wrong("{ workload = \"A\", metric = \"speed\"");
    assert!(why.contains("speed: no such metric"), "{why}");
    let arms = "arms = [\"forebay-delay\", \"forebay-immediate\", \"kernel-uncached\"]";
    let why = refused("completion", arms, "arms = [\"forebay-immediate\", \"kernel-uncached\"]");
    assert!(why.contains("forebay-delay: no such arm in the published form"), "{why}");
    let why = refused("completion", "values = [36.2, 35.8]", "values = [0.0, 35.8]");
    assert!(why.contains("values have to be above 0"), "{why}");
    let why = refused("completion", "[part.published]", "[part.quack]");
    assert!(why.contains("quack"), "{why}");
}

#[test]
fn layout_is_the_question_it_was() {
    let suite = shipped("layout");
    let part = &suite.parts[0];
    let full = part.cut(Form::Full).unwrap();
    assert_eq!((full.file_bytes, full.writes_at_most, full.rounds), (Some(96 << 20), None, 10));
    assert_eq!(full.arms.last().unwrap().way.word, "forebay-declared");
    let quick = part.cut(Form::Quick).unwrap();
    assert_eq!((quick.file_bytes, quick.writes_at_most), (Some(24 << 20), Some(13 << 30)));
    assert_eq!(quick.arms.len() + 1, full.arms.len());
    let bare = part.cut(Form::Bare).unwrap();
    assert_eq!((bare.file_bytes, bare.writes_at_most), (Some(15 << 20), Some(6 << 30)));
    assert!(bare.arms.iter().all(|arm| quick.arms.contains(arm)));
    assert_eq!((full.probe(), full.workloads[0].shape["files"].as_i64()), ("new-files", Some(12)));
    assert!(matches!(&part.base, Base::BestOf(arms) if arms.len() == 5));
}

#[test]
fn files_sets_the_batch_against_every_other_arm() {
    let suite = shipped("files");
    assert_eq!(suite.parts.len(), 2);
    for part in &suite.parts {
        let Base::Arm(base) = &part.base else { panic!("{:?}", part.base) };
        let full = part.cut(Form::Full).unwrap();
        let also = full.also.iter().inspect(|pair| assert_eq!(pair.arm, part.again));
        let mut against: Vec<_> = also.map(|pair| &pair.base).chain([base, &part.again]).collect();
        let names = full.names();
        let mut arms: Vec<_> = names.iter().collect();
        against.sort_unstable();
        arms.sort_unstable();
        assert_eq!(against, arms, "{}", part.name);
    }
}

#[test]
fn a_form_has_its_own_and_else_its_part_s() {
    let suite = shipped("plug");
    let file = &suite.parts[0];
    let (full, bare) = (file.cut(Form::Full).unwrap(), file.cut(Form::Bare).unwrap());
    assert_eq!((full.depths.as_slice(), bare.depths.as_slice()), (&[1, 32, 128][..], &[1, 32][..]));
    assert_eq!((full.workloads.len(), bare.workloads.len()), (3, 1));
    assert!(bare.arms.len() <= 5, "the one that runs twice not counted");
    let kernel = |arm: &&Arm| arm.way.word == "uring";
    for form in [Form::Full, Form::Quick, Form::Bare] {
        let cut = file.cut(form).unwrap();
        let free = cut.arms.iter().filter(kernel).find(|arm| arm.batch.is_none());
        let Base::BestOf(best_of) = &file.base else { panic!("{:?}", file.base) };
        assert!(best_of.contains(&free.unwrap().name), "the kernel too hands over what is free");
        assert!(
            cut.arms.iter().filter(kernel).all(|arm| best_of.contains(&arm.name)),
            "{best_of:?}"
        );
    }
    assert_eq!(bare.devices, full.devices);
    let never = full.arms.iter().find(|arm| arm.name == "never").unwrap();
    assert_eq!(never.way.word, "queue");
    assert_eq!(never.knobs, [("plug".to_owned(), "never".to_owned())]);
    let ladder = suite.parts.iter().find(|part| part.name == "ladder").unwrap();
    assert_eq!(ladder.cut(Form::Full).unwrap().names()[6], "batch-64");
    assert!(ladder.cut(Form::Bare).is_none());
    assert_eq!(suite.file.unwrap().of(Form::Full), 1 << 30);
}

#[test]
fn what_is_wrong_is_reported_with_its_place_and_what_would_do() {
    let cases = [
        (
            "plug",
            "batch = 1\n",
            "bacth = 1\n",
            "x.toml:47:1: unknown field `bacth`, expected one of `name`,",
        ),
        (
            "plug",
            "pattern = \"random\"",
            "pattern = \"any\"",
            "unknown variant `any`, expected `random` or",
        ),
        (
            "plug",
            "through = \"pread\"",
            "through = \"read\"",
            ":37:11: read: no such arm of requests; did you mean pread?",
        ),
        (
            "plug",
            "plug = \"always\"",
            "plug = \"often\"",
            "often: allowed: never, always, adaptive",
        ),
        (
            "plug",
            "plug = \"always\"",
            "plugg = \"always\"",
            "plugg: no such knob; did you mean plug?",
        ),
        (
            "plug",
            "\"fio\", \"fio-batch-32\"",
            "\"foi\", \"fio-batch-32\"",
            "foi: no such arm; did you mean fio?",
        ),
        (
            "plug",
            "metric = \"iops\"",
            "metric = \"speed\"",
            "speed: no such metric (there are: iops,",
        ),
        (
            "plug",
            "[\"file\"]",
            "[\"nvme\"]",
            "nvme: no such device (there are: null, free:NANOSECONDS",
        ),
        ("plug", "[\"file\"]", "[\"null\"]", "pread goes to a file alone (leave null out)"),
        ("plug", ", block = \"4k\"", "", "x.toml:18:9: missing field `block`"),
        (
            "plug",
            "probe = \"requests\"",
            "probe = \"request\"",
            "request: no such probe; did you mean requests?",
        ),
        (
            "programs",
            "shape = { operations = 2000 }",
            "shape = { operations = 2000, block = \"4k\" }",
            "unknown field `block`",
        ),
        (
            "files",
            "through = \"files-syncfs\"",
            "through = \"pread\"",
            "pread: no such arm of files (there are: program-std,",
        ),
        ("plug", "block = \"4k\"", "block = \"4x\"", "4x: no number of bytes (such as \"4k\""),
        (
            "plug",
            "block = \"4k\"",
            "block = \"1000\"",
            "out of range (512 to 16m, in steps of 512)",
        ),
        ("plug", "depths = [1, 32, 128]", "depths = [0]", "0: out of range (1 to 4096)"),
        ("plug", "seconds = 1.0", "seconds = 0", "0: out of range (0.01 to 3600)"),
        ("plug", "\"queue.nomerges\" =", "\"nomerges\" =", "not the name of a setting"),
        (
            "plug",
            "again = \"adaptive\"",
            "again = \"all-on\"",
            "all-on: no such arm in every form of this part",
        ),
        ("plug", "base = \"never\"\nagain", "again", "give one of base and best_of"),
        ("plug", "name = \"never\"", "name = \"always\"", "always: named twice"),
        (
            "plug",
            "name = \"never\"",
            "name = \"Never\"",
            "not a name (a-z, 0-9 and -, 30 characters at most)",
        ),
        (
            "plug",
            "[file]\nfull = \"1g\"\nquick = \"256m\"\nbare = \"256m\"",
            "",
            "needs a [file] with its bytes",
        ),
        ("layout", "file_bytes = \"96m\"", "", "every form needs file_bytes, such as \"24m\""),
        (
            "layout",
            "files = 12, ",
            "pattern = \"random\", ",
            "unknown field `pattern`, expected one of `files`, `block`, `alone`",
        ),
        (
            "completion",
            "rw = \"write\"",
            "rw = \"wirte\"",
            "unknown variant `wirte`, expected one of `write`,",
        ),
        ("completion", "iodepth = 1,", "iodepth = 2,", "single calls have a depth of 1"),
        (
            "completion",
            "cache = \"64m\"",
            "cache = \"1m\"",
            "memory out of range (in steps of 1m, cache 8m",
        ),
        ("completion", "dirty = \"64m\"", "dirty = \"80m\"", "memory out of range"),
        (
            "completion",
            "on = \"device\"",
            "on = \"device\", beside = \"sync\"",
            "no file to sync beside it",
        ),
        ("completion", "numjobs = 1, uncached", "uncached", "missing field `numjobs`"),
        (
            "completion",
            "on = \"device\"",
            "on = \"disk\"",
            "unknown variant `disk`, expected `file` or `device`",
        ),
        (
            "completion",
            "bytes = \"32m\"",
            "bytes = \"33k\"",
            "out of range (whole blocks, 1g at most)",
        ),
        (
            "completion",
            "\"delay=1000\"",
            "\"later\"",
            "invalid value `later` for knob `completion`",
        ),
        ("completion", "flight = \"32\"", "fligth = \"32\"", "unknown knob `fligth`"),
        ("completion", "scale = 0.03", "scale = 3", "3: out of range (above 0, at most 1)"),
        ("completion", "file_bytes = \"2g\"", "", "every form needs file_bytes, such as \"2g\""),
        ("completion", "[\"A\", \"B\"", "[\"copy-4k\", \"B\"", "jobs in a part about copies"),
        (
            "completion",
            "[\"memcpy\", \"pwrite\"",
            "[\"kernel-direct\", \"memcpy\"",
            "kernel-direct: no such arm of copies (there are: copy-memcpy,",
        ),
        ("writeback", "contexts = \"8\"", "contexts = \"0\"", "invalid value `0` for knob"),
        ("writeback", "contexts = \"8\"", "contexts = \"10000\"", "invalid value `10000` for knob"),
        ("writeback", "\"single\"", "\"sinlge\"", "invalid value `sinlge` for knob"),
        (
            "writeback",
            "layout = \"unwritten\"",
            "layout = \"unwriten\"",
            "unknown variant `unwriten`, expected one of",
        ),
        ("writeback", "nrfiles = 12, ", "", "missing field `nrfiles`"),
        ("writeback", "directories = 12", "directories = 13", "13: out of range (1 to 12)"),
        ("writeback", "file = \"1g\"", "file = \"1m,\"", "1m,"),
        ("writeback", "file = \"1g\"", "file = \"33k\"", "file is no multiple of 64k"),
        ("writeback", ", file = \"20g\"", "", "every form needs cell_bytes, here of 2304k or more"),
        (
            "writeback",
            "cell_bytes = \"1152m\"",
            "cell_bytes = \"1m\"",
            "needs cell_bytes, here of 9216k or more",
        ),
        (
            "writeback",
            "base = \"contexts-1-holes\"",
            "base = \"contexts-1\"",
            "no such arm in every form",
        ),
        (
            "layout",
            "base = \"kernel-buffered\" }",
            "base = \"kernel\" }",
            "kernel: no arm of this part",
        ),
        ("layout", "name = \"layout\"\n", "name = layout\n", "x.toml:5:8: "),
    ];
    for (name, from, to, expected) in cases {
        let said = refused(name, from, to);
        assert!(said.contains(expected) && said.starts_with("x.toml:"), "{from} -> {to}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn completion_has_its_jobs_and_no_base_that_does_another_job() {
    let suite = shipped("completion");
    let part = &suite.parts[0];
    let full = part.cut(Form::Full).unwrap();
    assert_eq!(full.scale, 0.03);
    let Base::BestOf(best_of) = &part.base else { panic!("{:?}", part.base) };
    for arm in &full.arms {
        let way = crate::arm::Arm::by_name(arm.way.word).unwrap();
        assert_eq!(best_of.contains(&arm.name), way.is_bounded_kernel(), "{}", arm.name);
    }
    let names: Vec<_> = suite.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["completion", "copy", "sync-beside", "holds"]);
    let bare = part.cut(Form::Bare).unwrap();
    assert_eq!((bare.workloads.len(), bare.workloads[0].name.as_str()), (1, "C"));
    let pair = full.also.iter().find(|pair| pair.base == "kernel-direct-1m").unwrap();
    assert!(!bare.names().contains(&pair.base), "a form without one of them is without the pair");
}

#[test]
fn a_name_that_is_none_and_a_path_that_leads_nowhere() {
    let said = find(Path::new("plag")).unwrap_err().to_string();
    assert_eq!(
        said,
        "plag: no such suite; use one of completion, files, layout, log, plug, programs, \
         writeback, or the path of a file"
    );
    let said = find(Path::new("./mine.toml")).unwrap_err().to_string();
    let names = "or one of completion, files, layout, log, plug";
    assert!(said.contains("No such file") && said.contains(names), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let (_, text) = SHIPPED.iter().find(|(known, _)| *known == "plug").unwrap();
    std::fs::write(&path, text.replace("name = \"plug\"", "name = \"mine\"")).unwrap();
    assert_eq!(find(&path).unwrap().name, "mine");
}

#[test]
fn pairs_of_factors_differ_in_one_thing() {
    let suite = shipped("writeback");
    let part = suite.parts.iter().find(|part| part.name == "factors").unwrap();
    for (form, pairs) in [(Form::Full, 26), (Form::Quick, 8), (Form::Published, 2)] {
        let cut = part.cut(form).unwrap();
        let arm = |name: &str| cut.arms.iter().find(|arm| arm.name == name).unwrap();
        for pair in &cut.also {
            let (arm, base) = (arm(&pair.arm), arm(&pair.base));
            assert_eq!(arm.way, base.way, "{pair:?}");
            assert_ne!(arm.layout == base.layout, arm.knobs == base.knobs, "{pair:?}");
        }
        assert_eq!(cut.also.len(), pairs);
    }
}

//! Answers of the built program to its arguments: exit codes, one line, nothing left behind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
}

fn said(words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = forebay().args(words).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn bad_input_is_code_2_and_one_line_with_the_remedy() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "no command; use `forebay compare`"),
        (&["compair"], "unrecognized subcommand 'compair' ("),
        (&["compare", "--round", "3"], "a similar argument exists: '--rounds'"),
        (
            &["compare", "plag"],
            "plag: no such suite; use one of completion, files, layout, log, plug,",
        ),
        (
            &["compare", "--target", "/dev/null"],
            "--target /dev/null: neither a file nor a block device",
        ),
        (
            &["compare", "layout", "--target", "Cargo.toml"],
            "no part of this suite reads an existing file",
        ),
        (
            &["compare", "--cpus", "1-"],
            "--cpus: 1-: not a list of processors; use a form like 0-3,6",
        ),
        (&["compare", "--max-writes", "much"], "give a number of bytes above 0"),
        (&["compare", "layout", "--max-writes", "1m"], "this comparison writes"),
        (&["compare", "--resume", "/tmp"], "--resume /tmp: is a directory; name a file in it"),
        (&["compare", "layout", "--resume", "Cargo.toml"], "Cargo.toml: not a file of --resume"),
        (
            &["compare", "layout", "--arm", "mine=forebya"],
            "forebya: no such engine; did you mean forebay?",
        ),
        (
            &["compare", "layout", "--arm", "a=forebay,flihgt=8"],
            "no such key; did you mean flight?",
        ),
        (&["compare", "layout", "--arm", "a=forebay,flight=-1"], "--arm a: flight=-1: "),
        (
            &["compare", "layout", "--arms", "forebya"],
            "forebya: no such arm of the suite; did you mean forebay?",
        ),
        (&["compare", "layout", "--arms", "none"], "no arm is left"),
        (
            &["compare", "layout", "--arm", "a=null,sysctl.vm.swapiness=1"],
            "did you mean sysctl.vm.swappiness?",
        ),
        (&["compare", "/no/such.fio"], "/no/such.fio: No such file"),
        (
            &["compare", "--target", "/dev/null", "--allow-write-device"],
            "--target /dev/null: not a block device",
        ),
        (&["compare", "./no-such.toml"], "./no-such.toml: No such file"),
        (&["compare", "plug", "--set", "flight=8"], "no knob `flight` (there are: plug, merge"),
        (
            &["compare", "plug", "--set", "plug=often"],
            "--set plug=often: allowed: never, always, adaptive",
        ),
        (&["compare", "layout", "--set", "flihgt=8"], "--set flihgt=8: unknown knob `flihgt`"),
        (&["compare", "--rounds", "0"], "give 1 to 1000 rounds"),
        (&["compare", "--rounds", "many"], "give 1 to 1000 rounds"),
        (&["compare", "--rounds", "500"], "use `forebay compare layout`, or --rounds 27 or less"),
        (&["compare", "--seconds", "0"], "give 1 to 31536000 seconds"),
        (&["compare", "--scale", "2"], "give a number above 0 and up to 1"),
        (&["compare", "--seed", "xyz"], "--seed xyz: not a seed; give 1 to 16 hexadecimal digits"),
        (
            &["compare", "--set", "flight"],
            "--set flight: not KEY=VALUE; use a form like --set flight=32",
        ),
        (&["compare", "--set", "=3"], "not KEY=VALUE"),
        (&["compare", "--dir", "/no/such/place"], "--dir /no/such/place: No such file"),
        (&["compare", "--dir", "/dev/null"], "not a directory; give an existing directory"),
        (&["compare", "--json", "/tmp"], "--json /tmp: is a directory; name a file in it"),
        (&["compare", "--json", "/no/such/result.json"], "name a file in an existing directory"),
        (&["run"], "<JOB.fio> (see `forebay run --help`)"),
        (&["run", "/no/such.fio"], "job file /no/such.fio: No such file"),
        (&["run", "/dev/null", "--engine", "libaio"], "[possible values: forebay, kernel, null]"),
        (&["walk"], "<WAY> (see `forebay walk --help`)"),
        (&["walk", "bio"], "invalid value 'bio' for '<WAY>' [possible values: request, page]"),
        (&["walk", "request", "--dir", "/no/such/place"], "--dir /no/such/place: No such file"),
    ];
    for (words, expected) in cases {
        let (code, text) = said(words);
        assert_eq!(code, Some(2), "{words:?}: {text}");
        assert!(text.contains(expected), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
        assert!(text.starts_with("forebay: "), "{text}");
    }
}

#[test]
fn words_that_are_not_text_are_no_panic() {
    let strange = OsStr::from_bytes(b"\xff\xfe");
    for words in
        [vec![strange], vec![OsStr::new("compare"), strange], vec![OsStr::new("run"), strange]]
    {
        let output = forebay().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    }
}

#[test]
fn version_and_help() {
    let output = forebay().arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("forebay {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let output = forebay().args(["compare", "--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for option in [
        "--list",
        "--dir",
        "--rounds",
        "--seconds",
        "--quick",
        "--set",
        "--json",
        "--seed",
        "--target",
        "--arm",
        "--arms",
        "--cpus",
        "--resume",
        "--max-writes",
    ] {
        assert!(text.contains(option), "{option}");
    }
    assert!(!text.contains("__cell"));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let mut child =
        forebay().arg("--help").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_directory_that_cannot_be_written_is_a_failure_with_a_remedy() {
    // /proc is a directory everywhere, and no user can make one in it.
    let (code, text) = said(&["walk", "request", "--dir", "/proc"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("/proc: "), "{text}");
}

#[test]
fn a_walk_shows_each_step_and_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let output = forebay().args(["walk", "request", "--dir"]).arg(parent.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let steps = |word: &str| {
        let is_step = |line: &&str| line.split_whitespace().nth(1) == Some(word);
        text.lines().take_while(|line| !line.starts_with(word)).filter(is_step).count()
    };
    // Seven bios; two of them join another's request.
    assert_eq!((steps("submitted"), steps("merged"), steps("ended")), (7, 2, 7), "{text}");
    assert!(text.contains("flush-data") && steps("rung") >= 4 && steps("run") >= 4, "{text}");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_walk_of_pages_shows_their_states_on_a_real_file() {
    let parent = tempfile::tempdir().unwrap();
    let output = forebay().args(["walk", "page", "--dir"]).arg(parent.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for state in
        ["filling", "dirty", "dirty again", "writeback", "clean", "absent", "partial", "failing"]
    {
        assert!(text.contains(&format!("  {state} ")), "no page is {state}: {text}");
    }
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn what_a_killed_run_left_is_removed_and_said() {
    use std::os::unix::fs::MetadataExt as _;
    let (parent, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dead = parent.path().join("forebay-compare-dead00");
    fs::create_dir(&dead).unwrap();
    let token = "0123456789abcdef0123456789abcdef";
    fs::write(dead.join("owner"), format!("4242\n{token}\n")).unwrap();
    let records = state.path().join("forebay/scratch");
    fs::create_dir_all(&records).unwrap();
    let inode = fs::metadata(&dead).unwrap().ino();
    let named = dead.canonicalize().unwrap();
    fs::write(records.join(token), format!("{inode}\n{}", named.display())).unwrap();
    // One that a user made by hand.
    let by_hand = parent.path().join("forebay-compare-x");
    fs::create_dir(&by_hand).unwrap();
    fs::write(by_hand.join("owner"), "4242\n").unwrap();
    fs::write(by_hand.join("thesis.tex"), "x").unwrap();
    // Refused only after the leftover was looked for.
    let output = forebay()
        .args(["compare", "--rounds", "500", "--dir"])
        .arg(parent.path())
        .env("XDG_STATE_HOME", state.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("left by a killed run (process 4242)"), "{text}");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    assert!(by_hand.join("thesis.tex").exists());
    assert_eq!(fs::read_dir(records).unwrap().count(), 0);
}

#[test]
fn the_suites_are_reported() {
    let output = forebay().args(["compare", "--list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("layout       Random 4 KiB writes")
            && text.contains("plug         What does")
            && text.contains("completion   Who pays for a held completion?")
            && text.contains("writeback    Why does writeback from several"),
        "{text}"
    );
    assert!(
        text.contains("(full, quick, bare)") && text.lines().all(|line| line.len() <= 80),
        "{text}"
    );
}

#[test]
fn a_suite_of_ones_own_is_refused_with_line_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    fs::write(&path, "name = \"mine\"\ntitle = \"?\"\n[[part]]\nnmae = \"x\"\n").unwrap();
    let (code, text) = said(&["compare", path.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("mine.toml:4:1: unknown field `nmae`, expected one of `name`"), "{text}");
}

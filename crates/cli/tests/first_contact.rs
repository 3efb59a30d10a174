//! The first contact with the program: one screen of answer, short help, and one clear sentence for
//! every bad input.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs the program; its last result is kept below `home`.
fn forebay(words: &[&str], home: &Path) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(words).current_dir(home).env("XDG_STATE_HOME", home.join("state"));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(!err.contains("panicked"), "{err}");
    Said { code: status.code(), out, err }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Skips with a reason; in CI that is a failure.
fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn a_bare_comparison_answers_on_one_screen_and_is_kept() {
    let home = directory();
    let here = home.path();
    let none = forebay(&["report", "--last"], here);
    assert_eq!(none.code, Some(2), "{}", none.err);
    assert!(none.err.contains("run `forebay compare` first"), "{}", none.err);

    let said = forebay(&["compare", "--rounds", "1", "--scale", "0.005", "--json", "a.json"], here);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(said.out.lines().count() <= 40 && widest(&said.out) <= 80, "{}", said.out);
    assert!(said.err.lines().count() <= 12 && widest(&said.err) <= 80, "{}", said.err);
    for words in ["vs best bounded", "Forebay + keeper", "Warning: ", "What does batching cost"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    assert!(said.out.ends_with("All tables and notes: forebay report --last\n"), "{}", said.out);
    assert!(!said.out.contains("-again"), "{}", said.out);
    for question in ["[1/3] ", "[2/3] ", "[3/3] "] {
        let lines = said.err.lines().filter(|line| line.starts_with(question));
        assert_eq!(lines.count(), 1, "{question}: {}", said.err);
    }

    // All of it, from the kept result.
    let full = forebay(&["report", "--last", "--html", "page.html"], here);
    assert_eq!(full.code, Some(0), "{}", full.err);
    assert!(full.out.contains("forebay-again") && full.out.contains("own cs"), "{}", full.out);
    assert!(!full.out.contains("1 rounds"), "{}", full.out);
    assert_eq!(forebay(&["report", "a.json"], here).out, full.out);
    assert!(fs::read_to_string(here.join("page.html")).unwrap().contains("<svg"));
}

#[test]
fn verbose_prints_the_tables_and_a_line_for_each_run() {
    let home = directory();
    let words = ["compare", "--rounds", "1", "--scale", "0.005", "--verbose"];
    let said = forebay(&words, home.path());
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(said.out.contains("forebay-again") && said.out.contains("noise floor"), "{}", said.out);
    assert!(said.err.lines().any(|line| line.starts_with("[  1/")), "{}", said.err);
}

#[test]
fn short_help_is_a_screen_and_names_the_exit_codes_in_the_long_one() {
    let home = directory();
    for verb in ["", "compare", "doctor", "report", "run", "ctl"] {
        let words = |form| [verb, form].into_iter().filter(|word| !word.is_empty());
        let short = forebay(&words("-h").collect::<Vec<_>>(), home.path());
        assert_eq!(short.code, Some(0));
        assert!(short.out.lines().count() <= 25 && widest(&short.out) <= 80, "{}", short.out);
        let full = forebay(&words("--help").collect::<Vec<_>>(), home.path());
        assert!(widest(&full.out) <= 80, "{}", full.out);
        assert!(full.out.contains("Examples:"), "{}", full.out);
        assert!(verb == "report" || full.out.contains("Exit codes:"), "{}", full.out);
    }
    let knobs = forebay(&["run", "--help"], home.path()).out;
    for knob in forebay::Options::default().knobs() {
        let meaning = knob.help.split(' ').next().expect("a knob has a meaning");
        assert!(
            knobs.contains(&format!("  {:<17} {meaning}", knob.name)),
            "{}: {knobs}",
            knob.name
        );
    }
}

#[test]
fn completions_and_manual_pages_have_every_option() {
    let home = directory();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = forebay(&["completions", shell], home.path());
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.out.contains("max-writes") && said.out.contains("doctor"), "{shell}");
    }
    let unknown = forebay(&["completions", "tcsh"], home.path());
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("bash"), "{}", unknown.err);

    let pages = home.path().join("man");
    fs::create_dir(&pages).unwrap();
    let said = forebay(&["man", "man"], home.path());
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
    for page in ["forebay.1", "forebay-compare.1", "forebay-doctor.1", "forebay-run.1"] {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".TH forebay"), "{page}: {text}");
    }
    let compare = fs::read_to_string(pages.join("forebay-compare.1")).unwrap();
    assert!(compare.contains("max\\-writes") && compare.contains(".nf\nExamples:"), "{compare}");
    assert!(!pages.join("forebay-keeper.1").exists());
    let nowhere = forebay(&["man", "/no/such/place"], home.path());
    assert_eq!(nowhere.code, Some(2), "{}", nowhere.err);
}

#[test]
fn each_bad_input_is_one_clear_sentence() {
    let home = directory();
    let here = home.path();
    fs::write(here.join("file"), "").unwrap();
    fs::write(here.join("other.json"), r#"{"schema": 7}"#).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["comapre"], "unrecognized subcommand 'comapre' ("),
        (&["compare", "--ruonds", "3"], "a similar argument exists: '--rounds'"),
        (&["compare", "no-such-suite"], "no such suite"),
        (&["compare", "layout", "--set", "dirty_byte=1g"], "unknown knob `dirty_byte`"),
        (&["compare", "--seconds", "10m"], "give 1 to 31536000 seconds, without a unit"),
        (&["compare", "--rounds", "five"], "give 1 to 1000 rounds"),
        (&["compare", "--max-writes", "20gallons"], "such as 20g or 500m"),
        (&["compare", "layout", "--set", "dirty_age=5"], "a time with its unit"),
        (&["compare", "--dir", "file"], "--dir file: not a directory; give an existing directory"),
        (&["report", "other.json"], "other.json has schema 7, this program reads 1"),
        (&["report"], "see `forebay report --help`"),
        (&["report", "--last", "other.json"], "cannot be used with"),
        (&["doctor", "no-such-file"], "give an existing file, directory or block device"),
        (&["ctl", "socket"], "use get, set or stats"),
    ];
    for (words, expected) in cases {
        let Said { code, out, err } = forebay(words, here);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{words:?}: {err}");
        assert!(err.starts_with("forebay: ") && err.contains(expected), "{words:?}: {err}");
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 2, "nothing was made");
}

/// A small file system that goes when the value does; none without root.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(options: &str) -> Option<Self> {
        let place = directory();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "forebay-test"])
            .arg(place.path())
            .output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn too_little_space_and_a_read_only_directory_are_refused_at_the_start() {
    let home = directory();
    let (Some(small), Some(read_only)) = (Mounted::new("size=1m"), Mounted::new("size=1m,ro"))
    else {
        return skip("no file system can be mounted (needs root)");
    };
    let place = small.0.path().to_str().unwrap();
    for words in [
        &["compare", "layout", "--dir", place][..],
        &["compare", "--check-against-itself", "--dir", place],
    ] {
        let said = forebay(words, home.path());
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.contains("MiB free; ") && said.err.contains(place), "{}", said.err);
    }
    assert_eq!(fs::read_dir(small.0.path()).unwrap().count(), 0);
    let place = read_only.0.path().to_str().unwrap();
    let said = forebay(&["walk", "request", "--dir", place], home.path());
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("Read-only file system"), "{}", said.err);
    let said = forebay(&["compare", "--json", &format!("{place}/a.json")], home.path());
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("name a file in a writable directory"), "{}", said.err);
}

/// On a terminal of 60 columns, as `script` gives one.
fn on_a_terminal(command: &str, home: &Path) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_forebay");
    let line = format!("stty cols 60 rows 40; '{program}' {command}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1");
    script.current_dir(home).env("XDG_STATE_HOME", home.join("state"));
    let output = script.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn a_narrow_terminal_gets_narrow_lines_without_colours() {
    let home = directory();
    for command in ["compare -h", "compare --dir /no/such/place/with/a/longer/name --rounds 3"] {
        let Some(text) = on_a_terminal(command, home.path()) else {
            return skip("script is not installed");
        };
        assert!(widest(&text) <= 60 && text.lines().count() > 1, "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    let small = "compare --rounds 1 --scale 0.005";
    let text = on_a_terminal(small, home.path()).unwrap();
    let answer = text.rsplit('\u{1b}').next().unwrap();
    assert!(answer.contains("All tables and notes: forebay report --last"), "{text:?}");
    let answer = &answer[answer.find("Random 4 KiB").unwrap_or(0)..];
    assert!(widest(answer) <= 60, "{answer}");
}

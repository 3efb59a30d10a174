use super::*;
use crate::progress::Verbosity;

fn finding(name: &str, level: Level) -> Finding {
    Finding {
        part: Part::Ring,
        name: name.to_owned(),
        level,
        found: "what was found".to_owned(),
        means: "what it means".to_owned(),
        remedy: None,
    }
}

fn with_remedy(of: Finding, what: &str, command: Option<(&str, By)>) -> Finding {
    let command = command.map(|(line, by)| Command { line: line.to_owned(), by });
    Finding { remedy: Some(Remedy { what: what.to_owned(), command }), ..of }
}

fn report(findings: Vec<Finding>) -> Report {
    Report {
        schema: SCHEMA,
        version: "0.1.0".into(),
        date: "2026-03-01T12:34:56Z".into(),
        path: ".".into(),
        kind: Kind::Directory,
        heading: "xfs on /dev/sda at /mnt; Linux 6.18.44".into(),
        price: None,
        strength: Strength::of(&findings),
        findings,
    }
}

#[test]
fn the_strength_is_that_of_the_weakest_that_counts() {
    let strength = |findings: &[Finding]| Strength::of(findings);
    assert_eq!(strength(&[]), Strength::Full);
    assert_eq!(
        strength(&[finding("a", Level::Full), finding("b", Level::NotKnown)]),
        Strength::Full
    );
    assert_eq!(
        strength(&[finding("a", Level::Full), finding("b", Level::Degraded)]),
        Strength::Degraded
    );
    assert_eq!(strength(&[finding("minimal wait", Level::Missing)]), Strength::Degraded);
    assert_eq!(
        strength(&[finding("a", Level::Degraded), finding("engine", Level::Missing)]),
        Strength::None
    );
    assert_eq!(strength(&[finding("engine", Level::Missing)]), Strength::None);
    assert_eq!(strength(&[finding("engine", Level::Degraded)]), Strength::Degraded);
}

#[test]
fn the_text_is_72_columns_wide_and_its_commands_can_be_copied() {
    let long = "mount -o remount,inode64 /mnt/a/directory/of/some/length && echo this goes beyond the line";
    let findings = vec![
        finding("io_uring", Level::Full),
        with_remedy(
            finding("min wait", Level::NotKnown),
            "wait, and see what comes of it in the course of some more words",
            None,
        ),
        with_remedy(
            Finding { part: Part::Device, ..finding("scheduler", Level::Degraded) },
            "until the next boot",
            Some((long, By::Root)),
        ),
    ];
    let report = report(findings);
    let (text, all) = (report.text(Verbosity::Brief), report.text(Verbosity::Verbose));
    assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    let expected = "\
xfs on /dev/sda at /mnt; Linux 6.18.44

degraded   scheduler: what was found
             what it means
             -> until the next boot
             # mount -o remount,inode64 \\
               /mnt/a/directory/of/some/length && echo this goes \\
               beyond the line

not known  min wait: what was found
             what it means
             -> wait, and see what comes of it in the course of some
             more words

";
    let passed = "Forebay works here, but not at full strength. 1 of 3 checks passed";
    let hint = "(--verbose lists them). Run commands after `#` as root.";
    let folded = text.strip_prefix(expected).expect(&text).replace('\n', " ");
    assert_eq!(folded.trim(), format!("{passed} {hint}"));
    let listed = "\n\nKernel and io_uring\nfull       io_uring: what was found\n             what it means\n";
    assert!(all.starts_with(expected) && all.ends_with(listed), "{all}");
}

#[test]
fn the_document_is_read_as_it_was_written() {
    let findings = vec![
        finding("a", Level::NotKnown),
        with_remedy(finding("b", Level::Degraded), "do", Some(("x", By::User))),
    ];
    let report = report(findings);
    let json = report.json();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    for word in [
        r#""schema": 1"#,
        r#""kind": "directory""#,
        r#""level": "not_known""#,
        r#""by": "user""#,
        r#""remedy": null"#,
    ] {
        assert!(json.contains(word), "{word}: {json}");
    }
}

#[test]
fn a_real_place_is_examined_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let report = examine(directory.path()).unwrap();
    print!("{}", report.text(Verbosity::Verbose));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    for finding in &report.findings {
        assert!(!finding.found.is_empty() && !finding.means.is_empty(), "{finding:?}");
        // Each loss has a remedy.
        if matches!(finding.level, Level::Degraded | Level::Missing) {
            assert!(finding.remedy.is_some(), "{finding:?}");
        }
    }
    let part = |name: &str| report.findings.iter().find(|finding| finding.name == name);
    assert!(CHECKS.iter().all(|(_, name, _)| !name.is_empty()));
    for (name, expected) in [
        ("kernel", Part::Ring),
        ("processors", Part::Machine),
        ("type", Part::FileSystem),
        ("free space", Part::FileSystem),
        ("access", Part::Files),
    ] {
        assert_eq!(part(name).map(|finding| finding.part), Some(expected), "{name}");
    }
    let devices = ["below it", "scheduler", "tags", "rotational"];
    assert!(devices.iter().filter_map(|name| part(name)).all(|found| found.part == Part::Device));
    let names: Vec<_> = report.findings.iter().map(|finding| &finding.name).collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
}

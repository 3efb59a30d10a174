//! Appends by programs of the mount, to files that programs of the source cut or append to.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::place::Place;

fn append_to(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).unwrap()
}

fn shell(line: &str, path: &Path) {
    let status = Command::new("sh").args(["-c", line, "sh"]).arg(path).status().unwrap();
    assert!(status.success(), "{line}");
}

#[test]
fn an_append_after_a_cut_in_the_source_is_at_the_new_end() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let cuts = [
        ("redirected", ": >\"$1\""),
        ("truncated", "until truncate -s 0 \"$1\" 2>/dev/null; do sleep 0.1; done"),
        ("copied", "cp \"$1\" \"$1.1\" && : >\"$1\""),
    ];
    // Longer than a small file, or not.
    for (size, lines) in [("small", 10), ("large", 20_000)] {
        for (name, cut) in cuts {
            for is_synced in [false, true] {
                let what = format!("{size} {name} {is_synced}");
                let (here, there) = (place.mount.join(&what), place.source.join(&what));
                let mut log = append_to(&here);
                log.write_all("a line of the log\n".repeat(lines).as_bytes()).unwrap();
                if is_synced {
                    log.sync_all().unwrap();
                }
                for turn in 0..3 {
                    shell(cut, &there);
                    for line in 0..20 {
                        writeln!(log, "{turn} {line}").unwrap();
                    }
                    let expected: String = (0..20).map(|line| format!("{turn} {line}\n")).collect();
                    assert_eq!(fs::read_to_string(&here).unwrap(), expected, "{what}");
                    assert_eq!(here.metadata().unwrap().len(), expected.len() as u64, "{what}");
                    assert_eq!(fs::read_to_string(&there).unwrap(), expected, "{what}");
                }
            }
        }
    }
    place.unmount();
}

#[test]
fn a_log_that_is_renamed_in_the_source_is_written_under_its_new_name() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    let (here, there) = (place.mount.join("log"), place.source.join("log"));
    let mut log = append_to(&here);
    log.write_all(&[b'a'; 300_000]).unwrap();
    fs::rename(&there, place.source.join("log.1")).unwrap();
    fs::write(&there, b"of the source\n").unwrap();
    log.write_all(b"still here\n").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let mut new = append_to(&here);
    new.write_all(b"new\n").unwrap();
    log.sync_all().unwrap();
    new.sync_all().unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"of the source\nnew\n");
    let old = fs::read(place.source.join("log.1")).unwrap();
    assert_eq!(old, [&[b'a'; 300_000][..], b"still here\n"].concat());
    drop((log, new));
    place.unmount();
}

#[test]
fn lines_that_are_appended_in_the_mount_and_in_the_source_are_all_there() {
    let Some(place) = Place::new() else { return };
    place.mount(&[]);
    for (name, first) in [("small", 0), ("large", 300_000)] {
        let (here, there) = (place.mount.join(name), place.source.join(name));
        let mut log = append_to(&here);
        log.write_all(&vec![b'\n'; first]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shell("for n in $(seq 1000); do echo source-$n >>\"$1\"; done", &there);
            });
            for number in 1..=1000 {
                log.write_all(format!("mount-{number}\n").as_bytes()).unwrap();
            }
        });
        let content = fs::read_to_string(&there).unwrap();
        assert_eq!(fs::read_to_string(&here).unwrap(), content);
        for whose in ["mount", "source"] {
            let found: Vec<&str> = content.lines().filter(|line| line.starts_with(whose)).collect();
            let expected: Vec<String> = (1..=1000).map(|n| format!("{whose}-{n}")).collect();
            assert!(found == expected, "{name}: {} lines of the {whose}", found.len());
        }
    }
    place.unmount();
}

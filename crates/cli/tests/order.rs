//! `forebay compare order` and `forebay netbench` as they are built, as small as they can be.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

fn forebay(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn the_quick_form_comes_to_its_end_with_every_table() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().to_str().unwrap();
    let json = directory.path().join("result.json");
    let (code, out, err) = forebay(&[
        "compare",
        "order",
        "--quick",
        "--scale",
        "0.1",
        "--rounds",
        "2",
        "--seed",
        "7f3a",
        "--dir",
        path,
        "--json",
        json.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(0), "{out}{err}");
    for word in [
        "An echo server by the order of its work",
        "4x2 4 connections, 2 messages each:",
        "4x2-together 4 connections, 2 messages together:",
        "epoll ",
        "passed",
        "inversions",
        "noise floor",
        "2 rounds, seed 7f3a",
    ] {
        assert!(out.contains(word), "{word}: {out}{err}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    // The ring may be forbidden here, and the program may be without its peers: then that is said.
    let ring = out.contains("fifo-again ") && out.contains("fifo to") && out.contains("lifo ");
    assert!(ring || out.contains("left out: fifo: "), "{out}");
    for peer in ["tokio", "compio"] {
        assert!(
            out.contains(&format!("left out: {peer}: this program was built without it")) || ring,
            "{out}"
        );
    }
    let json = fs::read_to_string(&json).unwrap();
    for word in [
        r#""suite": "order""#,
        r#""table": "echo""#,
        r#""requests_per_s""#,
        r#""idle_share""#,
        r#""latency_p999_us""#,
        r#""reorder_distance_p99""#,
        r#""inversions_per_1000_items""#,
        r#""coefficient_of_variation""#,
    ] {
        assert!(json.contains(word), "{word}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the result is left");
}

#[test]
fn the_suite_has_no_knobs_to_set() {
    let (code, _, err) = forebay(&["compare", "order", "--set", "order=lifo"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("no arm of this suite has knobs"), "{err}");
}

#[test]
fn a_bench_tells_a_line_a_second_and_percentiles() {
    let (code, out, err) = forebay(&[
        "netbench",
        "--server",
        "epoll",
        "--order",
        "lifo",
        "--seconds",
        "1",
        "--work",
        "1",
    ]);
    assert_eq!(code, Some(0), "{err}");
    let first = out.lines().next().unwrap();
    assert!(
        first.starts_with("epoll port=") && first.contains(": rps:") && first.contains(" Bps:"),
        "{out}"
    );
    assert!(first.contains(" idle=") && first.contains(" user="), "{out}");
    for word in [
        "4 connections x 2 messages of 9 bytes: ",
        "latency us: p50 ",
        "passed by messages sent later",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn the_ends_may_be_two_programs() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["netbench", "--server", "epoll", "--listen", "127.0.0.1:0", "--seconds", "60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let (_, port) = line.trim().split_once("port=").unwrap_or_else(|| panic!("{line}"));
    let (code, out, err) = forebay(&[
        "netbench",
        "--connect",
        &format!("127.0.0.1:{port}"),
        "--seconds",
        "1",
        "--size",
        "100",
    ]);
    server.kill().unwrap();
    server.wait().unwrap();
    output.read_to_string(&mut line).unwrap();
    assert_eq!(code, Some(0), "{err}{line}");
    assert!(out.starts_with("client port=") && !out.contains("idle="), "{out}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (arguments, remedy) in [
        (&["--connections", "0"][..], "between 1 and 10000"),
        (&["--size", "1000000000"], "between 1 and 16777216"),
        (&["--listen", "nowhere"], "give HOST:PORT"),
        (&["--connect", "127.0.0.1:1", "--order", "lifo"], "cannot be used with"),
        (&["--connect", "127.0.0.1:1"], "start the server first"),
        (&["--unix", "--listen", "/tmp/x"], "cannot be used with"),
    ] {
        let (code, _, err) = forebay(&[&["netbench"], arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(remedy), "{arguments:?}: {err}");
    }
}

//! `forebay run --control` and `forebay ctl`: the built program asks the built program, while it
//! runs a job.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn forebay(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(words);
    command
}

/// Returns the exit code, the standard output and the standard error.
fn ctl(socket: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let output = forebay(&["ctl"]).arg(socket).args(words).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    (output.status.code(), out, err)
}

#[test]
fn a_run_is_asked_and_set_while_it_goes_on() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Its path has to be short.
    let place = tempfile::tempdir().unwrap();
    let (job, socket) = (directory.path().join("job.fio"), place.path().join("socket"));
    fs::write(&job, "[a]\nsize=1m\nrw=randwrite\ntime_based\nruntime=60\n").unwrap();
    let mut run = forebay(&["run"])
        .arg(&job)
        .arg("--control")
        .arg(&socket)
        .arg("--dir")
        .arg(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    // The engine that is tried first serves it for a moment too: until something was written.
    while !ctl(&socket, &["stats", "accepted_bytes"])
        .1
        .trim()
        .parse()
        .is_ok_and(|bytes: u64| bytes > 0)
    {
        assert!(Instant::now() < until && run.try_wait().unwrap().is_none(), "{}", said(run));
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, all, _) = ctl(&socket, &["get"]);
    assert_eq!(code, Some(0));
    for line in all.lines() {
        let [name, value, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert_eq!(ctl(&socket, &["get", name]), (Some(0), format!("{value}\n"), String::new()));
        // The value that it has, also of a knob that is fixed.
        let (code, out, err) = ctl(&socket, &["set", name, value]);
        assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "", ""), "{line}");
    }
    let (code, _, err) = ctl(&socket, &["set", "buffer_bytes", "8192"]);
    assert!(code == Some(2) && err.contains(" while the engine runs: "), "{err}");
    assert_eq!(ctl(&socket, &["set", "plug", "never"]).0, Some(0));
    assert_eq!(ctl(&socket, &["get", "plug"]).1, "never\n");
    assert!(ctl(&socket, &["stats"]).1.lines().count() > 30);
    let (code, _, err) = ctl(&socket, &["set", "plgu", "never"]);
    assert_eq!(
        (code, err.as_str()),
        (Some(2), "forebay: plgu: no such knob; did you mean plug?\n")
    );
    // Another run on the same socket is refused before it does anything.
    let other = forebay(&["run"]).arg(&job).arg("--control").arg(&socket).output().unwrap();
    let err = String::from_utf8(other.stderr).unwrap();
    assert!(other.status.code() == Some(2) && err.contains("in use by a live process"), "{err}");
    let killed = Command::new("kill").args(["-2".to_owned(), run.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(130), "{}", said(run));
    assert!(!socket.exists(), "nothing is left of it");
}

fn said(mut child: std::process::Child) -> String {
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_be_asked_is_reported_with_a_code() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let (code, _, err) = ctl(&socket, &["get"]);
    assert!(code == Some(1) && err.contains("No such file") && err.lines().count() == 1, "{err}");
    drop(UnixListener::bind(&socket).unwrap());
    let (code, _, err) = ctl(&socket, &["get"]);
    assert!(code == Some(1) && err.contains("the engine that served it has ended"), "{err}");
    for words in
        [&[][..], &["put"], &["set"], &["set", "plug"], &["get", "a", "b"], &["stats", "a", "b"]]
    {
        let (code, _, err) = ctl(&socket, words);
        assert!(code == Some(2) && err.lines().count() == 1, "{words:?}: {err}");
    }
}

#[test]
fn a_control_socket_that_cannot_be_is_refused_before_anything_is_done() {
    let place = tempfile::tempdir().unwrap();
    let (job, file) = (place.path().join("job.fio"), place.path().join("file"));
    fs::write(&job, "[a]\nsize=1m\nrw=write\n").unwrap();
    fs::write(&file, "data").unwrap();
    for (control, engine, expected) in [
        (file.as_path(), "forebay", "which is no socket (use another path; nothing was changed)"),
        (Path::new("/no/such/socket"), "forebay", "No such file"),
        (file.as_path(), "kernel", "--control: only forebay has knobs"),
    ] {
        let run = forebay(&["run", "--engine", engine])
            .arg(&job)
            .arg("--dir")
            .arg(place.path())
            .arg("--control")
            .arg(control)
            .output()
            .unwrap();
        let err = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.code() == Some(2) && err.contains(expected), "{err}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"data");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "no file of the job");
}

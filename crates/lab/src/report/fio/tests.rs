use std::collections::BTreeSet;
use std::process::Command;

use hdrhistogram::Histogram;

use super::*;
use crate::detail::{Course, Detail, ProcessUse};
use crate::manifest::Manifest;

/// A hundred writes of 4 KiB in a second, one of them slow.
fn document() -> Document {
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    let mut course = Course::new();
    for number in 0..100_u64 {
        histogram.record(if number == 50 { 5_000_000 } else { 20_000 }).unwrap();
        course.record(number * 10_000_000, 4096);
    }
    let write = Flow {
        operations: 100,
        bytes: 409_600,
        runtime_ns: 1_000_000_000,
        latency: Latency::of(&histogram),
        course,
    };
    let usage = ProcessUse {
        user_us: 100_000,
        system_us: 200_000,
        context_switches: 7,
        ..ProcessUse::default()
    };
    let detail = Detail { write: Some(write), usage, ..Detail::default() };
    let mut document = Document::new(Manifest::default(), "suite", Vec::new(), Vec::new());
    document.cells.push(CellRecord {
        job: "a job".into(),
        arm: "kernel/direct".into(),
        round: 0,
        detail,
    });
    document
}

/// Every path of a value; where names are numbers, one stands for all.
fn paths(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if name.parse::<f64>().is_ok() { "NUMBER" } else { name };
                paths(value, &format!("{above}.{name}"), found);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| paths(item, &format!("{above}[]"), found));
        }
        _ => {
            found.insert(above.to_owned());
        }
    }
}

fn paths_of(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    paths(value, "", &mut found);
    found
}

#[test]
fn figures_are_in_its_units() {
    let files = fio_files(&document());
    assert_eq!(files[0].name, "a_job.kernel_direct.1.json");
    let job = &files[0].report["jobs"][0];
    let write = &job["write"];
    assert_eq!((write["iops"].as_f64(), write["bw"].as_u64()), (Some(100.0), Some(400)));
    assert_eq!(
        (write["runtime"].as_u64(), write["bw_bytes"].as_u64()),
        (Some(1000), Some(409_600))
    );
    let clat = &write["clat_ns"];
    assert!(clat["percentile"]["50.000000"].as_u64().unwrap().abs_diff(20_000) < 320, "{clat}");
    assert!(
        clat["percentile"]["99.500000"].as_u64().unwrap().abs_diff(5_000_000) < 80_000,
        "{clat}"
    );
    let counted: u64 =
        clat["bins"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((counted, clat["N"].as_u64()), (100, Some(100)));
    assert_eq!(
        (job["latency_us"]["50"].as_f64(), job["latency_ms"]["10"].as_f64()),
        (Some(99.0), Some(1.0))
    );
    assert_eq!((job["usr_cpu"].as_f64(), job["ctx"].as_u64()), (Some(10.0), Some(7)));
    assert_eq!(job["read"]["total_ios"], 0);
}

/// Every field here is one of its own, with numbers where it has numbers.
#[test]
fn fields_are_those_of_fio_itself() {
    let words = [
        "--name=x",
        "--ioengine=null",
        "--size=1m",
        "--bs=4k",
        "--rw=write",
        "--output-format=json+",
    ];
    let Ok(output) = Command::new("fio").args(words).output() else {
        assert!(std::env::var_os("CI").is_none(), "fio is not installed");
        eprintln!("skipped: fio is not installed");
        return;
    };
    let start = output.stdout.iter().position(|byte| *byte == b'{').unwrap();
    let told: Value = serde_json::from_slice(&output.stdout[start..]).unwrap();
    let own = fio_files(&document()).remove(0).report;
    let (own_paths, its_paths) = (paths_of(&own), paths_of(&told));
    let strange: Vec<_> = own_paths.difference(&its_paths).collect();
    assert!(strange.is_empty(), "fio has no {strange:?}");
    // Fields that tools read most.
    for field in
        ["iops", "bw", "bw_bytes", "io_bytes", "runtime", "total_ios", "bw_mean", "iops_mean"]
    {
        for direction in ["read", "write", "trim"] {
            let (own, its) =
                (&own["jobs"][0][direction][field], &told["jobs"][0][direction][field]);
            assert_eq!(
                (own.is_f64(), own.is_u64()),
                (its.is_f64(), its.is_u64()),
                "{field}: {own} {its}"
            );
        }
    }
    // In the same units: its own figures follow from each other as ours do.
    for job in [&own["jobs"][0], &told["jobs"][0]] {
        let write = &job["write"];
        let number = |name: &str| write[name].as_f64().unwrap();
        let seconds = number("runtime") / 1000.0;
        assert!((number("io_bytes") / number("bw_bytes") / seconds - 1.0).abs() < 0.05, "{write}");
        assert!((number("bw_bytes") / 1024.0 / number("bw") - 1.0).abs() < 0.05, "{write}");
        let clat = &write["clat_ns"];
        let (least, most) = (clat["min"].as_f64().unwrap(), clat["max"].as_f64().unwrap());
        let median = clat["percentile"]["50.000000"].as_f64().unwrap();
        assert!(least * 0.98 <= median && median <= most * 1.02, "{clat}");
    }
}

#[test]
fn each_cell_has_a_file_of_its_own() {
    let mut document = document();
    let other = CellRecord { job: "a/job".into(), ..document.cells[0].clone() };
    document.cells.push(other);
    let names: Vec<_> = fio_files(&document).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["a_job.kernel_direct.1.json", "a_job.kernel_direct.1-2.json"]);
}

/// Its own script for such files.
#[test]
fn its_own_script_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("cell.json"), directory.path().join("cell.csv"));
    let file = fio_files(&document()).remove(0);
    std::fs::write(&input, serde_json::to_string_pretty(&file.report).unwrap()).unwrap();
    let mut script = Command::new("fio_jsonplus_clat2csv");
    // It wants the system's own Python, with its packages.
    script.arg(&input).arg(&output).env("PATH", "/usr/bin:/bin");
    let Ok(said) = script.output() else {
        eprintln!("skipped: fio's scripts are not installed");
        return;
    };
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    if errors.contains("ModuleNotFoundError") {
        eprintln!("skipped: fio's script lacks a package of Python");
        return;
    }
    assert!(said.status.success(), "{errors}");
    let table = std::fs::read_to_string(directory.path().join("cell_job0.csv")).unwrap();
    assert_eq!(table.lines().count(), 3, "a head and two bins: {table}");
}

//! Copies into memory: every arm works, and its data is read back.

use std::path::Path;

use forebay_lab::cell::{Cell, CellResult, Verify};
use forebay_lab::load::CellError;
use forebay_lab::probe::Probe;
use forebay_lab::probes;
use serde_json::json;

fn probe() -> &'static Probe {
    probes::by_name("copies").unwrap()
}

fn cell(arm: &str, block: &str, directory: &Path) -> Cell {
    let cell = Cell::new("copies", arm, &json!({ "block": block, "bytes": "2m" }));
    let settings = vec![("cache_bytes".into(), "16m".into())];
    let settings = if arm == "copy-forebay" { settings } else { Vec::new() };
    let directory = directory.to_owned();
    Cell { seconds: 0.02, seed: 7, verify: Verify::After, settings, directory, ..cell }
}

fn run(cell: &Cell) -> Result<CellResult, CellError> {
    (probe().run)(cell).map(|report| report.total)
}

#[test]
fn every_arm_copies_and_what_it_copied_is_there() {
    for way in (probe().ways)() {
        for (block, block_bytes) in [("4k", 4096.0), ("128k", 131_072.0)] {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let result = run(&cell(way.word, block, directory.path())).unwrap();
            let (each, rate) = (result.metrics["ns_per_io"], result.metrics["write_bytes_per_s"]);
            assert!(
                each > 0.0 && (rate * each / 1e9 / block_bytes - 1.0).abs() < 1e-6,
                "{result:?}"
            );
            assert_eq!(result.notes, [format!("verified {} bytes", 2 << 20)]);
            let made = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(made, usize::from(way.word != "copy-memcpy"), "{}", way.word);
        }
    }
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let shape = json!({ "block": "4k", "bytes": "4097" });
    let refused = run(&Cell { shape, ..cell("copy-memcpy", "4k", directory.path()) });
    assert!(refused.unwrap_err().to_string().contains("whole blocks"));
    let settings = vec![("no_such".into(), "1".into())];
    let refused =
        run(&Cell { settings, ..cell("copy-forebay", "4k", directory.path()) }).unwrap_err();
    assert!(refused.to_string().contains("unknown knob `no_such`"), "{refused}");
}

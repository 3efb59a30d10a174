//! Copies into memory: every way works, and its data is read back.

use forebay_lab::cell::{Cell, CellResult, Verify};
use forebay_lab::load::{CellError, report};
use forebay_lab::through::{CopyCell, CopyWay};

fn cell(way: CopyWay, block_bytes: u32, directory: &std::path::Path) -> CopyCell {
    CopyCell {
        way,
        block_bytes,
        file_bytes: 2 << 20,
        seconds: 0.02,
        seed: 7,
        settings: vec![("cache_bytes".into(), "16m".into())],
        verify: Verify::After,
        directory: directory.to_owned(),
    }
}

fn run(cell: CopyCell) -> Result<CellResult, CellError> {
    report(&Cell::Copies(cell)).map(|report| report.total)
}

#[test]
fn every_way_copies_and_what_it_copied_is_there() {
    for way in CopyWay::ALL {
        for block_bytes in [4096, 128 << 10] {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let result = run(cell(way, block_bytes, directory.path())).unwrap();
            let (each, rate) = (result.metrics["ns_per_io"], result.metrics["write_bytes_per_s"]);
            assert!(
                each > 0.0 && (rate * each / 1e9 / f64::from(block_bytes) - 1.0).abs() < 1e-6,
                "{result:?}"
            );
            assert_eq!(result.notes, [format!("verified {} bytes", 2 << 20)]);
            let made = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(made, usize::from(way != CopyWay::Memcpy), "{}", way.name());
        }
    }
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refused =
        run(CopyCell { file_bytes: 4097, ..cell(CopyWay::Memcpy, 4096, directory.path()) });
    assert!(refused.unwrap_err().to_string().contains("whole blocks"));
    let settings = vec![("no_such".into(), "1".into())];
    let refused =
        run(CopyCell { settings, ..cell(CopyWay::Forebay, 4096, directory.path()) }).unwrap_err();
    assert!(refused.to_string().contains("unknown knob `no_such`"), "{refused}");
}

#[test]
fn a_cell_of_copies_crosses_to_a_child_as_it_is() {
    let cell = Cell::Copies(cell(CopyWay::Pwrite, 4096, std::path::Path::new("x")));
    let text = serde_json::to_string(&cell).unwrap();
    assert_eq!(serde_json::from_str::<Cell>(&text).unwrap(), cell);
}

use std::path::Path;

use super::*;
use crate::load::content::Content;

fn holds_what_was_written(store: &Store) {
    store.write(4096 * 3 + 512, &[7; 4096]).unwrap();
    let mut found = [1; 3 * 4096];
    store.read(4096 * 2, &mut found).unwrap();
    let expected = |at: usize| if (4608..8704).contains(&at) { 7 } else { 0 };
    assert!((0..found.len()).all(|at| found[at] == expected(at)));
    store.clear(4096 * 3, 4096 * 2).unwrap();
    store.read(4096 * 2, &mut found).unwrap();
    assert_eq!(found, [0; 3 * 4096]);
}

#[test]
fn a_file_and_memory_hold_the_same() {
    let file = tempfile::tempfile_in(".").unwrap();
    file.set_len(1 << 20).unwrap();
    holds_what_was_written(&Store::File(file));
    holds_what_was_written(&Store::in_memory());
}

#[test]
fn zeroes_take_no_memory() {
    let store = Store::in_memory();
    store.write(0, &[0; 1 << 16]).unwrap();
    store.write(4096, &[1; 4096]).unwrap();
    store.write(512, &[0; 512]).unwrap();
    assert_eq!(store.kept(), [1, 0, 0]);
    store.write(4096, &[0; 4096]).unwrap();
    assert_eq!(store.kept(), [0, 0, 0]);
}

#[test]
fn data_of_the_jobs_takes_hardly_any_memory() {
    let content = Content::new(3, Path::new("a/b"));
    let mut data = vec![0; 4 << 20];
    content.fill(1 << 30, &mut data);
    let store = Store::in_memory();
    store.write(1 << 40, &data).unwrap();
    assert_eq!(store.kept(), [0, 16, 0]);
    let mut found = vec![1; data.len()];
    store.read(1 << 40, &mut found).unwrap();
    assert!(found == data);
    // A block of another file, a part of a block, and a range that is freed.
    let other = Content::new(3, Path::new("c"));
    other.fill(0, &mut data[8192..12288]);
    store.write((1 << 40) + 8192, &data[8192..12288]).unwrap();
    data[70_000..70_512].fill(9);
    store.write((1 << 40) + 70_000, &data[70_000..70_512]).unwrap();
    data[(1 << 20)..(2 << 20) + 512].fill(0);
    store.clear((1 << 40) + (1 << 20), (1 << 20) + 512).unwrap();
    store.read(1 << 40, &mut found).unwrap();
    assert!(found == data);
    assert_eq!(store.kept(), [2, 12, 1]);
}

#[test]
fn replies_are_sent_in_the_order_of_their_moments() {
    let held = Arc::new(Held::default());
    let sender = Arc::clone(&held);
    std::thread::spawn(move || sender.send());
    let (report, reported) = std::sync::mpsc::channel();
    let start = Instant::now();
    for milliseconds in [30, 10, 20] {
        let report = report.clone();
        let at = start + Duration::from_millis(milliseconds);
        held.hold(at, Box::new(move || report.send((milliseconds, at.elapsed())).unwrap()));
    }
    let sent: Vec<(u64, Duration)> = reported.iter().take(3).collect();
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [10, 20, 30]);
}

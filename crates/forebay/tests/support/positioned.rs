//! A position in a file, and what the standard library's cursor over a vector makes of the same
//! steps.

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, SeekFrom, Write as _};

use forebay::{Engine, File};
use proptest::prelude::*;

use crate::support::{self, assert_on_disk, how, pattern};

/// A step of a program with a cursor.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write(usize),
    WriteVectored(Vec<usize>),
    Read(usize),
    ReadVectored(Vec<usize>),
    Seek(SeekFrom),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = || prop_oneof![0..10usize, 4000..4200usize, 0..30_000usize];
    let lengths = || proptest::collection::vec(prop_oneof![0..10usize, 0..5000usize], 0..5);
    let seek = prop_oneof![
        (0..100_000u64).prop_map(SeekFrom::Start),
        (-50_000..50_000i64).prop_map(SeekFrom::Current),
        (-50_000..20_000i64).prop_map(SeekFrom::End),
    ];
    let step = prop_oneof![
        length().prop_map(Step::Write),
        lengths().prop_map(Step::WriteVectored),
        length().prop_map(Step::Read),
        lengths().prop_map(Step::ReadVectored),
        seek.prop_map(Step::Seek),
        Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..30)
}

/// The same through the standard library's traits, and through tokio's.
pub(crate) trait Positioned {
    fn write(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize>;
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64>;
    fn flush(&mut self) -> io::Result<()>;
}

/// Takes steps with a cursor of each of many files, as `positioned` makes one, and with one over a
/// vector.
pub(crate) fn assert_as_over_a_vector(
    engine: &Engine,
    positioned: impl Fn(&File, &mut dyn FnMut(&mut dyn Positioned)),
    what: &str,
) {
    let directory = support::directory();
    let number = Cell::new(0);
    proptest!(ProptestConfig::with_cases(60), |(steps in steps())| {
        number.set(number.get() + 1);
        let path = directory.path().join(number.get().to_string());
        let file = engine.open(&path, &how::create()).unwrap();
        let mut expected = io::Cursor::new(Vec::new());
        positioned(&file, &mut |found| compare(&steps, found, &mut expected));
        file.close().unwrap();
        assert_on_disk(&path, expected.get_ref(), what);
    });
}

/// Does the same to both, and compares what each says.
fn compare(steps: &[Step], found: &mut dyn Positioned, expected: &mut io::Cursor<Vec<u8>>) {
    for (number, step) in steps.iter().enumerate() {
        let data = |lengths: &[usize]| -> Vec<Vec<u8>> {
            lengths
                .iter()
                .map(|length| pattern((number as u64 + 1) * 1000 + *length as u64, *length))
                .collect()
        };
        match step {
            Step::Write(_) | Step::WriteVectored(_) => {
                let data = match step {
                    Step::Write(length) => data(&[*length]),
                    Step::WriteVectored(lengths) => data(lengths),
                    _ => unreachable!(),
                };
                let slices: Vec<IoSlice<'_>> = data.iter().map(|data| IoSlice::new(data)).collect();
                let accepted = found.write(&slices).unwrap();
                assert_eq!(
                    accepted,
                    data.iter().map(Vec::len).sum::<usize>(),
                    "{number}: {step:?}"
                );
                // A file is not grown by nothing, wherever that is written.
                if accepted > 0 {
                    assert_eq!(
                        accepted,
                        expected.write_vectored(&slices).unwrap(),
                        "{number}: {step:?}"
                    );
                }
            }
            Step::Read(_) | Step::ReadVectored(_) => {
                let lengths = match step {
                    Step::Read(length) => vec![*length],
                    Step::ReadVectored(lengths) => lengths.clone(),
                    _ => unreachable!(),
                };
                let [mut one, mut other] = [(); 2]
                    .map(|()| lengths.iter().map(|length| vec![0xee; *length]).collect::<Vec<_>>());
                let mut into: Vec<IoSliceMut<'_>> =
                    one.iter_mut().map(|into| IoSliceMut::new(into)).collect();
                let read = found.read(&mut into).unwrap();
                let mut into: Vec<IoSliceMut<'_>> =
                    other.iter_mut().map(|into| IoSliceMut::new(into)).collect();
                assert_eq!(read, expected.read_vectored(&mut into).unwrap(), "{number}: {step:?}");
                assert!(one.concat()[..read] == other.concat()[..read], "{number}: {step:?}");
            }
            Step::Seek(to) => match (found.seek(*to), expected.seek(*to)) {
                (Ok(one), Ok(other)) => assert_eq!(one, other, "{number}: {step:?}"),
                (one, other) => {
                    let kind = |result: io::Result<u64>| result.unwrap_err().kind();
                    assert_eq!(kind(one), kind(other), "{number}: {step:?}");
                }
            },
            Step::Flush => found.flush().unwrap(),
        }
    }
}

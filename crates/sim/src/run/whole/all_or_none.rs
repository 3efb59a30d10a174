//! The files after a loss of power: all ranges of a call, or none.

use super::{GROWTH, PATHS, Place, TAIL, Test, byte_of};
use crate::run::recovery::bytes_of;
use crate::stored::{SECTOR, Survivor};

impl Test {
    /// Compares the files with the calls that have begun and returned.
    pub(super) fn check(&self, found: impl Fn(&str) -> Survivor) {
        let found = PATHS.map(|path| bytes_of(&found(path)));
        let get = |(file, at, length): Place| {
            let bytes = &found[file];
            (at as usize..at as usize + length)
                .map(|at| bytes.get(at).copied().unwrap_or(0))
                .collect::<Vec<u8>>()
        };
        for (number, asked) in self.callers.borrow().iter().enumerate() {
            if asked.begun == 0 {
                continue;
            }
            let mut places = self.places[number].iter();
            let first = get(places.next().copied().expect("each has some"))[0];
            let generations = asked.acknowledged..=asked.begun;
            let generation = generations.clone().find(|number| byte_of(*number) == first);
            let generation = generation.unwrap_or_else(|| {
                panic!("contract 27: caller {number} has {first}, not one of {generations:?}")
            });
            for place in &self.places[number] {
                let bytes = get(*place);
                assert!(
                    bytes.iter().all(|byte| *byte == first),
                    "contract 27: a part of a call: {place:?} of caller {number} has{}, \
                     others {first}",
                    runs(&bytes)
                );
            }
            let (file, end) = self.grows[number];
            for old in 1..=asked.begun {
                let bytes = get((file, end + (old - 1) * GROWTH, GROWTH as usize));
                let byte = if old <= generation { byte_of(old) } else { 0 };
                assert!(
                    bytes.iter().all(|found| *found == byte),
                    "contract 27: the end of generation {old} of {generation}:{}",
                    runs(&bytes)
                );
            }
        }
        let tail = found[2].get(TAIL as usize..).unwrap_or(&[]);
        let sector = &tail[..tail.len().min(SECTOR)];
        let is_one = sector.windows(2).all(|pair| pair[0] == pair[1]);
        assert!(is_one, "contract 3: a mixture of two versions:{}", runs(sector));
        let others = self.others.get();
        if others.acknowledged > 0 {
            let bytes = get(self.beside);
            let is_known = |byte: &u8| {
                (others.acknowledged..=others.begun).any(|number| byte_of(number) == *byte)
            };
            assert!(bytes.iter().all(is_known), "contract 24: {others:?}:{}", runs(&bytes));
        }
    }
}

/// The bytes, for a message: each with its number.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, other| one == other);
    runs.map(|run| format!(" {} of {}", run.len(), run[0])).collect()
}

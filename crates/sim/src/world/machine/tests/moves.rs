//! Durable files are moved about at random, between directories that come and go. At every loss of
//! power each of them has one name.

use std::ffi::OsStr;

use super::*;
use crate::platform::{OpenDirectory, Replace};
use crate::random::Random;
use crate::stored::Keep;
use crate::world::machine::{Survivors, cut_power, survivors};

const FILES: u64 = 4;
const EVERY_KEEP: [Keep; 4] = [Keep::Nothing, Keep::Some, Keep::Some, Keep::Everything];

/// Paths of directories, the parent of each before it.
const DIRECTORIES: [&str; 5] = ["/", "/p", "/p/q", "/p/q/r", "/s"];

fn directory(path: &str) -> Option<OpenDirectory> {
    OpenDirectory::open(Path::new(path)).ok()
}

/// A directory that exists.
fn any(random: &mut Random) -> OpenDirectory {
    loop {
        let path = *random.pick(&DIRECTORIES);
        if let Some(found) = directory(path) {
            return found;
        }
    }
}

/// Makes one change or flush, or tries to.
fn act(random: &mut Random) {
    let (one, two) = (any(random), any(random));
    let name = |random: &mut Random| format!("file{}", random.below(FILES));
    let path = *random.pick(&DIRECTORIES[1..]);
    let (parent, last) = path.rsplit_once('/').unwrap();
    let parent = directory(if parent.is_empty() { "/" } else { parent });
    // The calls fail if something is missing, or in the way.
    let _ = match (random.below(8), parent) {
        (0..4, _) => {
            let (from, to) = (name(random), name(random));
            one.rename(OsStr::new(&from), &two, OsStr::new(&to), Replace::No)
        }
        (4, Some(parent)) => parent.make_directory(OsStr::new(last), 0o755),
        (5, Some(parent)) => parent.remove_directory(OsStr::new(last)),
        (6, Some(parent)) => parent.rename(OsStr::new(last), &one, OsStr::new("s"), Replace::Yes),
        _ => one.sync(),
    };
}

/// Compares the files that are found with those that were made.
fn judge(keep: Keep, random: &mut Random) -> Survivors {
    let found = survivors(keep, random);
    let mut sizes: Vec<u64> = found.paths().map(|path| found.at(path).size).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, Vec::from_iter(1..=FILES), "each file has one name: {found:?}");
    found
}

#[test]
fn a_file_that_is_moved_has_one_name_at_every_loss_of_power() {
    for seed in 0..200 {
        on(MachinePlan::default(), seed, move || {
            let mut random = Random::new(seed);
            let root = directory("/").unwrap();
            for number in 0..FILES {
                let name = format!("file{number}");
                let file = root.create(OsStr::new(&name), 0o644).unwrap();
                file.write_all_at(&vec![7; number as usize + 1], 0).unwrap();
                file.sync().unwrap();
            }
            root.sync().unwrap();
            for _ in 0..60 {
                act(&mut random);
                for keep in EVERY_KEEP {
                    judge(keep, &mut random);
                }
                if random.below(40) == 0 {
                    cut_power(judge(Keep::Some, &mut random));
                    judge(Keep::Nothing, &mut random);
                }
            }
        });
    }
}

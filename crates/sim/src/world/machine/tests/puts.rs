//! New files under temporary names, moved over others: the names that a loss of power leaves.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::rc::Rc;

use super::*;
use crate::faults::Faults;
use crate::platform::{OpenDirectory, PrivateFile, Replace};
use crate::random::Random;
use crate::stored::{Keep, Survivor, bytes_of};
use crate::world::machine::{
    Survivors, cut_power, identity, kill, make_directory, set_faults, survivors,
};

const EVERY_KEEP: [Keep; 3] = [Keep::Nothing, Keep::Some, Keep::Everything];
const OLD: &[u8] = &[1; 700];
const NEW: &[u8] = &[2; 5000];

fn directory(path: &str) -> OpenDirectory {
    OpenDirectory::open(Path::new(path)).unwrap()
}

/// A new file with these bytes.
fn write(directory: &OpenDirectory, name: &str, data: &[u8]) -> PrivateFile {
    let file = directory.create(OsStr::new(name), 0o644).unwrap();
    file.write_all_at(data, 0).unwrap();
    file
}

/// A durable file with these bytes.
fn put(directory: &OpenDirectory, name: &str, data: &[u8]) {
    write(directory, name, data).sync().unwrap();
    directory.sync().unwrap();
}

fn rename(from: (&OpenDirectory, &str), to: (&OpenDirectory, &str)) {
    from.0.rename(OsStr::new(from.1), to.0, OsStr::new(to.1), Replace::Yes).unwrap();
}

/// The content of a file, in a word.
fn content(found: &Survivor) -> String {
    let bytes: Vec<u8> = found.sectors.iter().flat_map(|sector| *bytes_of(sector)).collect();
    let is = |data: &[u8]| found.size == data.len() as u64 && bytes.starts_with(data);
    match found.size {
        _ if !found.exists => "-".to_owned(),
        0 => "empty".to_owned(),
        _ if is(OLD) => "old".to_owned(),
        _ if is(NEW) => "new".to_owned(),
        size => {
            let new = bytes.iter().filter(|byte| **byte == NEW[0]).count();
            format!("{size} bytes, {new} new")
        }
    }
}

/// All states of some files that are found after a loss of power now.
fn states(paths: &[&str], keeps: &[Keep]) -> BTreeSet<String> {
    let draws = keeps.iter().flat_map(|keep| (0..200).map(|seed| (*keep, seed)));
    let found = draws.map(|(keep, seed)| survivors(keep, &mut Random::new(seed)));
    let contents = |found: Survivors| -> Vec<String> {
        paths.iter().map(|path| content(&found.at(path))).collect()
    };
    found.map(|found| contents(found).join(" ")).collect()
}

/// The only states that are found.
fn only<const N: usize>(states: [&str; N]) -> BTreeSet<String> {
    states.map(str::to_owned).into()
}

#[test]
fn a_rename_over_a_file_leaves_the_old_one_or_the_new_one() {
    calm(|| {
        let root = directory("/");
        put(&root, "target", OLD);
        let file = write(&root, "tmp", NEW);
        file.sync().unwrap();
        rename((&root, "tmp"), (&root, "target"));
        let paths = ["/target", "/tmp"];
        assert_eq!(states(&paths, &EVERY_KEEP), only(["old -", "old new", "new -"]));
        assert_eq!(states(&paths, &[Keep::Nothing]), only(["old -"]));
        assert_eq!(states(&paths, &[Keep::Everything]), only(["new -"]));
        root.sync().unwrap();
        assert_eq!(states(&paths, &EVERY_KEEP), only(["new -"]));
    });
}

#[test]
fn a_renamed_file_without_a_flush_of_its_data_may_be_short_or_empty() {
    calm(|| {
        let root = directory("/");
        put(&root, "target", OLD);
        let file = write(&root, "tmp", NEW);
        rename((&root, "tmp"), (&root, "target"));
        root.sync().unwrap();
        assert_eq!(states(&["/target"], &[Keep::Nothing]), only(["empty"]));
        file.write_back(0..NEW.len() as u64).unwrap();
        let found = states(&["/target"], &[Keep::Some]);
        assert!(found.contains("empty"), "a write to the device promises nothing");
        assert!(found.len() > 10);
        file.sync().unwrap();
        assert_eq!(states(&["/target"], &EVERY_KEEP), only(["new"]));
    });
}

#[test]
fn a_rename_between_directories_is_durable_after_a_sync_of_either() {
    for synced in ["/from", "/to"] {
        calm(move || {
            for path in ["/from", "/to", "/other"] {
                make_directory(path);
            }
            let (from, to) = (directory("/from"), directory("/to"));
            put(&from, "a", NEW);
            put(&to, "b", OLD);
            rename((&from, "a"), (&to, "b"));
            directory("/other").sync().unwrap();
            let paths = ["/from/a", "/to/b"];
            assert_eq!(states(&paths, &[Keep::Some]), only(["new old", "- new"]));
            directory(synced).sync().unwrap();
            assert_eq!(states(&paths, &EVERY_KEEP), only(["- new"]));
        });
    }
}

#[test]
fn the_renames_of_several_files_survive_independently() {
    calm(|| {
        let root = directory("/");
        ["a", "b"].iter().for_each(|target| put(&root, target, OLD));
        for target in ["a", "b"] {
            write(&root, "tmp", NEW).sync().unwrap();
            rename((&root, "tmp"), (&root, target));
        }
        // The second file had the name of the first one: it cannot be moved before that.
        let found = states(&["/a", "/b"], &[Keep::Some]);
        assert_eq!(found, only(["old old", "new old", "new new"]));
        root.sync().unwrap();
        for target in ["a", "b"] {
            let tmp = format!("tmp-{target}");
            write(&root, &tmp, OLD).sync().unwrap();
            rename((&root, &tmp), (&root, target));
        }
        assert_eq!(states(&["/a", "/b"], &[Keep::Some]).len(), 4);
    });
}

#[test]
fn an_unlinked_file_may_come_back_with_its_durable_content() {
    calm(|| {
        let root = directory("/");
        put(&root, "a", OLD);
        let file = root.open_or_create(OsStr::new("a")).unwrap();
        file.write_all_at(NEW, 0).unwrap();
        root.remove(OsStr::new("a")).unwrap();
        drop(file);
        assert_eq!(states(&["/a"], &[Keep::Nothing]), only(["old"]));
        assert_eq!(states(&["/a"], &[Keep::Everything]), only(["-"]));
        let found = states(&["/a"], &[Keep::Some]);
        assert!(found.contains("-") && found.len() > 2);
        root.sync().unwrap();
        assert_eq!(states(&["/a"], &EVERY_KEEP), only(["-"]));
    });
}

#[test]
fn a_sync_that_failed_leaves_names_that_no_later_one_saves() {
    calm(|| {
        let root = directory("/");
        put(&root, "target", OLD);
        write(&root, "tmp", NEW).sync().unwrap();
        rename((&root, "tmp"), (&root, "target"));
        set_faults(Faults { flush_directory: PerMille(1000), ..Faults::NONE });
        assert_eq!(errno(&root.sync().unwrap_err()), libc::EIO);
        set_faults(Faults::NONE);
        put(&root, "later", NEW);
        let paths = ["/target", "/later"];
        assert_eq!(states(&paths, &[Keep::Nothing]), only(["old new"]));
        assert_eq!(states(&paths, &[Keep::Some]), only(["old new", "new new"]));
    });
}

#[test]
fn a_sync_covers_the_changes_before_it() {
    let mut late = 0;
    for seed in 0..20 {
        late += on(MachinePlan::default(), seed, || {
            let root = directory("/");
            drop(write(&root, "early", OLD));
            let done = Rc::new(RefCell::new(false));
            let report = Rc::clone(&done);
            spawn_other("syncs", move || {
                directory("/").sync().unwrap();
                *report.borrow_mut() = true;
            });
            world::sleep(micros(30));
            drop(root.create(OsStr::new("late"), 0o644).unwrap());
            let was_done = *done.borrow();
            while !*done.borrow() {
                world::sleep(micros(10));
            }
            let found = survivors(Keep::Nothing, &mut Random::new(0));
            assert!(found.at("/early").exists && !found.at("/late").exists);
            u32::from(!was_done)
        });
    }
    assert!(late > 5, "{late} changes were made during a sync");
}

#[test]
fn a_lost_directory_takes_its_files_along() {
    calm(|| {
        let root = directory("/");
        root.make_directory(OsStr::new("d"), 0o755).unwrap();
        let inner = directory("/d");
        put(&inner, "tmp", NEW);
        rename((&inner, "tmp"), (&inner, "a"));
        inner.sync().unwrap();
        let found = states(&["/d/a"], &EVERY_KEEP);
        assert_eq!(found, only(["-", "new"]), "its own name is in its parent");
        let engine = spawn_other("engine", || world::sleep(Duration::from_secs(3600)));
        kill(engine);
        cut_power(survivors(Keep::Nothing, &mut Random::new(0)));
        assert_eq!((identity("/d"), root.names("").is_err()), (None, true));
        let root = directory("/");
        root.make_directory(OsStr::new("d"), 0o755).unwrap();
        put(&directory("/d"), "a", OLD);
        root.sync().unwrap();
        assert_eq!(states(&["/d/a"], &EVERY_KEEP), only(["old"]));
    });
}

#[test]
fn temporary_names_that_a_loss_of_power_left_are_found_and_removed() {
    let mut left = BTreeSet::new();
    for seed in 0..40 {
        left.insert(on(MachinePlan::default(), seed, move || {
            let engine = spawn_other("engine", || {
                let root = directory("/");
                for (number, target) in ["a", "b", "c", "d"].into_iter().enumerate() {
                    let tmp = format!("tmp-{number}");
                    write(&root, &tmp, NEW).sync().unwrap();
                    rename((&root, &tmp), (&root, target));
                }
                world::sleep(Duration::from_secs(3600));
            });
            while identity("/d").is_none() {
                world::sleep(micros(10));
            }
            kill(engine);
            cut_power(survivors(Keep::Some, &mut Random::new(seed)));
            let root = directory("/");
            let names = root.names("tmp-").unwrap();
            names.iter().for_each(|name| root.remove(name).unwrap());
            root.sync().unwrap();
            assert_eq!(root.names("tmp-").unwrap(), [""; 0]);
            names.len()
        }));
    }
    assert!(left.contains(&0) && left.contains(&1) && left.contains(&2), "{left:?}");
}

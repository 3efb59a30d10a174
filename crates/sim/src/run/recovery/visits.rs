//! Other programs between a crash and the recovery: they change, remove and replace files.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::{DIRECTORY, FILES, Test, survivor_of};
use crate::marks;
use crate::platform::files;
use crate::random::Random;
use crate::world::others::{OpenAs, Program};
use crate::world::{self, machine};

/// Other programs act on some files, some time after the promise has ended.
pub(super) fn visit(test: &Rc<Test>, random: &mut Random) {
    if random.below(2) == 0 {
        return;
    }
    // Requests of a dead process end, and then the promise.
    world::sleep(Duration::from_secs(4));
    for number in 0..FILES {
        let path = test.files.borrow()[number].path.clone();
        if machine::identity(&path).is_none() || random.below(3) > 0 {
            continue;
        }
        match random.below(5) {
            0 => remove(test, number, &path, random),
            1 => {
                machine::unlink(&path).expect("a name");
                replace(&path, random);
                touched(test, number);
                marks::hit("replaced by others");
            }
            2 => {
                let moved = Path::new(DIRECTORY).join("sub").join(format!("moved{number}"));
                if machine::rename(&path, &moved).is_ok() {
                    files::sync_directory_of(&moved).expect("a calm machine");
                    machine::rename(&moved, &path).expect("its own name is free");
                    files::sync_directory_of(&path).expect("a calm machine");
                    sync(&path);
                    touched(test, number);
                    marks::hit("renamed by others");
                }
            }
            _ => {
                let program = Program::open(&path, OpenAs::WRITER).expect("nobody has it open");
                if random.below(3) == 0 {
                    let length = program.length().expect("a file");
                    program.truncate(random.below(length + 1)).expect("a calm machine");
                } else {
                    let at = random.below(8192);
                    program.write(at, &[0xee; 700]).expect("a calm machine");
                }
                rewrite(&program);
                drop(program);
                touched(test, number);
                marks::hit("changed by others");
            }
        }
    }
}

/// Removes a file. The removal is durable, or not.
fn remove(test: &Rc<Test>, number: usize, path: &Path, random: &mut Random) {
    machine::unlink(path).expect("a name");
    if random.below(2) == 0 {
        let paths: Vec<_> = test.files.borrow().iter().map(|file| file.path.clone()).collect();
        let is_beside = |it: &&std::path::PathBuf| {
            it.parent() == path.parent() && machine::identity(it).is_some()
        };
        if let Some(beside) = paths.iter().find(is_beside) {
            files::sync_directory_of(beside).expect("a calm machine");
        }
    }
    test.files.borrow_mut()[number].is_removed = true;
    marks::hit("removed by others");
}

/// Makes another file with the name, and often with the inode number.
fn replace(path: &Path, random: &mut Random) {
    use crate::platform::{Access, Create, How, OpenFile, Truncate};
    let how = How {
        access: Access::ReadWrite,
        create: Create::New,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    let mut file = OpenFile::open(path, &how).expect("a free name").file;
    file.go_buffered().expect("an open file");
    file.write_all_at(&vec![0xdd; random.within(1..5000) as usize], 0).expect("a calm machine");
    file.sync().expect("a calm machine");
    files::sync_directory_of(path).expect("a calm machine");
}

fn sync(path: &Path) {
    rewrite(&Program::open(path, OpenAs::WRITER).expect("nobody has it open"));
}

/// Writes all of a file again and syncs it: no later flush covers bytes of one that has failed.
fn rewrite(program: &Program) {
    let all = program.read(0..program.length().expect("a file")).expect("a file");
    program.write(0, &all).expect("a calm machine");
    program.sync().expect("a calm machine");
}

/// Notes the change of a file, whose name is made durable: its owner may have died before that.
fn touched(test: &Rc<Test>, number: usize) {
    let path = test.files.borrow()[number].path.clone();
    files::sync_directory_of(&path).expect("a calm machine");
    let file = &mut test.files.borrow_mut()[number];
    file.touched = Some(super::bytes_of(&survivor_of(&file.path)));
}

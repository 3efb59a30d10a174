//! A program that records the steps of a batch, and commits it.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::Covers;
use super::DIRECTORIES;
use super::Program;
use super::draw_content;
use super::may_leave_names;
use super::script::Step;
use crate::core::batch::Batch;
use crate::core::batch::batch_file::BatchFile;
use crate::core::error::ErrorKind;
use crate::core::error::Result;
use crate::marks;
use crate::random::Random;
use crate::world;
use crate::world::Reason;
use crate::world::machine;

/// A batch that is being recorded by the tasks of its program.
pub(super) struct Recording {
    pub(super) program: Program,
    pub(super) batch: Batch,
    /// Tasks that have not ended.
    pub(super) tasks: Cell<u64>,
}

impl Recording {
    pub(super) fn ends(&self) -> Reason {
        Reason { what: "end of tasks of a process", number: u64::from(world::process().0) }
    }

    pub(super) fn record(self: &Rc<Self>, random: &mut Random, covers: Covers) {
        let mut directories: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
        if covers == Covers::EveryDirectory {
            for directory in &directories {
                self.create(directory.join(self.program.name), random);
            }
        } else if random.below(4) == 0 {
            self.record_raced(random);
            return;
        }
        let pace = Duration::from_micros(*random.pick(&[0, 0, 100, 5_000]));
        for number in 0..random.below(12) {
            world::sleep(pace);
            let path = self.program.path(&directories, random);
            match random.below(10) {
                0..=5 => self.create(path, random),
                6 | 7 => {
                    let to = self.program.path(&directories, random);
                    let exists = self.exists(&path);
                    let renamed = self.batch.rename(&path, &to);
                    if self.is_recorded(renamed, exists, ErrorKind::NotFound) {
                        self.add(Step::Rename(path, to));
                    }
                }
                8 => {
                    let exists = self.exists(&path);
                    let removed = self.batch.remove(&path);
                    if self.is_recorded(removed, exists, ErrorKind::NotFound) {
                        self.add(Step::Remove(path));
                    }
                }
                _ => {
                    let outer = random
                        .pick(&directories)
                        .join(format!("{}-new{number}", self.program.name));
                    let inner = outer.join(self.program.name);
                    let made = self.batch.create_dir(&inner);
                    self.is_recorded(made, true, ErrorKind::NotFound);
                    for path in [outer, inner] {
                        if machine::identity(&path).is_some() {
                            self.add(Step::Made(path.clone()));
                            directories.push(path);
                        }
                    }
                }
            }
        }
    }

    /// Several tasks create files at the same time, each under names of its own. If the batch is
    /// ordered, another one comes last.
    pub(super) fn record_raced(self: &Rc<Self>, random: &mut Random) {
        marks::hit("raced");
        self.program.script.borrow_mut().is_raced = true;
        for number in 0..random.within(2..5) {
            let mut random = random.fork();
            self.spawn("creator", move |recording| {
                let name = format!("{}{number}", recording.program.name);
                for directory in DIRECTORIES {
                    recording.create(PathBuf::from(directory).join(&name), &mut random);
                }
            });
        }
        if self.program.script.borrow().is_ordered {
            while self.tasks.get() > 0 {
                world::block(self.ends(), None);
            }
            let name = format!("{}-manifest", self.program.name);
            self.create(PathBuf::from(DIRECTORIES[0]).join(name), random);
        }
    }

    pub(super) fn spawn(self: &Rc<Self>, name: &str, work: impl FnOnce(&Rc<Self>) + 'static) {
        self.tasks.set(self.tasks.get() + 1);
        let recording = Rc::clone(self);
        world::spawn(world::process(), name, move || {
            work(&recording);
            let ends = recording.ends();
            recording.tasks.set(recording.tasks.get() - 1);
            drop(recording);
            world::wake(ends);
        });
    }

    pub(super) fn add(&self, step: Step) {
        self.program.script.borrow_mut().record(step);
    }

    pub(super) fn exists(&self, path: &PathBuf) -> bool {
        self.program.script.borrow().start().contains_key(path)
    }

    /// Checks the result of a call that records a step.
    pub(super) fn is_recorded<T>(&self, result: Result<T>, must: bool, kind: ErrorKind) -> bool {
        if let Err(error) = &result {
            let is_known = !must && error.kind() == kind;
            assert!(self.program.judge.may_fail() || is_known, "contract 20: {error:?}");
        } else {
            assert!(must, "contract 20: a step is recorded that must be refused");
        }
        result.is_ok()
    }

    /// Creates a file, which this task or another one writes.
    pub(super) fn create(self: &Rc<Self>, path: PathBuf, random: &mut Random) {
        let content = draw_content(self.program.judge.trial, random);
        let replaces = random.below(4) > 0;
        let created =
            if replaces { self.batch.create(&path) } else { self.batch.create_new(&path) };
        let may = replaces || !self.exists(&path);
        let Ok(file) = created.inspect_err(|error| {
            let is_known = !may && error.kind() == ErrorKind::AlreadyExists;
            assert!(self.program.judge.may_fail() || is_known, "contract 20: {error:?}");
        }) else {
            return;
        };
        assert!(may, "contract 20: a new file has the name of an old one");
        self.add(Step::Publish { path, content: Rc::clone(&content), replaces });
        let mut of_writer = random.fork();
        if random.below(2) == 0 {
            self.spawn("writer", move |it| it.write(file, &content, &mut of_writer));
        } else {
            self.write(file, &content, &mut of_writer);
        }
    }

    pub(super) fn write(&self, mut file: BatchFile, content: &[u8], random: &mut Random) {
        let mut rest = content;
        let mut written = Ok(());
        while !rest.is_empty() && written.is_ok() {
            let (now, later) = rest.split_at(random.within(1..rest.len() as u64 + 1) as usize);
            written = file.write_all(now);
            rest = later;
        }
        let finished = if random.below(100) == 0 {
            drop(file);
            None
        } else {
            Some(written.and_then(|()| file.close()))
        };
        if let Some(Err(error)) = &finished {
            assert!(self.program.judge.may_fail(), "contract 20: {error:?}");
        }
        let is_complete = matches!(finished, Some(Ok(())));
        self.program.script.borrow_mut().is_broken |= !is_complete;
    }

    /// Commits the batch, or drops it.
    pub(super) fn end(self, random: &mut Random) {
        let Program { judge, script, .. } = self.program;
        if random.below(12) == 0 {
            drop(self.batch);
            marks::hit("dropped");
        } else {
            script.borrow_mut().begin_commit();
            let result = self.batch.commit();
            script.borrow_mut().committed(&result, judge.may_fail());
            marks::hit(if result.is_ok() { "committed" } else { "failed" });
        }
        judge.look();
        if !may_leave_names() {
            for directory in script.borrow().undone_directories() {
                assert!(
                    machine::identity(directory).is_none(),
                    "contract 20: {} is left",
                    directory.display()
                );
            }
        }
    }
}

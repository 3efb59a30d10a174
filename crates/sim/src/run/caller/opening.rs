//! How a caller opens a file: through the cache or past it, and for everything, or for reading or
//! appending alone.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::core::direct::direct_file::DirectFile;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::open::open_options::OpenOptions;
use crate::platform::thread;
use crate::run::caller::Caller;
use crate::run::caller::direct::DirectHandle;
use crate::run::how;
use crate::run::model::{Claimed, Kind};
use crate::run::operation::Operation;
use crate::run::stage::Stage;
use crate::world::machine;

/// Tries to read a whole file on a device that fails now and then.
pub(super) const READS: u32 = 500;

/// Tries to open a file that is open in the other way.
const OPENS: u32 = 10_000;

/// Returns the size of an open file.
pub(super) fn length_of(file: &File) -> u64 {
    file.len().expect("the machine reports the size of an open file")
}

/// An open file.
pub(super) enum Opened {
    Cached(Handle),
    Direct(DirectHandle),
}

/// A file that is open through the cache.
pub(super) struct Handle {
    pub(super) file: File,
    /// Number of the file in the model.
    pub(super) number: usize,
    /// Number of its open.
    pub(super) opened: u64,
    /// Failed page writes that it need not report.
    pub(super) reported: Cell<u64>,
    pub(super) role: Role,
}

/// Calls that a handle permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Writes,
    Appends,
    Reads,
}

impl Role {
    pub(super) fn allows(self, operation: Operation) -> bool {
        match operation {
            Operation::Read { .. }
            | Operation::SyncData
            | Operation::SyncAll
            | Operation::WriteOut
            | Operation::Close => true,
            Operation::Write { .. } => self == Role::Writes,
            Operation::Append { .. }
            | Operation::SetLength(_)
            | Operation::DiscardRange { .. }
            | Operation::Allocate { .. }
            | Operation::PunchHole { .. }
            | Operation::DiscardDirty => self != Role::Reads,
        }
    }
}

impl Handle {
    fn new(stage: &Rc<Stage>, file: File, opening: Opening) -> Self {
        let Opening { number, role, first, .. } = opening;
        let opened = stage.check_opened(number, first, || {
            let mut found = vec![0; length_of(&file) as usize];
            let length = (0..READS).find_map(|_| file.read_at(&mut found, 0).ok());
            assert_eq!(length, Some(found.len()), "file {number} can be read");
            found
        });
        let reported = Cell::new(stage.begin_reporting(number));
        Self { file, number, opened, reported, role }
    }
}

/// An open under way.
pub(super) struct Opening {
    pub(super) number: usize,
    role: Role,
    open: OpenOptions,
    is_direct: bool,
    /// The claim of the whole file by the first of its handles.
    pub(super) first: Option<Claimed>,
    cut: Option<Cut>,
}

/// An open that sets the length to 0.
struct Cut {
    announced: u64,
    result: Result<()>,
    /// The claim of the whole file, unless the first handle has it already.
    _claimed: Option<Claimed>,
}

impl Caller {
    /// Goes on with one of the files that the engine has adopted, and closes the others.
    pub(super) fn take_adopted(&mut self, files: Vec<File>) {
        let stage = Rc::clone(&self.stage);
        let numbers = 0..stage.plan.files as usize;
        let mut handles: Vec<Handle> = Vec::new();
        for file in files {
            let mut numbers = numbers.clone();
            let number = numbers.find(|number| stage.plan.path(*number) == file.path());
            let number = number.expect("a file of this run");
            // Another caller may have opened it since.
            let opened = stage.model.borrow().files[number].open.first().copied();
            let opened = opened.expect("an adopted file is open");
            let reported = Cell::new(stage.begin_reporting(number));
            handles.push(Handle { file, number, opened, reported, role: Role::Writes });
        }
        self.handle = handles.pop().map(Opened::Cached);
        handles.into_iter().for_each(|handle| self.close(handle));
    }

    pub(super) fn open(&mut self) -> Opened {
        let stage = Rc::clone(&self.stage);
        let number = self.random.below(u64::from(stage.plan.files)) as usize;
        let path = stage.plan.path(number);
        let mut open = if stage.plan.are_devices { how::write() } else { how::create() };
        if self.random.happens(stage.plan.uncached) {
            open.uncached(true);
        }
        stage.begin_call(number);
        let first = stage.begin_open(number);
        let is_direct = self.random.happens(stage.plan.direct);
        let role = Role::Writes;
        let mut opening = Opening { number, role, open, is_direct, first, cut: None };
        if self.random.happens(stage.plan.varied) {
            self.vary(&mut opening);
        }
        for _ in 0..OPENS {
            let mut open = opening.open.clone();
            open.assume_exclusive(stage.plan.volume(number).is_promised);
            let error = if opening.is_direct {
                match self.open_as(&opening, &open, |open| self.engine.open_direct(&path, open)) {
                    Ok(file) => {
                        opening.end_cut(&stage, || DirectFile::len(&file));
                        return Opened::Direct(DirectHandle::new(&stage, file, opening));
                    }
                    Err(error) => error,
                }
            } else {
                match self.open_as(&opening, &open, |open| self.engine.open(&path, open)) {
                    Ok(file) => {
                        opening.end_cut(&stage, || length_of(&file));
                        return Opened::Cached(Handle::new(&stage, file, opening));
                    }
                    Err(error) => error,
                }
            };
            self.after_failure(&mut opening, error);
        }
        panic!("file {number} cannot be opened");
    }

    /// Makes an open. The name of a temporary file is not made durable by a sync.
    fn open_as<T>(
        &self,
        opening: &Opening,
        open: &OpenOptions,
        make: impl FnOnce(&OpenOptions) -> Result<T>,
    ) -> Result<T> {
        let number = opening.number;
        if !open.temporary {
            return make(open);
        }
        self.stage.model.borrow_mut().files[number].temporary_opens += 1;
        let opened = make(open);
        let mut model = self.stage.model.borrow_mut();
        let file = &mut model.files[number];
        file.temporary_opens -= 1;
        if opened.is_ok() {
            self.stage.hit("opened as temporary");
            file.is_created = false;
        }
        opened
    }

    /// Makes an open another one than that of a program that reads and writes a file.
    fn vary(&mut self, opening: &mut Opening) {
        let (stage, number) = (Rc::clone(&self.stage), opening.number);
        let path = stage.plan.path(number);
        let is_there = machine::identity(&path).is_some();
        let uncached = opening.open.uncached == Some(true);
        let mut other = match self.random.below(4) {
            0 if is_there && !opening.is_direct => {
                opening.role = Role::Reads;
                how::read()
            }
            1 if !stage.plan.are_devices && !opening.is_direct => {
                opening.role = Role::Appends;
                how::append()
            }
            2 if !stage.plan.are_devices && is_there => {
                let refused = self.engine.open(&path, &how::create_new());
                let is_refused = match refused.as_ref().map_err(Error::kind) {
                    Err(ErrorKind::AlreadyExists) => true,
                    // It may be open past the cache.
                    Err(ErrorKind::Busy) => stage.plan.direct.0 > 0,
                    _ => false,
                };
                assert!(is_refused, "file {number} is made over another one: {refused:?}");
                stage.hit("made once");
                return;
            }
            2 if !stage.plan.are_devices => {
                let is_temporary = stage.plan.allows_temporary() && self.random.below(2) == 0;
                if is_temporary { how::temporary() } else { how::create_new() }
            }
            3 if !stage.plan.are_devices => {
                let whole = |_| 0..u64::MAX;
                let is_first = opening.first.is_some();
                let claimed = (!is_first).then(|| stage.claim(number, Kind::Change, whole));
                let announced = stage.begin_length(number, 0);
                opening.cut = Some(Cut { announced, result: Ok(()), _claimed: claimed });
                how::create().truncate(true).clone()
            }
            _ => return,
        };
        if uncached {
            other.uncached(true);
        }
        opening.open = other;
    }

    /// An open has failed: judges the error, and changes the next try.
    fn after_failure(&mut self, opening: &mut Opening, error: Error) {
        let stage = Rc::clone(&self.stage);
        let plan = &stage.plan;
        if error.kind() == ErrorKind::Busy && plan.direct.0 > 0 {
            // It is open in the other way, or was when the engine looked.
            opening.is_direct = !opening.is_direct;
            if opening.is_direct && opening.role != Role::Writes {
                (opening.role, opening.open) = (Role::Writes, how::create());
            }
            stage.hit("open otherwise");
            thread::sleep(Duration::from_micros(self.random.below(20)));
        } else if error.kind() == ErrorKind::AlreadyExists && opening.open.create_new {
            // Another caller was faster.
            opening.open = how::create();
        } else if let Some(cut) = &mut opening.cut {
            // Whether it has the new length is seen later.
            stage.check_failure(opening.number, &error);
            (cut.result, opening.open) = (Err(error), how::create());
        } else {
            stage.check_open_failure(opening.number, &error);
        }
    }
}

impl Opening {
    fn end_cut(&mut self, stage: &Stage, size: impl FnOnce() -> u64) {
        if let Some(cut) = self.cut.take() {
            stage.end_length(self.number, (0, cut.announced), size, &cut.result);
            stage.hit("cut at open");
        }
    }
}

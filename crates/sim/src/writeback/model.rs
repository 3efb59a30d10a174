//! Settings of the model: the machine, the file system, the drive and the load, each settable by
//! itself.

use std::time::Duration;

use forebay_block::limits::PAGE;

use super::device::{DRIVES, Drive};
use crate::random::PerMille;
use crate::setting::{
    self, Refusal, Setting, bytes, micros, number, show_bytes, show_micros, word,
};

/// How files are bound to contexts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Affinity {
    /// All files to the first context.
    Single,
    /// By a hash of the file's number.
    Hash,
    /// By its directory, in turn.
    Directory,
    /// By its directory's group, in turn.
    Group,
}

/// State of a file's blocks before they are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Layout {
    /// Holes: blocks are allocated before the I/O and converted after it.
    Holes,
    /// Allocated blocks that read as zeroes: converted after the I/O.
    Unwritten,
    /// Written blocks: no further work.
    Written,
}

/// Order of the writes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Requests at random places, each place once.
    Random,
    /// Front to back.
    Sequential,
}

/// Whether groups have locks. Without locks their work stays, and no actor waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    /// A lock per group.
    On,
    /// No locks.
    Off,
}

/// Whether requests that are adjacent on the device become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// Within a context's plug.
    On,
    /// Each piece is a request of its own.
    Off,
}

/// The words for each affinity.
pub const AFFINITIES: [(&str, Affinity); 4] = [
    ("single", Affinity::Single),
    ("hash", Affinity::Hash),
    ("directory", Affinity::Directory),
    ("group", Affinity::Group),
];

/// The words for each layout.
pub const LAYOUTS: [(&str, Layout); 3] =
    [("holes", Layout::Holes), ("unwritten", Layout::Unwritten), ("written", Layout::Written)];

const ORDERS: [(&str, Order); 2] = [("random", Order::Random), ("sequential", Order::Sequential)];

const LOCKS: [(&str, Locks); 2] = [("on", Locks::On), ("off", Locks::Off)];

const MERGES: [(&str, Merge); 2] = [("on", Merge::On), ("off", Merge::Off)];

/// Settings of a run. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    /// Allocation groups.
    pub groups: u64,
    /// Cores that contexts and workers share.
    pub cores: u64,
    /// Writeback contexts.
    pub contexts: u64,
    /// Binding of files to contexts.
    pub affinity: Affinity,
    /// State of the blocks beforehand.
    pub layout: Layout,
    /// Order of the writes of each file.
    pub order: Order,
    /// Directories; they are in groups in turn.
    pub directories: u64,
    /// Files per directory.
    pub files: u64,
    /// Bytes per file.
    pub file: u64,
    /// Bytes per write.
    pub request: u64,
    /// Bytes per file that are accepted and not yet settled.
    pub window: u64,
    /// Time under a group's lock for each run into a hole.
    pub allocation: Duration,
    /// Time under a group's lock for each run at the end of I/O.
    pub conversion: Duration,
    /// Time of a context for each page, without a lock.
    pub page: Duration,
    /// Time until an actor that waited runs again.
    pub wake: Duration,
    /// Share of runs into holes, and of files laid out in advance, that are in another group than
    /// that of their directory.
    pub stray: PerMille,
    /// Whether actors wait for locks.
    pub locks: Locks,
    /// Whether adjacent requests merge.
    pub merge: Merge,
    /// The drive.
    pub drive: Drive,
    /// Bytes settled when the clock stops.
    pub amount: u64,
}

/// The machine of the published sweep: 12 cores, 4 groups, 12 directories of 12 files, random
/// writes of 4 KiB. The times follow from reports about it: at best 100 to 120 thousand allocations
/// per second from one context (117 with no other at the lock), and a flusher that writes 2.7 GB/s
/// of large runs (1.5 us per page).
impl Default for Model {
    fn default() -> Self {
        Self {
            groups: 4,
            cores: 12,
            contexts: 12,
            affinity: Affinity::Group,
            layout: Layout::Holes,
            order: Order::Random,
            directories: 12,
            files: 12,
            file: 16 << 20,
            request: 4 << 10,
            window: 512 << 10,
            allocation: Duration::from_micros(7),
            conversion: Duration::from_micros(5),
            page: Duration::from_nanos(1500),
            wake: Duration::from_micros(3),
            stray: PerMille(0),
            locks: Locks::On,
            merge: Merge::On,
            drive: DRIVES[0].1,
            amount: 32 << 20,
        }
    }
}

/// Defines a setting that is a whole number.
macro_rules! numbered {
    ($name:literal, $what:literal, $($field:ident).+, $range:expr) => {
        Setting {
            name: $name,
            what: $what,
            set: |model, text| {
                model.$($field).+ = number(text, $range)?;
                Ok(())
            },
            show: |model| model.$($field).+.to_string(),
        }
    };
}

/// Defines a setting in bytes.
macro_rules! sized {
    ($name:literal, $what:literal, $($field:ident).+, $range:expr) => {
        Setting {
            name: $name,
            what: $what,
            set: |model, text| {
                model.$($field).+ = bytes(text, $range)?;
                Ok(())
            },
            show: |model| show_bytes(model.$($field).+),
        }
    };
}

/// Defines a setting in microseconds.
macro_rules! timed {
    ($name:literal, $what:literal, $($field:ident).+) => {
        Setting {
            name: $name,
            what: $what,
            set: |model, text| {
                model.$($field).+ = micros(text)?;
                Ok(())
            },
            show: |model| show_micros(model.$($field).+),
        }
    };
}

/// Defines a setting that is a word.
macro_rules! worded {
    ($name:literal, $what:literal, $field:ident, $table:expr) => {
        Setting {
            name: $name,
            what: $what,
            set: |model, text| {
                model.$field = word(text, &$table)?;
                Ok(())
            },
            show: |model| named(model.$field, &$table).to_owned(),
        }
    };
}

/// All settings by name. The affinity is not among them, because every study varies it. The layout
/// applies to [`study::bounds`](super::study::bounds), and `contexts` is the most of a sweep.
pub const SETTINGS: [Setting<Model>; 24] = [
    numbered!("groups", "allocation groups, a lock each", groups, 1..=4096),
    numbered!("cores", "for contexts and workers together", cores, 1..=4096),
    numbered!(
        "contexts",
        "writeback contexts, the most where several are tried",
        contexts,
        1..=1024
    ),
    worded!(
        "layout",
        "blocks of the file beforehand: holes, unwritten or written",
        layout,
        LAYOUTS
    ),
    worded!("order", "of a file's writes: random or sequential", order, ORDERS),
    numbered!("directories", "which are in groups in turn", directories, 1..=1024),
    numbered!("files", "of each directory", files, 1..=1024),
    sized!("file", "bytes of each file", file, PAGE as u64..=1 << 30),
    sized!("request", "bytes of each write", request, PAGE as u64..=8 << 20),
    sized!("window", "bytes of each file accepted, not yet settled", window, PAGE as u64..=1 << 30),
    timed!("allocation", "us under the lock, a run into a hole", allocation),
    timed!("conversion", "us under the lock, a run at the end of I/O", conversion),
    timed!("page", "us of a context, a page, without a lock", page),
    timed!("wake", "us until one who waited runs", wake),
    Setting {
        name: "stray",
        what: "per mille of runs in another group",
        set: |model, text| {
            model.stray = PerMille(number(text, 0..=1000)? as u16);
            Ok(())
        },
        show: |model| model.stray.0.to_string(),
    },
    worded!("locks", "on, or off: their work stays, and nobody waits", locks, LOCKS),
    worded!("merge", "on, or off: each run is a request", merge, MERGES),
    Setting {
        name: "device",
        what: "pm9a3, bm1743 or unbounded: sets the next five",
        set: |model, text| {
            model.drive = word(text, &DRIVES)?;
            Ok(())
        },
        show: |model| {
            let known = DRIVES.iter().find(|(_, drive)| *drive == model.drive);
            known.map_or("as set", |(name, _)| name).to_owned()
        },
    },
    numbered!("iops", "requests a second", drive.iops, 1..=1_000_000_000),
    numbered!("bandwidth", "bytes a second", drive.bandwidth, 1_000_000..=1_000_000_000_000_000),
    timed!("latency", "us of a request, after its turn", drive.latency),
    numbered!("depth", "requests in flight", drive.depth, 1..=1_000_000),
    sized!("unit", "bytes the device writes at least", drive.unit, 512..=1 << 20),
    sized!("amount", "bytes settled when the clock stops", amount, 1 << 20..=16 << 30),
];

impl Model {
    /// Sets a value by name. `device` sets the five settings after it, so it must come before them.
    ///
    /// # Errors
    /// [`Refusal`] if the name or the value is invalid; then nothing is set.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        setting::set(&SETTINGS, self, name, value)
    }

    /// Checks that the sizes fit each other.
    ///
    /// # Errors
    /// Names the setting that does not fit, with a remedy.
    pub fn check(&self) -> Result<(), String> {
        /// Maximum of bytes of all files together, because the place of each block is kept in
        /// memory.
        const MOST: u64 = 64 << 30;
        let page = PAGE as u64;
        for (name, size) in
            [("request", self.request), ("file", self.file), ("window", self.window)]
        {
            if !size.is_multiple_of(page) {
                return Err(format!("{name}={size}: not whole pages (give a multiple of 4k)"));
            }
        }
        if !self.file.is_multiple_of(self.request) {
            let (file, request) = (show_bytes(self.file), show_bytes(self.request));
            return Err(format!("file={file}: not whole requests of {request} (give a multiple)"));
        }
        if self.window < self.request {
            let (window, request) = (show_bytes(self.window), show_bytes(self.request));
            return Err(format!("window={window}: less than a request (give at least {request})"));
        }
        if self.directories * self.files * self.file > MOST {
            return Err(
                "directories, files, file: more than 64g in all (give fewer or smaller files)"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Returns the word for a value of a table.
///
/// # Panics
/// If the table does not contain the value.
#[must_use]
pub fn named<T: PartialEq>(meant: T, table: &[(&'static str, T)]) -> &'static str {
    table.iter().find(|(_, each)| *each == meant).expect("every value is in the table").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_read_as_it_is_shown() {
        let mut model = Model::default();
        for setting in &SETTINGS {
            let shown = (setting.show)(&model);
            assert_eq!(model.set(setting.name, &shown), Ok(()), "{}", setting.name);
        }
        assert_eq!(model, Model::default());
        assert_eq!(model.check(), Ok(()));
    }

    #[test]
    fn settings_that_do_not_fit_are_refused() {
        for (name, value) in [("request", "5000"), ("file", "6k"), ("window", "5000")] {
            let mut model = Model::default();
            model.set(name, value).unwrap();
            assert!(model.check().unwrap_err().contains(name), "{name}");
        }
        let mut model = Model { request: 2 << 20, ..Model::default() };
        assert!(model.check().unwrap_err().contains("less than a request"));
        model = Model { request: 12 << 10, ..Model::default() };
        assert!(model.check().unwrap_err().contains("not whole requests of 12k"));
        assert!(matches!(model.set("groups", "0"), Err(Refusal::Value(_))));
        assert!(
            matches!(model.set("layout", "full"), Err(Refusal::Word(words)) if words[0] == "holes")
        );
        assert!(
            matches!(model.set("gruops", "4"), Err(Refusal::Setting(names)) if names.len() == SETTINGS.len())
        );
    }
}

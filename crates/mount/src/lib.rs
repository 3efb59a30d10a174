//! A pass-through file system over an ordinary directory, on FUSE.
//!
//! The data of files goes through one engine of Forebay. Names, attributes, links, extended
//! attributes and directories go to the directory, the *source*. Its files stay ordinary files.
//!
//! A request of the kernel takes this way: `turns` reads it, or it comes in a `ring`. `filesystem`
//! takes it apart with `wire` and answers it with `reply`; `names` changes directories,
//! `attributes` answers and sets attributes, `content` reads and writes. Each file, directory or
//! other object that the kernel knows is a `Node` in the table of `node`, and `in_place` makes
//! calls that need a path of it. Its open files and what the source does not show yet are in
//! `open_file`. `appends` has the order of appends, `accessed` the time of reads. `small` has new
//! small files, which are not in the engine;
//! `passed` has files that are open past it, and those that the kernel reads itself. `settle` ends
//! the use of files that nobody has open, `durable` syncs all, and `forgetting` ends the use of
//! names. `caller` takes the identity of the calling process, and `rights` applies the rules that
//! hold for it and not for this process. `serve` mounts and ends by the `connection` with the
//! kernel, `threads` starts those that serve, and `control` is its connection with [`unmount`].
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("forebay-mount needs Linux 5.15 or newer on a 64-bit processor");

mod accessed;
mod appends;
mod attributes;
mod caller;
mod connection;
mod content;
mod control;
mod data;
mod directory;
mod durable;
mod engine;
mod error;
mod filesystem;
mod forgetting;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
mod in_place;
mod limits;
mod listed;
mod mounted;
mod names;
mod node;
mod open_file;
mod passed;
mod places;
mod plain;
mod ready;
mod reply;
mod rights;
mod ring;
mod saved;
mod serve;
mod settle;
mod small;
mod threads;
mod times;
mod turns;
mod unmount;
mod wire;

pub use engine::{Data, LogUse};
pub use error::Error;
pub use places::runtime_directory;
pub use serve::{Mounted, Options, mount};
pub use unmount::{Unmounted, unmount};

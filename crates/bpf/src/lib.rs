//! Counts in the kernel how block I/O is batched.
//!
//! ```text
//! submission:  bio --merge?--> request --plug?--> unplug --scheduler?--> issue
//! completion:  interrupt: a run of requests --> worker? --> task work --> completions of the ring
//! writeback:   a run of pages
//! ```
//!
//! [`Counting`] attaches small programs to the kernel's tracepoints (`programs`) and reads their
//! counters. Histogram triggers would not do: many kernels are built without them, they do not
//! report why a plug was flushed, and a killed process leaves them behind in tracefs. The kernel
//! removes a program with its last descriptor, however the process ends. An event costs some tens
//! of nanoseconds.
//!
//! The programs are assembled here (`code`) for the types of the running kernel (`btf`). aya-obj
//! would not do: it loads object files, which needs a compiler at build time, and its BTF has no
//! public way to the members of a struct.
//!
//! Counting needs root. Counters that this kernel, disk or file system does not support are left
//! out, with one sentence about the reason. Without the feature `programs` everything is left out.

#[cfg(feature = "programs")]
mod btf;
#[cfg(feature = "programs")]
mod code;
mod counter;
#[cfg(feature = "programs")]
mod counting;
#[cfg(not(feature = "programs"))]
#[path = "without.rs"]
mod counting;
#[cfg(feature = "programs")]
mod here;
#[cfg(feature = "programs")]
mod kernel;
mod place;
#[cfg(feature = "programs")]
mod programs;

pub use counter::{COUNTERS, Counter, Counts};
pub use counting::Counting;
pub use place::{Disk, FileSystem, Kind, Place, Ring};

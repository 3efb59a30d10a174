//! Jobs, arms, measuring, statistics, reports: what `forebay run` and `forebay compare` are made
//! of.
//!
//! ```text
//! suite --check--> plan: jobs x arms x rounds --> cells, each in a child --> rows --> verdicts --> tables
//!    a probe says: shape, arms            sizes          prepare, step, verify     figures, sentence
//! ```
//!
//! Every question is a [`probe::Probe`]: one file of [`probes`], which says all of the second line.
//! The rest knows no probe by its name.

// The program is the lab's one user: a name that says everything has no sentence below it.
#![allow(missing_docs)]

pub mod arm;
pub mod batching;
pub mod bundle;
pub mod bytes;
pub mod cell;
pub mod check;
pub mod child;
mod chosen;
pub mod compare;
pub mod detail;
pub mod disk;
pub mod doctor;
mod figures;
mod file_name;
pub mod file_system;
pub mod fio;
pub mod fio_program;
pub mod job;
pub mod load;
pub mod loop_device;
pub mod manifest;
mod memory_group;
pub mod metric;
pub mod nearest;
mod own_program;
pub mod plan;
pub mod planning;
pub mod price;
pub mod probe;
pub mod probes;
pub mod processors;
pub mod programs;
pub mod progress;
pub mod queue_knobs;
mod reader;
pub mod refusal;
pub mod report;
pub mod request;
pub mod run;
pub mod schema;
pub mod scratch;
mod sentence;
pub mod statistics;
mod stop;
pub mod suite;
pub mod target;
pub mod terminal;
pub mod text;
pub mod tuning;
pub mod whole_file;
mod words;

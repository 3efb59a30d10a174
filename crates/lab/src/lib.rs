//! Jobs, arms, measuring, statistics, reports: what `forebay run` and `forebay compare` are made
//! of.

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
pub mod price;
pub mod processors;
pub mod programs;
pub mod progress;
pub mod refusal;
pub mod report;
pub mod request;
pub mod run;
pub mod schema;
pub mod scratch;
pub mod shape;
pub mod statistics;
pub mod suite;
pub mod target;
pub mod terminal;
pub mod text;
pub mod through;
pub mod tuning;
pub mod whole_file;
mod words;
pub mod writers;

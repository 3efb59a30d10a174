//! Jobs, arms, measuring, statistics, reports: what `forebay run` and `forebay compare` are made of.

pub mod arm;
pub mod cell;
pub mod child;
pub mod compare;
pub mod file_system;
pub mod fio;
pub mod job;
pub mod load;
pub mod loop_device;
pub mod manifest;
pub mod metric;
pub mod nearest;
pub mod nomerges;
pub mod plan;
pub mod progress;
pub mod report;
pub mod request;
pub mod run;
pub mod schema;
pub mod scratch;
pub mod shape;
pub mod statistics;
pub mod suite;
pub mod through;
pub mod writers;

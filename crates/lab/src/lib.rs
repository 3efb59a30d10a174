//! Jobs, arms, measuring, statistics, reports: what `forebay run` and `forebay compare` are made of.

pub mod arm;
pub mod cell;
pub mod child;
pub mod fio;
pub mod job;
pub mod load;
pub mod metric;
pub mod run;

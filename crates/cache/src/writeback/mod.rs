//! Which page goes to the device next, why, and what its end means.
//!
//! In order: [`reason`] why, [`effort`] what it costs the file system, [`gather`] what goes out as
//! one bio and `segments` in which memory that is, [`pace`] how much at once and [`cost`] what that
//! costs the device, [`flight`] what is out, [`settle`] what the end of a bio does to its pages and
//! to those who wait.

pub mod cost;
pub mod effort;
pub mod flight;
pub mod gather;
pub mod pace;
pub mod reason;
pub(crate) mod segments;
pub mod settle;

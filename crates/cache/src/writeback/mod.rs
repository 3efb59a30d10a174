//! Writeback: which page is written next, why, and what the end of a write does.
//!
//! [`gather`] makes bios, [`reason`] says why a page is written, [`pace`] limits how much is in flight,
//! and [`settle`] handles the end of a bio.

pub mod flight;
pub mod gather;
pub mod pace;
pub mod reason;
pub(crate) mod segments;
pub mod settle;

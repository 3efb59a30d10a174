//! Runs the measurements that the project's documents show, and writes their figures into the
//! documents.
//!
//! ```text
//! measurements.toml --list--> commands --run--> BUNDLE/NAME.txt, BUNDLE/NAME/result.json
//!                                                       |
//! docs/measurements/*.md, README.md  <--document, aim---+
//!            |
//!            +--figure, answer--> docs/kernel-questions.md  <--question-- questions.toml
//! ```
//!
//! A comment in a document marks the place of a command's output (`<!-- measured: NAME -->`), of a
//! table of targets (`<!-- aims: TABLE -->`), of several disks (`<!-- ratios: SUITE on DISK, ..
//! -->`, `<!-- first page: .. -->`), or of a table about a thread of the kernel lists. The prose
//! around them is written by hand.

pub mod aim;
pub mod answer;
pub mod disk;
pub mod document;
pub mod figure;
pub mod list;
pub mod pages;
pub mod question;
pub mod run;

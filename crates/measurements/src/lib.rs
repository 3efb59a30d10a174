//! Runs the measurements that the project's documents show, and writes their figures into the
//! documents.
//!
//! ```text
//! measurements.toml --list--> commands --run--> BUNDLE/NAME.txt, BUNDLE/NAME/result.json
//!                                                       |
//! docs/measurements/*.md, README.md  <--document, aim---+
//! ```
//!
//! A comment in a document marks the place of a command's output (`<!-- measured: NAME -->`) or of
//! a table of targets (`<!-- aims: TABLE -->`). The prose around them is written by hand.

pub mod aim;
pub mod document;
pub mod list;
pub mod run;

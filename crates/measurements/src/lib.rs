//! The figures in the project's documents, made again by one command: what is measured, by which
//! command, into which bundle, and where it is shown.
//!
//! ```text
//! measurements.toml --list--> commands --run--> BUNDLE/NAME.txt, BUNDLE/NAME/result.json
//!                                                       |
//! docs/measurements/*.md, README.md  <--document, aim---+
//! ```
//!
//! A document says with a comment where the output of a command stands (`<!-- measured: NAME -->`)
//! or a table of what was asked and found (`<!-- aims: TABLE -->`). Words around them are written
//! by hand.

pub mod aim;
pub mod document;
pub mod list;
pub mod run;

//! The way of a request, from the caller's bio to the device and back. Pure: no system call, no clock, no
//! thread, no unsafe; time is an argument.
//!
//! In order of a request's life:
//! [`bio`] what one caller asks; [`device`] what takes requests and ends them.
#![forbid(unsafe_code)]

pub mod bio;
pub mod device;
pub mod limits;

pub use bio::{Bio, Class, Errno, Frame, Operation, Segment, Target};
pub use device::{Completion, Device, Refused, Tag, Wait};

//! Sockets over a ring, against plain sockets of the standard library.

mod bench;
mod bounds;
mod ends;
mod order;
mod process;
mod streams;

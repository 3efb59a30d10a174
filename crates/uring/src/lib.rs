//! The only system calls of Forebay.
//!
//! In order of a page's life: [`arena`] the memory pages live in, [`header`] what says which page a frame holds.
//!
//! Unsafe lives here and in no other crate of the project.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("Forebay runs on Linux 5.15 or newer, on 64-bit x86 and Arm");

pub mod arena;
pub mod header;
mod mapping;

pub use arena::{Arena, ZERO_BYTES};
pub use header::Header;

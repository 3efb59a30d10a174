//! The only system calls of Forebay.
//!
//! In order of a page's life: [`arena`] the memory pages live in, [`header`] what says which page a frame holds;
//! [`open`] how a file is opened, [`file`](mod@file) an open file the ring can use, [`direct`] whether it goes past the
//! page cache, [`lease`] who else opens it, [`lock`] which other engine has it, [`extents`] in how many pieces it lies;
//! [`ring`] the device over real files, [`setup`] the best ring this kernel has, [`fixed`] what is registered
//! beforehand, [`waker`] what wakes it, [`offer`] what the kernel offers and what it lacks. Beside them [`clock`] the
//! only one, [`mod@fork`] whose process this is, [`probe`] what machine it is.
//!
//! Unsafe lives here and in no other crate of the project.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("Forebay runs on Linux 5.15 or newer, on 64-bit x86 and Arm");

pub mod arena;
mod block_device;
pub mod clock;
pub mod direct;
mod enter;
pub mod extents;
pub mod file;
pub mod fixed;
pub mod fork;
pub mod header;
pub mod lease;
pub mod lock;
mod mapping;
mod min_wait;
pub mod offer;
pub mod open;
pub mod probe;
pub mod ring;
pub mod setup;
mod slot;
pub mod waker;

pub use arena::{Arena, ZERO_BYTES};
pub use direct::{Alignment, Direct, Mode};
pub use enter::Enters;
pub use extents::Extents;
pub use file::{File, Identity, Kind};
pub use fixed::{Fixed, Register};
pub use fork::ForkGuard;
pub use header::Header;
pub use lease::LeaseWatch;
pub use lock::Lock;
pub use offer::{Feature, Offer, Offers};
pub use open::{Access, Create, How, LEASE_PATIENCE, Opened, Truncate};
pub use ring::Ring;
pub use setup::SetupError;
pub use waker::Waker;

//! The only system calls of Forebay.
//!
//! In order of a page's life: [`arena`] the memory pages live in, [`layout`] what lies where in it,
//! [`header`] what says which page a frame holds, `masks` which bytes of it, [`records`] of which
//! file; [`lent`] callers' own memory for the time of a flight, [`aligned`] such memory on the
//! heap, [`buffers`] in a pool; [`open`] how a file is opened, [`file`](mod@file) an open file the
//! ring can use, [`direct`] what its direct I/O is aligned to, [`lease`] who else opens it,
//! [`lock`] which other engine has it, [`extents`] in how many pieces it lies, [`geometry`] how its
//! file system divides its space, [`free_space`] in what pieces that is free, `hint` what it is
//! told of the file; [`ring`] the device over real files, [`setup`] the best ring this kernel has,
//! [`fixed`] what is registered beforehand, [`waker`] what wakes it, [`offer`] what the kernel
//! offers and what it lacks; [`threads`] the device over real files where there is no ring,
//! [`backend`] whichever it is; [`net`] stream sockets. Devices without files, for trying and
//! measuring what stands above: [`null`], [`memory`], [`modelled`]. Beside them [`clock`] the only
//! one, [`mod@fork`] whose process this is, [`probe`] what machine it is, [`local`] a socket for
//! programs of this machine, [`passing`] one that carries descriptors between two, and what one
//! process hears of another; [`alive`] tells that the rings of one are gone, [`detached`] what
//! makes one outlive whoever started it, [`frames`] writing without a ring, [`notify`] a service
//! manager that keeps descriptors meanwhile.
//!
//! Unsafe lives here and in no other crate of the project.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("Forebay runs on Linux 5.15 or newer, on 64-bit x86 and Arm");

pub mod aligned;
pub mod alive;
pub mod arena;
pub mod backend;
mod block_device;
pub mod buffers;
pub mod clock;
pub mod detached;
pub mod direct;
mod enter;
pub mod extents;
pub mod file;
pub mod fixed;
pub mod fork;
pub mod frames;
pub mod free_space;
pub mod geometry;
pub mod header;
mod hint;
pub mod layout;
pub mod lease;
pub mod lent;
pub mod local;
pub mod lock;
mod mapping;
mod masks;
pub mod memory;
mod min_wait;
pub mod modelled;
pub mod net;
pub mod notify;
pub mod null;
pub mod offer;
pub mod open;
pub mod passing;
pub mod probe;
pub mod records;
pub mod ring;
mod saving;
pub mod setup;
mod slot;
mod targets;
pub mod threads;
mod vectors;
pub mod waker;

pub use aligned::AlignedMemory;
pub use alive::{Alive, Gone};
pub use arena::{Arena, ZERO_BYTES};
pub use backend::{Backend, BackendError, Choice};
pub use buffers::{Buffers, Piece};
pub use direct::{Alignment, Direct, Mode};
pub use enter::Enters;
pub use extents::Extents;
pub use file::{File, Identity, Kind};
pub use fixed::{Fixed, Register};
pub use fork::ForkGuard;
pub use free_space::FreeSpace;
pub use geometry::Geometry;
pub use header::{FrameState, Header};
pub use layout::ImageError;
pub use lease::LeaseWatch;
pub use lent::{Lent, Memory};
pub use lock::Lock;
pub use memory::MemoryDevice;
pub use modelled::{Modelled, Profile};
pub use null::Null;
pub use offer::{Feature, Offer, Offers};
pub use open::{Access, Create, How, LEASE_PATIENCE, Opened, Truncate};
pub use passing::{Channel, Process};
pub use records::{FILE_RECORDS, FileRecord};
pub use ring::Ring;
pub use setup::SetupError;
pub use threads::Threads;
pub use waker::Waker;

//! The calls that wait as futures; traits and buffers of other libraries: `std::io`, and with
//! features of the same names `bytes`, `serde` and `tokio`; and descriptors.

pub(crate) mod asynchronous;
#[cfg(feature = "bytes")]
mod bytes;
pub(crate) mod cursor;
mod descriptor;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "tokio")]
mod tokio;

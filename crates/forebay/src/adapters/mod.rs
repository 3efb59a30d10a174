//! Traits and buffers of other libraries: `std::io` and its vectors, and with features of the same
//! names `bytes`, `serde` and `tokio`; and descriptors.

mod ahead;
#[cfg(feature = "bytes")]
mod bytes;
pub(crate) mod cursor;
mod descriptor;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "tokio")]
mod tokio;
mod vectored;

//! What other programs' code expects of a file: the standard library's traits, its vectors, and,
//! each behind a feature of its name, the traits of `bytes` and `tokio`.

#[cfg(feature = "bytes")]
mod bytes;
pub(crate) mod cursor;
#[cfg(feature = "tokio")]
mod tokio;
mod vectored;

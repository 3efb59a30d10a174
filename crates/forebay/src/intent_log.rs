//! The intent log of a directory, and its recovery after a crash.
//!
//! Until the log has been recovered, no program may open the files below its directory.
//! `docs/intent-log.md` in the repository describes it.
//!
//! ```no_run
//! use forebay::intent_log::{self, Ask, Fate};
//!
//! # fn main() -> forebay::Result<()> {
//! let recovery = intent_log::recover("/srv/store".as_ref(), &Ask::default())?;
//! for file in &recovery.files {
//!     if let Fate::Skipped { reason, .. } = &file.fate {
//!         eprintln!("{}: {} bytes not put back: {reason}", file.path.display(), file.bytes);
//!     }
//! }
//! assert!(recovery.is_empty, "the log keeps records");
//! # Ok(())
//! # }
//! ```

pub use forebay_log::NAME;

pub use crate::core::intent_log::recover::{Ask, Fate, Mode, Recovered, Recovery, recover};
pub use crate::core::logged::bounds::LOG_FLUSH;

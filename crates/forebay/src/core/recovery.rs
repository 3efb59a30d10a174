//! Recovery after the death of a program: what its arena says, how that gets to its files, and what
//! another engine can take over. The keeper, recovery from an image and adoption use it.

pub(crate) mod finish;
pub(crate) mod inherited;
pub(crate) mod plan;

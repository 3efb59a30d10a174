//! Why something that the user asked for is not done.

/// A sentence that says why, with what would do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

//! Whether a run keeps its trace: one line per event, with the virtual time and the task.

/// Whether a trace keeps its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tracing {
    /// No line is kept.
    #[default]
    Off,
    /// All lines are kept.
    Kept,
}

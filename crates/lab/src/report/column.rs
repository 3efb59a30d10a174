//! Columns of tables, as they are declared: head, width, metric and unit. This is only data: the
//! renderer is `table.rs`.
//!
//! ```text
//! column(6, "sync", "p99", Cell::Mean("sync_probe_p99_us", time))
//!        |   \-- head --/             \-- metric --/       \-- unit
//!        width
//! ```

/// Shows a value in the unit of its column.
pub(crate) type Unit = fn(f64) -> String;

/// A column of a table with a line for each arm.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(super) width: usize,
    /// Over the head, where the head takes two lines.
    pub(super) above: &'static str,
    pub(super) head: &'static str,
    pub(super) cell: Cell,
    pub(super) when: When,
}

/// When a column is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// If one of the arms has its metric.
    Measured,
}

/// The content of a column.
#[derive(Clone, Copy)]
pub(crate) enum Cell {
    Arm,
    /// The arm, with spaces.
    Label,
    /// Mean of a metric.
    Mean(&'static str, Unit),
    /// Mean of a latency. An arm without it that has the same of reads alone, or of writes alone,
    /// shows that.
    Latency(&'static str, Unit),
    /// Mean and deviation of a metric, divided by this.
    Spread(&'static str, f64),
    /// Ratio to the base, in the metric of the part.
    ToBase,
    /// Filled in by the table that has the column.
    Own,
}

pub(crate) const fn column(
    width: usize,
    above: &'static str,
    head: &'static str,
    cell: Cell,
) -> Column {
    Column { width, above, head, cell, when: When::Always }
}

/// The ratio to the base.
pub(super) const RATIO: Column = column(17, "", "ratio [95 %]", Cell::ToBase);

impl Column {
    /// The column, shown only if one of the arms has its metric.
    pub(super) const fn if_measured(self) -> Self {
        Self { when: When::Measured, ..self }
    }

    /// Its metric, if it has one.
    pub(super) fn metric(&self) -> Option<&'static str> {
        match self.cell {
            Cell::Mean(metric, _) | Cell::Latency(metric, _) | Cell::Spread(metric, _) => {
                Some(metric)
            }
            Cell::Arm | Cell::Label | Cell::ToBase | Cell::Own => None,
        }
    }
}

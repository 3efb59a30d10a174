//! Prints both orders side by side, as text of at most 72 columns.

use super::figures::{Figures, Rounds};
use super::load::{Answers, Invalid, Load, Order, Source};
use super::run::rounds;

/// A load with its title.
#[derive(Clone, Copy, Debug)]
pub struct NamedLoad {
    /// Messages on their way, and what their sources wait for.
    pub title: &'static str,
    /// The load; the table sets its order.
    pub load: Load,
}

/// Loads of the table by default.
pub const LOADS: [NamedLoad; 10] = [
    named("1 x 2, together", Load::of(1, 2, Source::Together)),
    named("4 x 2, together", Load::of(4, 2, Source::Together)),
    named(
        "4 x 2, together, a pass 10 us",
        Load { pass_cost: 10_000, ..Load::of(4, 2, Source::Together) },
    ),
    named(
        "4 x 2, together, answered with the pass",
        Load { answers: Answers::WithThePass, ..Load::of(4, 2, Source::Together) },
    ),
    named("32 x 2, together", Load::of(32, 2, Source::Together)),
    named("256 x 2, together", Load::of(256, 2, Source::Together)),
    named("4 x 2, each", Load::of(4, 2, Source::Each)),
    named("32 x 2, each", Load::of(32, 2, Source::Each)),
    named("256 x 2, each", Load::of(256, 2, Source::Each)),
    named("256 x 2, each, 8 in a pass", Load { pass_limit: 8, ..Load::of(256, 2, Source::Each) }),
];

const fn named(title: &'static str, load: Load) -> NamedLoad {
    NamedLoad { title, load }
}

/// Returns a table with a heading for each load and a line for each order: means over `many` runs,
/// with consecutive seeds from `seed` on.
///
/// # Errors
/// If a load cannot be run.
pub fn table(loads: &[NamedLoad], seed: u64, many: u32) -> Result<String, Invalid> {
    let mut lines = vec![format!(
        "  {:<5}{:>8} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>6}",
        "order", "per s", "cv %", "idle %", "p50 us", "p99 us", "p999 us", "longest", "passed"
    )];
    for NamedLoad { title, load } in loads {
        lines.push(format!("{title}:"));
        for order in [Order::Fifo, Order::Lifo] {
            lines.push(line(order, &rounds(&load.with_order(order), seed, many)?));
        }
    }
    lines.push(format!(
        "{many} runs from seed {seed:x}. cv: of the rate, from run to run.\n\
         longest: in the server's list, in us. passed: how many that came\n\
         later were served before a message, p99. together: a source sends\n\
         again when all its messages are answered; each: when one is."
    ));
    Ok(lines.join("\n") + "\n")
}

fn line(order: Order, rounds: &Rounds) -> String {
    let micros = |figure: fn(&Figures) -> f64| rounds.mean(figure) / 1000.0;
    let variation = rounds.coefficient_of_variation();
    let variation =
        variation.map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0));
    format!(
        "  {:<5}{:>8.0} {variation:>6} {:>6.1} {:>6.1} {:>7.1} {:>8.1} {:>8.1} {:>6.0}",
        order.name(),
        rounds.mean(|one| one.requests_per_s),
        rounds.mean(|one| one.idle_share) * 100.0,
        micros(|one| one.latency_p50 as f64),
        micros(|one| one.latency_p99 as f64),
        micros(|one| one.latency_p999 as f64),
        micros(|one| one.longest_wait as f64),
        rounds.mean(|one| one.reorder_distance_p99 as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_has_both_lines_and_they_fit() {
        let quick =
            LOADS.map(|one| NamedLoad { load: Load { nanos: 1_000_000, ..one.load }, ..one });
        let text = table(&quick, 0x7f, 1).unwrap();
        assert_eq!(text.matches("\n  fifo ").count(), LOADS.len(), "{text}");
        assert_eq!(text.matches("\n  lifo ").count(), LOADS.len(), "{text}");
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
        assert_eq!(text, table(&quick, 0x7f, 1).unwrap());
    }
}

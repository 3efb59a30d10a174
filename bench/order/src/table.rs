//! All servers under several loads: each arm once in every round, in a random order.

use std::time::Duration;

use crate::line::{Figures, measure};
use crate::load::{Load, Order, Pace, Way};
use crate::statistics::{Random, Ratio, deviation, mean};

/// The kernel's own load (4 connections with 2 messages of 9 bytes), and larger ones.
const LOADS: [(&str, Load); 4] = [
    ("4x2", load(4, Pace::Each)),
    ("4x2-together", load(4, Pace::Together)),
    ("32x2", load(32, Pace::Each)),
    ("256x2", load(256, Pace::Each)),
];

const fn load(connections: u32, pace: Pace) -> Load {
    Load { connections, in_flight: 2, message_bytes: 9, pace }
}

/// The first is compared with each other. The second is the same, for the noise floor.
const ARMS: [(&str, Way, Order); 4] = [
    ("fifo", Way::Ring, Order::Fifo),
    ("fifo-again", Way::Ring, Order::Fifo),
    ("lifo", Way::Ring, Order::Lifo),
    ("epoll", Way::Epoll, Order::Fifo),
];

const LEGEND: &str = "\
Mean +- sd. cv = the deviation of the rate from round to round, of its
mean. idle, user: of the server's thread, in %; us/msg: its processor
time for each message. passed = messages sent later that were answered
before, p99. inv/1000 = inversions inside the server: of 1000 items,
those that it served after one of the same pass that arrived later.
Ratios with 95 %, paired by round. ~ = not shown";

/// Measures everything, and prints a table for each load.
pub(crate) fn print(rounds: u32, time: Duration) -> Result<(), String> {
    let system = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("Linux {}, {cores} cores", system.release().to_string_lossy());
    println!("An echo server by the order of its work, {rounds} rounds of {time:?}");
    let mut random = Random(1);
    for (name, load) in LOADS {
        let mut arms: [Vec<Figures>; ARMS.len()] = Default::default();
        for _ in 0..rounds {
            let mut order: Vec<usize> = (0..ARMS.len()).collect();
            (1..order.len()).rev().for_each(|at| order.swap(at, random.below(at + 1)));
            for arm in order {
                let (_, way, order) = ARMS[arm];
                arms[arm].push(measure(way, order, &load, time)?);
            }
        }
        println!("\n{}", table(&format!("{name} {load}"), &arms));
    }
    println!("\n{LEGEND}");
    Ok(())
}

fn table(title: &str, arms: &[Vec<Figures>]) -> String {
    let mut lines = vec![
        format!("{title}:"),
        format!("{:>70}", "inv/"),
        format!(
            "{:<10}{:>11}{:>5}{:>5}{:>5}{:>7}{:>7}{:>7}{:>7}{:>6}",
            "arm", "per s", "cv %", "idle", "user", "us/msg", "p50", "p99", "passed", "1000"
        ),
    ];
    for ((name, ..), figures) in ARMS.iter().zip(arms) {
        let of = |value: fn(&Figures) -> f64| mean(&values(figures, value));
        let rates = values(figures, |figures| figures.rate);
        let (rate, deviation) = (mean(&rates), deviation(&rates));
        let spread = deviation.map_or(String::new(), |deviation| format!("+-{}", short(deviation)));
        let share =
            deviation.map_or("-".to_owned(), |value| format!("{:.1}", value / rate * 100.0));
        lines.push(format!(
            "{name:<10}{:>11}{share:>5}{:>5.0}{:>5.0}{:>7.2}{:>7}{:>7}{:>7.0}{:>6.0}",
            format!("{}{spread}", short(rate)),
            of(|figures| figures.idle) * 100.0,
            of(|figures| figures.user) * 100.0,
            of(|figures| figures.work_us),
            micros(of(|figures| figures.p50)),
            micros(of(|figures| figures.p99)),
            of(|figures| figures.passed),
            of(|figures| figures.inversions),
        ));
    }
    lines.push(String::new());
    lines.extend(ratios(arms));
    lines.join("\n")
}

/// Ratios of the first arm to each other.
fn ratios(arms: &[Vec<Figures>]) -> Vec<String> {
    const METRICS: [fn(&Figures) -> f64; 3] =
        [|figures| figures.rate, |figures| figures.work_us, |figures| figures.p99];
    let ratio =
        |arm: usize, metric| Ratio::of(&values(&arms[0], metric), &values(&arms[arm], metric));
    let floors = METRICS.map(|metric| ratio(1, metric).map_or(1.0, Ratio::reach));
    let mut lines = vec![format!("{:<10}{:>20}{:>20}{:>20}", "fifo to", "per s", "us/msg", "p99")];
    for (arm, (name, ..)) in ARMS.iter().enumerate().skip(2) {
        let cell =
            |(metric, floor)| ratio(arm, metric).map_or("-".into(), |one: Ratio| one.text(floor));
        let cells = METRICS.into_iter().zip(floors).map(cell);
        lines.push(format!(
            "{name:<10}{}",
            cells.map(|cell| format!("{cell:>20}")).collect::<String>()
        ));
    }
    lines.push(format!("noise floor {:.1} %.  ~ = not shown", (floors[0] - 1.0) * 100.0));
    lines
}

fn values(figures: &[Figures], value: fn(&Figures) -> f64) -> Vec<f64> {
    figures.iter().map(value).collect()
}

/// `950`, `34k`, `298k`.
fn short(value: f64) -> String {
    if value < 1e3 { format!("{value:.0}") } else { format!("{:.0}k", value / 1e3) }
}

/// `57us`, `1.5ms`.
fn micros(value: f64) -> String {
    if value < 1e3 { format!("{value:.0}us") } else { format!("{:.1}ms", value / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_arm_and_fits_into_a_mail() {
        let figures = |rate| Figures {
            rate,
            idle: 0.58,
            user: 0.03,
            work_us: 11.9,
            inversions: 933.0,
            p50: 57.0,
            p99: 2_700.0,
            passed: 112.0,
        };
        let arm =
            |factor: f64| [100_000.0, 101_000.0, 102_000.0].map(|rate| figures(rate * factor));
        let arms = [1.0, 1.01, 0.5, 1.0].map(|factor| arm(factor).to_vec());
        let text = table("4x2 4 connections", &arms);
        for line in [
            "fifo         101k+-1k  1.0   58    3  11.90   57us  2.7ms    112   933",
            "lifo          2.00 [2.00-2.00]   ~1.00 [1.00-1.00]   ~1.00 [1.00-1.00]",
            "noise floor 1.0 %.  ~ = not shown",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
        assert!(LEGEND.lines().all(|line| line.len() <= 72));
    }
}

//! State of the machine when a cell began, and disturbances while it ran.
//!
//! Cells are brought to the same start by [`settle`](mod@super::settle); remaining differences are
//! recorded here beside each cell, and large ones are reported with a remedy. No result is removed
//! for it.

use std::fs;
use std::path::Path;
use std::time::Instant;

use procfs::{CpuTime, Current, CurrentSI, KernelStats, Meminfo};
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

/// A disturbance: how large it was in a cell, in percent or MiB, from where it is reported, and the
/// note with its remedy.
type Disturbance = (fn(&CellState) -> Option<f64>, f64, &'static str);

const DISTURBANCES: [Disturbance; 5] = [
    (
        |state| percent(state.pressure.processor),
        25.0,
        "{runs} competed for CPU (up to {worst} % of the time); rerun on an idle machine or \
         with --cpus",
    ),
    (
        |state| percent(state.steal),
        1.0,
        "the hypervisor took up to {worst} % of the CPU time in {runs}; use more --rounds or a \
         machine without neighbours",
    ),
    (
        |state| percent(state.pressure.memory),
        5.0,
        "{runs} waited for memory (up to {worst} % of the time); use a smaller --scale or stop \
         other programs",
    ),
    // Dirty at the start above this is another's work.
    (
        |state| state.dirty_bytes.map(|bytes| bytes as f64 / (1u64 << 20) as f64),
        16.0,
        "up to {worst} MiB of other programs' data were dirty before {runs}; stop other writers",
    ),
    // A fuller file system finds space otherwise.
    (
        |state| percent(state.fill),
        90.0,
        "the file system was up to {worst} % full before {runs}, which slows allocation; free \
         space or use --scratch",
    ),
];

fn percent(share: Option<f64>) -> Option<f64> {
    share.map(|share| share * 100.0)
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CellState {
    pub round: u32,
    pub job: String,
    pub arm: String,
    pub dirty_bytes: Option<u64>,
    pub writeback_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub in_flight: Option<u64>,
    pub fill: Option<f64>,
    pub steal: Option<f64>,
    pub pressure: Pressure,
}

/// Shares of time that some task waited for a resource.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Pressure {
    pub processor: Option<f64>,
    pub memory: Option<f64>,
    pub io: Option<f64>,
}

/// Looked at before a cell.
#[derive(Debug)]
pub(super) struct Before {
    state: CellState,
    began: Instant,
    ticks: Option<[u64; 2]>,
    waited: [Option<u64>; 3],
}

const PRESSURES: [&str; 3] = ["cpu", "memory", "io"];

impl Before {
    /// Reads the state before a cell whose files are in `directory`.
    pub(super) fn look(directory: &Path) -> Self {
        let memory = Meminfo::current().ok();
        let state = CellState {
            dirty_bytes: memory.as_ref().map(|memory| memory.dirty),
            writeback_bytes: memory.as_ref().map(|memory| memory.writeback),
            available_bytes: memory.and_then(|memory| memory.mem_available),
            in_flight: in_flight(directory),
            fill: fill(directory),
            ..CellState::default()
        };
        Self { state, began: Instant::now(), ticks: ticks(), waited: PRESSURES.map(waited_micros) }
    }

    pub(super) fn ended(self, round: u32, job: &str, arm: &str) -> CellState {
        let Self { state, began, ticks: before, waited } = self;
        let micros = began.elapsed().as_micros().max(1) as f64;
        let share = |place: usize| {
            let now = waited_micros(PRESSURES[place])?;
            Some((now.saturating_sub(waited[place]?) as f64 / micros).min(1.0))
        };
        let steal = before.zip(ticks()).and_then(|(before, now)| {
            let [all, stolen] = [0, 1].map(|place| now[place].saturating_sub(before[place]));
            (all > 0).then(|| stolen as f64 / all as f64)
        });
        let pressure = Pressure { processor: share(0), memory: share(1), io: share(2) };
        CellState { round, job: job.to_owned(), arm: arm.to_owned(), steal, pressure, ..state }
    }
}

fn in_flight(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(super::settle::in_flight_file(directory)?).ok()?;
    text.split_whitespace().map(|count| count.parse::<u64>().ok()).sum()
}

fn fill(directory: &Path) -> Option<f64> {
    let space = statvfs(directory).ok().filter(|space| space.f_blocks > 0)?;
    Some(1.0 - space.f_bavail as f64 / space.f_blocks as f64)
}

/// Reads the ticks of all processors, and those of them that the hypervisor gave to others.
fn ticks() -> Option<[u64; 2]> {
    let CpuTime { user, nice, system, idle, iowait, irq, softirq, steal, .. } =
        KernelStats::current().ok()?.total;
    // The user's time includes that of guests.
    let all = [Some(user), Some(nice), Some(system), Some(idle), iowait, irq, softirq, steal];
    Some([all.into_iter().flatten().sum(), steal?])
}

/// Reads the time that tasks waited for a resource since the machine was started.
fn waited_micros(resource: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Describes what disturbed these cells, each with its remedy.
pub(crate) fn notes(states: &[CellState]) -> Vec<String> {
    let note = |(of, most, note): Disturbance| {
        let above: Vec<f64> = states.iter().filter_map(of).filter(|one| *one > most).collect();
        let worst = above.iter().copied().reduce(f64::max)?;
        let runs = format!("{} of {} runs", above.len(), states.len());
        Some(note.replace("{runs}", &runs).replace("{worst}", &format!("{worst:.0}")))
    };
    DISTURBANCES.into_iter().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cell_suffers_is_a_share_of_its_time() {
        let before = Before::look(&std::env::temp_dir());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let state = before.ended(3, "job", "arm");
        assert_eq!((state.round, state.job.as_str(), state.arm.as_str()), (3, "job", "arm"));
        assert!(state.available_bytes.unwrap() > 0 && state.dirty_bytes.is_some());
        let shares = [
            state.steal,
            state.fill,
            state.pressure.processor,
            state.pressure.memory,
            state.pressure.io,
        ];
        assert!(shares.iter().flatten().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
        let text = serde_json::to_string(&state).unwrap();
        let again: CellState = serde_json::from_str(&text).unwrap();
        assert_eq!((again.round, again.dirty_bytes), (state.round, state.dirty_bytes));
    }

    #[test]
    fn what_is_too_much_is_reported_with_its_remedy() {
        let calm = CellState {
            steal: Some(0.001),
            fill: Some(0.5),
            dirty_bytes: Some(0),
            ..CellState::default()
        };
        assert_eq!(notes(&[calm.clone(), calm.clone()]), Vec::<String>::new());
        let pressure = Pressure { processor: Some(0.5), memory: Some(0.1), io: Some(1.0) };
        let rough = CellState {
            steal: Some(0.2),
            fill: Some(0.95),
            dirty_bytes: Some(1 << 30),
            pressure,
            ..calm.clone()
        };
        let reported = notes(&[calm, rough]);
        assert_eq!(reported.len(), 5, "{reported:?}");
        assert!(reported[0].starts_with("1 of 2 runs competed for CPU (up to 50 % of the time)"));
        assert!(
            reported[1].starts_with("the hypervisor took up to 20 % of the CPU time in 1 of 2")
        );
        assert!(reported.iter().all(|note| note.contains("; ")), "each has a remedy: {reported:?}");
    }
}

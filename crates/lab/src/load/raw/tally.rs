//! What is counted of a closed loop, and what comes of it. A ramp goes uncounted.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::batching;
use crate::cell::CellResult;
use crate::detail::{Course, Detail, Flow, Latency, ProcessUse};
use crate::load::usage::Usage;
use crate::request::{Operation, RequestSpec};

/// Latencies are kept up to this.
const LONGEST_LATENCY_NS: u64 = 60_000_000_000;

/// What is counted.
pub(super) struct Tally {
    counting_from: Instant,
    /// For so long, from when counting begins.
    counted: Duration,
    counting: Option<Counting>,
    pub(super) notes: Vec<String>,
}

struct Counting {
    began: Instant,
    usage: Usage,
    bios: u64,
    doorbells: u64,
    latencies: Histogram<u64>,
}

impl Tally {
    /// Begins the ramp.
    pub(super) fn new(spec: &RequestSpec) -> Self {
        Self {
            counting_from: Instant::now() + spec.ramp(),
            counted: spec.counted(),
            counting: None,
            notes: Vec::new(),
        }
    }

    /// Once for each turn of the loop, with the time of that turn: whether to go on. Where counting
    /// begins the time becomes a later one: the usage is read first and the clock then, so that
    /// reading files is not in what is timed.
    pub(super) fn goes_on(&mut self, now: &mut Instant) -> bool {
        if let Some(counting) = &self.counting {
            return *now < counting.began + self.counted;
        }
        if *now >= self.counting_from {
            let latencies =
                Histogram::new_with_max(LONGEST_LATENCY_NS, 3).expect("the bounds are fixed");
            let usage = Usage::now();
            *now = Instant::now();
            self.counting = Some(Counting { began: *now, usage, bios: 0, doorbells: 0, latencies });
        }
        true
    }

    /// One bio has ended.
    pub(super) fn ended(&mut self, latency: Duration) {
        if let Some(counting) = &mut self.counting {
            counting.bios += 1;
            let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            counting.latencies.saturating_record(nanos);
        }
    }

    /// One call that handed something over, or waited.
    pub(super) fn doorbell(&mut self) {
        if let Some(counting) = &mut self.counting {
            counting.doorbells += 1;
        }
    }

    /// What comes of it, `now` being the time of the last turn. A loop in which nothing ended has
    /// no figures.
    pub(super) fn result(self, spec: &RequestSpec, now: Instant) -> CellResult {
        let mut result = CellResult { notes: self.notes, ..CellResult::default() };
        let Some(counting) = self.counting.filter(|counting| counting.bios > 0) else {
            result.notes.push("nothing ended in the time given".into());
            return result;
        };
        let used = Usage::now().since(counting.usage);
        let (bios, seconds) = (counting.bios as f64, (now - counting.began).as_secs_f64());
        let micros = |quantile| counting.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let direction = direction(spec.operation);
        let mut put = |name: &str, value: f64| {
            if value.is_finite() {
                result.metrics.insert(name.to_owned(), value);
            }
        };
        put("iops", bios / seconds);
        put(&format!("{direction}_iops"), bios / seconds);
        put(&format!("{direction}_bytes_per_s"), bios * f64::from(spec.block_bytes) / seconds);
        put("ns_per_io", seconds * 1e9 / bios);
        put("latency_p50_us", micros(0.5));
        put("latency_p99_us", micros(0.99));
        put("elapsed_s", seconds);
        put("doorbells_per_io", counting.doorbells as f64 / bios);
        put("requests_per_doorbell", bios / counting.doorbells as f64);
        put("cpu_us_per_io", used.cpu_us as f64 / bios);
        put("context_switches", used.context_switches as f64);
        put("context_switches_per_io", used.context_switches as f64 / bios);
        if let Some(system) = used.system_context_switches {
            put("system_context_switches_per_io", system as f64 / bios);
        }
        if let Some(batched) = used.batched {
            batching::add(batched, &mut result.metrics);
        }
        let elapsed = now - counting.began;
        let flows = flow(spec, counting.bios, elapsed, &counting.latencies);
        result.detail = Some(Box::new(Detail { usage: ProcessUse::from(used), ..flows }));
        result
    }
}

/// How a cell of requests went, all of one direction; from another thread no latencies are known.
pub(crate) fn flow(
    spec: &RequestSpec,
    bios: u64,
    elapsed: Duration,
    latencies: &Histogram<u64>,
) -> Detail {
    let flow = Some(Flow {
        operations: bios,
        bytes: bios * u64::from(spec.block_bytes),
        runtime_ns: elapsed.as_nanos() as u64,
        latency: Latency::of(latencies),
        course: Course::default(),
    });
    match spec.operation {
        Operation::Read => Detail { read: flow, ..Detail::default() },
        Operation::Write => Detail { write: flow, ..Detail::default() },
    }
}

/// How metrics of one direction begin.
pub(super) fn direction(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    }
}

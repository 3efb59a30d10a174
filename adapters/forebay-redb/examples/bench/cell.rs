//! One job on one arm, in a process of its own.

use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay::{Engine, Keeper, Options};
use forebay_block::random::{Random, mix};
use forebay_redb::Backend;
use redb::{Database, ReadableDatabase, TableDefinition};

pub(crate) const JOBS: [&str; 3] = ["commit", "bulk", "random-read"];

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");

/// Bytes of a record.
const VALUE: usize = 150;

/// Records of a durable commit.
const COMMIT: u64 = 5;

/// One number of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) value: f64,
}

impl Metric {
    fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), value }
    }

    /// Reads lines of a name and a value.
    pub(crate) fn parse_all(text: &str) -> Vec<Self> {
        let metric = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some(Self::new(name, value.parse().ok()?))
        };
        text.lines().filter_map(metric).collect()
    }

    pub(crate) fn unit(&self) -> &'static str {
        match self.name.as_str() {
            name if name.ends_with("iops") => "1/s",
            name if name.ends_with("_us") || name.ends_with("_us_per_io") => "us",
            name if name.ends_with("_s") => "s",
            name if name.ends_with("_bytes") => "B",
            _ => "1",
        }
    }

    pub(crate) fn better(&self) -> &'static str {
        if self.name == "iops" { "higher" } else { "lower" }
    }
}

/// The arguments of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    job: String,
    arm: String,
    path: PathBuf,
    time: Duration,
    records: u64,
    cache_bytes: u64,
}

impl Cell {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let [job, arm, path, seconds, records, cache_mib] = arguments else {
            return Err("cell JOB ARM PATH SECONDS RECORDS CACHE_MIB".into());
        };
        Ok(Self {
            job: job.clone(),
            arm: arm.clone(),
            path: path.into(),
            time: Duration::from_secs_f64(seconds.parse()?),
            records: records.parse()?,
            cache_bytes: cache_mib.parse::<u64>()? << 20,
        })
    }

    /// Runs the job, and returns a line for each metric.
    pub(crate) fn run(&self) -> Result<String, Box<dyn Error>> {
        let metrics = match self.job.as_str() {
            "commit" => self.commit()?,
            "bulk" => self.bulk()?,
            "random-read" => self.random_read()?,
            job => return Err(format!("{job} is no job").into()),
        };
        let lines: Vec<String> =
            metrics.iter().map(|metric| format!("{} {}", metric.name, metric.value)).collect();
        Ok(lines.join("\n"))
    }

    fn open(&self) -> Result<Database, Box<dyn Error>> {
        let own = self.cache_bytes / 7 * 2;
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(own)?);
        if self.arm == "std" {
            return Ok(builder.create(&self.path)?);
        }
        let engine = Engine::builder(Options {
            cache_bytes: Some(self.cache_bytes - own),
            ..Options::default()
        });
        let engine = match self.arm.as_str() {
            "forebay" => engine.build()?,
            "forebay-log" => {
                let directory = self.path.parent().ok_or("the path of a file has a directory")?;
                engine.intent_log(directory).build()?
            }
            "forebay-survive" => engine.survive(Keeper::this_program()).build()?,
            arm => return Err(format!("{arm} is no arm").into()),
        };
        Ok(builder.create_with_backend(Backend::open(&engine, &self.path)?)?)
    }

    /// Commits a few records durably, as often as there is time.
    fn commit(&self) -> Result<Vec<Metric>, Box<dyn Error>> {
        let (database, mut records) = (self.open()?, self.records.min(10_000));
        self.insert(&database, 0..records)?;
        let mut latencies = Vec::new();
        let (start, before) = (Instant::now(), Usage::now());
        while start.elapsed() < self.time {
            let begin = Instant::now();
            self.insert(&database, records..records + COMMIT)?;
            records += COMMIT;
            latencies.push(begin.elapsed());
        }
        Ok(metrics(&mut latencies, start.elapsed(), &before))
    }

    /// Inserts records with random keys in one transaction, and commits it.
    fn bulk(&self) -> Result<Vec<Metric>, Box<dyn Error>> {
        let (database, before) = (self.open()?, Usage::now());
        let start = Instant::now();
        self.insert(&database, 0..self.records)?;
        let elapsed = start.elapsed();
        let records = self.records as f64;
        let usage = before.since(records);
        let first = [
            Metric::new("iops", records / elapsed.as_secs_f64()),
            Metric::new("elapsed_s", elapsed.as_secs_f64()),
        ];
        Ok(first.into_iter().chain(usage).collect())
    }

    /// Reads records at random from a database that `bulk` would make.
    fn random_read(&self) -> Result<Vec<Metric>, Box<dyn Error>> {
        let database = self.open()?;
        self.insert(&database, 0..self.records)?;
        let mut random = Random::new(2);
        let read = database.begin_read()?;
        let table = read.open_table(TABLE)?;
        let mut latencies = Vec::new();
        let (start, before) = (Instant::now(), Usage::now());
        while start.elapsed() < self.time {
            let key = key(random.below(self.records));
            let begin = Instant::now();
            let found = table.get(key)?.ok_or("a record is missing")?;
            assert_eq!(found.value().len(), VALUE);
            latencies.push(begin.elapsed());
        }
        Ok(metrics(&mut latencies, start.elapsed(), &before))
    }

    fn insert(&self, database: &Database, records: Range<u64>) -> Result<(), Box<dyn Error>> {
        let write = database.begin_write()?;
        let mut table = write.open_table(TABLE)?;
        for key in records.map(key) {
            table.insert(key, &[key as u8; VALUE][..])?;
        }
        drop(table);
        write.commit()?;
        Ok(())
    }
}

/// Returns the key of a record: random, so that neighbours in time are not neighbours in the tree.
fn key(record: u64) -> u64 {
    mix(record)
}

fn metrics(latencies: &mut [Duration], elapsed: Duration, before: &Usage) -> Vec<Metric> {
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = ((latencies.len() as f64 * share) as usize).min(latencies.len() - 1);
        latencies[place].as_secs_f64() * 1e6
    };
    let operations = latencies.len() as f64;
    let first = [
        Metric::new("iops", operations / elapsed.as_secs_f64()),
        Metric::new("latency_p50_us", at(0.5)),
        Metric::new("latency_p99_us", at(0.99)),
        Metric::new("latency_p999_us", at(0.999)),
    ];
    first.into_iter().chain(before.since(operations)).collect()
}

/// Resources that this process has used.
struct Usage {
    cpu_us: f64,
}

impl Usage {
    fn now() -> Self {
        // proc_pid_stat(5): user and system time are the fields 14 and 15, in ticks of 10 ms. The
        // second field, in brackets, may contain anything.
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
        Self { cpu_us: ticks * 10_000.0 }
    }

    /// Returns the use of the processor per operation since then, and the peak of memory.
    fn since(&self, operations: f64) -> [Metric; 2] {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<f64>().ok());
        [
            Metric::new("cpu_us_per_io", (Self::now().cpu_us - self.cpu_us) / operations),
            Metric::new("peak_memory_bytes", kib.unwrap_or(0.0) * 1024.0),
        ]
    }
}

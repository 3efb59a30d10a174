//! The numbers of an engine as OpenMetrics.
//!
//! Names follow the OpenMetrics conventions: the prefix `forebay_`, base units (seconds instead of
//! microseconds), and `_total` after a counter. `docs/metrics.md` lists all of them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::core::engine::Engine;
use crate::core::stats::{Kind, NUMBERS, Number, Stats};

/// Needs the feature `metrics`. A clone of the engine exports its [`Stats`] from a
/// `prometheus_client` registry. Each scrape reads the numbers once. The page `docs/metrics.md`
/// lists every metric.
///
/// To stop the engine before the registry is dropped, call [`Engine::shutdown`].
///
/// ```
/// use forebay::Engine;
/// use prometheus_client::registry::Registry;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new()?;
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(engine.clone()));
///
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// assert!(text.contains("forebay_accepted_bytes_total 0"));
/// # Ok(())
/// # }
/// ```
impl Collector for Engine {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.stats().collect(encoder)
    }
}

impl Stats {
    /// Returns the numbers as OpenMetrics text, for a program without a metrics registry.
    ///
    /// Needs the feature `metrics`. The media type of the text is `application/openmetrics-text;
    /// version=1.0.0; charset=utf-8`.
    ///
    /// ```
    /// # fn main() -> forebay::Result<()> {
    /// let text = forebay::Engine::new()?.stats().open_metrics();
    /// assert!(text.contains("# TYPE forebay_dirty_bytes gauge"));
    /// assert!(text.ends_with("# EOF\n"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn open_metrics(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Snapshot(*self)));
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).expect("writing to a string cannot fail");
        encoded
    }

    fn collect(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (number, (_, value)) in NUMBERS.iter().zip(self.named()) {
            number.encode(value, &mut encoder)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Snapshot(Stats);

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.collect(encoder)
    }
}

impl Number {
    fn encode(&self, value: u64, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, unit) = match self.name.rsplit_once('_') {
            Some((name, "bytes")) => (name, Some(Unit::Bytes)),
            Some((name, "us")) => (name, Some(Unit::Seconds)),
            Some((name, "pages")) => (name, Some(Unit::Other("pages".to_owned()))),
            _ => (self.name, None),
        };
        let help = self.meaning.trim_start().replace("in microseconds ", "in seconds ");
        let seconds = value as f64 / 1_000_000.0;
        let metric: Box<dyn EncodeMetric> = match (self.kind, &unit) {
            (Kind::Counter, Some(Unit::Seconds)) => Box::new(ConstCounter::new(seconds)),
            (Kind::Counter, _) => Box::new(ConstCounter::new(value)),
            (Kind::Level, Some(Unit::Seconds)) => Box::new(ConstGauge::new(seconds)),
            (Kind::Level, _) => Box::new(ConstGauge::new(value)),
        };
        let name = format!("forebay_{name}");
        let kind = metric.metric_type();
        metric.encode(encoder.encode_descriptor(&name, &help, unit.as_ref(), kind)?)
    }
}

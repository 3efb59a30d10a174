//! Estimate of the cost of a request and of a page, learned from the times of requests of different
//! sizes.
//!
//! Filling a gap between two dirty runs pays as long as its bytes cost less than one more request.
//! Both costs differ from device to device by more than ten, and so does their ratio. Windows with
//! requests of different sizes separate the two. The time of a window is taken to be
//!
//! ```text
//! time = requests x of_request + pages x of_page
//! ```
//!
//! The two costs are the best fit to the windows by least squares, with decreasing weight for older
//! windows (C. F. Gauss, Theoria combinationis observationum, 1821). If all windows were alike, the
//! costs cannot be separated and there is no estimate. The caller then uses a default that is right
//! for most devices.

/// Windows before the first estimate.
const LEAST_WINDOWS: u32 = 16;

/// Weight of a window relative to the next one: some sixty windows are remembered.
const KEPT: f64 = 63.0 / 64.0;

/// Windows are different enough from this square of the sine of the angle between their requests
/// and their pages on.
const LEAST_SPREAD: f64 = 0.02;

/// Cost estimate of one device.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    windows: u32,
    requests_squared: f64,
    pages_squared: f64,
    product: f64,
    requests_time: f64,
    pages_time: f64,
}

/// Measurement of a time during which a device was busy with writes only.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sample {
    /// Number of requests.
    pub requests: u64,
    /// Number of pages in these requests.
    pub pages: u64,
    /// Duration in nanoseconds.
    pub nanoseconds: u64,
}

impl Cost {
    /// Adds a measurement.
    pub fn add(&mut self, sample: Sample) {
        // Each window counts the same, however long it was: the time per request is compared.
        let of_request = 1.0 / sample.requests.max(1) as f64;
        let requests = 1.0;
        let pages = sample.pages as f64 * of_request;
        let time = sample.nanoseconds as f64 * of_request;
        for sum in [
            &mut self.requests_squared,
            &mut self.pages_squared,
            &mut self.product,
            &mut self.requests_time,
            &mut self.pages_time,
        ] {
            *sum *= KEPT;
        }
        self.windows = self.windows.saturating_add(1);
        self.requests_squared += requests;
        self.pages_squared += pages * pages;
        self.product += pages;
        self.requests_time += time;
        self.pages_time += pages * time;
    }

    /// Returns the number of pages that cost as much as the fixed cost of a request, or `None`
    /// while it is unknown.
    #[must_use]
    pub fn pages_of_request(&self) -> Option<f64> {
        let whole = self.requests_squared * self.pages_squared;
        let determinant = whole - self.product * self.product;
        if self.windows < LEAST_WINDOWS || determinant < whole * LEAST_SPREAD {
            return None;
        }
        let of_request = (self.requests_time * self.pages_squared - self.pages_time * self.product)
            / determinant;
        let of_page = (self.pages_time * self.requests_squared - self.requests_time * self.product)
            / determinant;
        // A request or a byte that costs nothing is noise.
        (of_request > 0.0 && of_page > 0.0).then(|| of_request / of_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by trying: the ratio whose best fit leaves the least, of a fine grid of ratios.
    fn plainly(samples: &[Sample]) -> f64 {
        let rest = |ratio: f64| {
            // With a ratio given, one cost is left, and that has a closed form.
            let weight = |at: usize| KEPT.powi((samples.len() - 1 - at) as i32);
            let points = samples.iter().enumerate().map(|(at, sample)| {
                let requests = sample.requests as f64;
                (
                    weight(at),
                    ratio + sample.pages as f64 / requests,
                    sample.nanoseconds as f64 / requests,
                )
            });
            let (mut square, mut product) = (0.0, 0.0);
            points.clone().for_each(|(weight, x, time)| {
                square += weight * x * x;
                product += weight * x * time;
            });
            let of_page = product / square;
            points.map(|(weight, x, time)| weight * (time - of_page * x).powi(2)).sum::<f64>()
        };
        let ratios = (1..20_000).map(|step| f64::from(step) * 0.01);
        ratios.min_by(|one, other| rest(*one).total_cmp(&rest(*other))).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn agrees_with_trying_every_ratio(
            windows in proptest::collection::vec((8..200u64, 1..256u64, 0..200u64), 16..120),
            of_request in 1_000..30_000u64,
            of_page in 300..8_000u64,
        ) {
            let mut cost = Cost::default();
            let samples: Vec<_> = windows.iter().map(|(requests, each, noise)| Sample {
                requests: *requests,
                pages: requests * each,
                nanoseconds: (requests * of_request + requests * each * of_page) * (9_900 + noise) / 10_000,
            }).collect();
            samples.iter().for_each(|sample| cost.add(*sample));
            let Some(found) = cost.pages_of_request() else { return Ok(()) };
            let plain = plainly(&samples);
            prop_assert!(found > 190.0 || (found - plain).abs() < 0.02 + plain * 0.001, "{found}, and {plain} by trying");
        }
    }

    #[test]
    fn what_is_alike_tells_nothing() {
        let mut cost = Cost::default();
        for _ in 0..1000 {
            cost.add(Sample { requests: 96, pages: 480, nanoseconds: 1_900_000 });
        }
        assert_eq!(cost.pages_of_request(), None);
    }

    #[test]
    fn a_device_that_has_changed_is_learned_anew() {
        let mut cost = Cost::default();
        let mut feed = |of_request: u64, of_page: u64| {
            for window in 0..600u64 {
                let pages = 1 + window % 40;
                cost.add(Sample {
                    requests: 50,
                    pages: 50 * pages,
                    nanoseconds: 50 * (of_request + pages * of_page),
                });
            }
            cost.pages_of_request().unwrap()
        };
        assert!((feed(10_000, 2_000) - 5.0).abs() < 0.01);
        assert!((feed(30_000, 2_000) - 15.0).abs() < 0.01);
    }
}

//! Numbers as they stand in a table: few digits, and never wider than their column.

const MIB: f64 = (1u64 << 20) as f64;

/// Shown if there is no value.
pub(crate) const ABSENT: &str = "-";

/// Formats a mean and its deviation as `640+-31 `, in 9 characters.
pub(crate) fn mean_and_deviation(mean: f64, deviation: Option<f64>) -> String {
    let deviation = match deviation {
        None => "?".to_owned(),
        Some(value) if value < 999.5 => plain(value),
        Some(value) if value < 99_500.0 => format!("{:.0}k", value / 1e3),
        Some(value) if value < 950_000.0 => format!(".{:.0}M", value / 1e5),
        Some(value) => format!("{:.0}M", value / 1e6),
    };
    format!("{}+-{deviation:<3}", plain(mean))
}

/// Formats a number as `0.09`, `36.2`, `4333`, `26.9k` or `3.68M`: at most 5 characters.
pub(crate) fn three_digits(value: f64) -> String {
    match in_unit(value) {
        (figure, _) if !figure.is_finite() => ABSENT.to_owned(),
        (figure, unit) if figure < 9.995 => format!("{figure:.2}{unit}"),
        (figure, unit) if figure < 99.95 => format!("{figure:.1}{unit}"),
        (figure, unit) => format!("{figure:.0}{unit}"),
    }
}

/// Returns a figure of at most four digits, or of three in a larger unit.
fn in_unit(value: f64) -> (f64, &'static str) {
    let units = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
    let most = |unit: &str| if unit.is_empty() { 9999.5 } else { 999.5 };
    let found = units.iter().find(|(size, unit)| value / size < most(unit));
    let (size, unit) = found.unwrap_or(&units[units.len() - 1]);
    (value / size, unit)
}

/// Formats a quantity in at most 4 characters.
pub(crate) fn plain(value: f64) -> String {
    match in_unit(value) {
        (figure, _) if !figure.is_finite() => ABSENT.to_owned(),
        (figure, unit) if figure < 9.95 && figure != figure.round() => format!("{figure:.1}{unit}"),
        (figure, unit) => format!("{figure:.0}{unit}"),
    }
}

/// Formats a count with all its digits, up to six: `24576`, `1.5`.
pub(crate) fn count(value: f64) -> String {
    if (9999.5..999_999.5).contains(&value) { format!("{value:.0}") } else { plain(value) }
}

/// Formats a ratio with three digits, in at most 4 characters: `0.98`, `1.69`, `12.3`, `123`.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => ABSENT.to_owned(),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value if value < 999.5 => format!("{value:.0}"),
        _ => ">999".to_owned(),
    }
}

/// Formats a number without a unit: `0.020`, `4.20`, `310`, `24576`.
pub(crate) fn number(value: f64) -> String {
    if value < 999.5 { per_io(value) } else { count(value) }
}

/// Formats a ratio as `1.69 [1.60-1.80]`, or without the interval.
pub(crate) fn in_brackets([middle, low, high]: [f64; 3], has_none: bool) -> String {
    let middle = ratio(middle);
    if has_none { middle } else { format!("{middle} [{}-{}]", ratio(low), ratio(high)) }
}

/// Formats a quantity per I/O: `0.04`, `1.25`, `310`; three digits below a tenth.
pub(crate) fn per_io(value: f64) -> String {
    if value > 0.0 && value < 0.0995 { format!("{value:.3}") } else { ratio(value) }
}

/// Formats [`bytes`] for a table: `66MiB`, in at most 6 characters below a petabyte.
pub(crate) fn size(value: f64) -> String {
    bytes(value).replace(' ', "")
}

/// Formats [`microseconds`] for a table: `410ms`, in at most 5 characters up to a year.
pub(crate) fn time(value: f64) -> String {
    microseconds(value).replace(' ', "")
}

/// Formats bytes as `66 MiB`, in at most 7 characters below a petabyte.
pub fn bytes(value: f64) -> String {
    match value / MIB {
        mib if !mib.is_finite() => ABSENT.to_owned(),
        mib if mib * 1024.0 < 999.5 => format!("{:.0} KiB", mib * 1024.0),
        mib if mib < 999.5 => format!("{mib:.0} MiB"),
        mib if mib < 9.95 * 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        mib if mib < 999.5 * 1024.0 => format!("{:.0} GiB", mib / 1024.0),
        mib => format!("{:.0} TiB", mib / (1024.0 * 1024.0)),
    }
}

/// Formats a time as `410 ms`, `5.3 us` or `84 ns`, in at most 6 characters up to a year.
pub fn microseconds(value: f64) -> String {
    match value {
        value if !value.is_finite() => ABSENT.to_owned(),
        0.0 => "0 us".to_owned(),
        value if value < 0.9995 => format!("{:.0} ns", value * 1e3),
        value if value < 9.95 => format!("{value:.1} us"),
        value if value < 999.5 => format!("{value:.0} us"),
        value if value < 9950.0 => format!("{:.1} ms", value / 1e3),
        value if value < 999_500.0 => format!("{:.0} ms", value / 1e3),
        value if value < 99_950_000.0 => format!("{:.1} s", value / 1e6),
        value if value < 9_999.5e6 => format!("{:.0} s", value / 1e6),
        value => format!("{:.0} h", value / 3.6e9),
    }
}

/// Formats a share as `3.1 %`.
pub(crate) fn percent(share: f64) -> String {
    let digits = usize::from(share < 0.0995);
    format!("{:.digits$} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_they_stand_in_the_table() {
        assert_eq!(mean_and_deviation(640.2, Some(31.4)), "640+-31 ");
        assert_eq!(mean_and_deviation(2500.0, Some(310.0)), "2500+-310");
        assert_eq!(mean_and_deviation(988e3, Some(399e3)), "988k+-.4M");
        assert_eq!(mean_and_deviation(5.25, None), "5.2+-?  ");
        assert_eq!(
            [0.98, 1.694, 12.34, 123.4, 1e9].map(ratio),
            ["0.98", "1.69", "12.3", "123", ">999"]
        );
        assert_eq!([0.0, 0.004, 0.25, 31.0].map(per_io), ["0.00", "0.004", "0.25", "31.0"]);
        assert_eq!([4.2, 24_576.0].map(number), ["4.20", "24576"]);
        let mib = 1024.0 * 1024.0;
        let found = [1024.0, 66.0 * mib, 1023.9 * mib, 2048.0 * mib].map(bytes);
        assert_eq!(found, ["1 KiB", "66 MiB", "1.0 GiB", "2.0 GiB"]);
        let found = [0.084, 5.31, 512.0, 3210.0, 38_000.0, 1.5e6, 3e8].map(microseconds);
        assert_eq!(found, ["84 ns", "5.3 us", "512 us", "3.2 ms", "38 ms", "1.5 s", "300 s"]);
        assert_eq!([1.0, 10.4, 24_576.0, 3.1e6].map(plain), ["1", "10", "25k", "3.1M"]);
        assert_eq!([1.0, 1.5, 24_576.0].map(count), ["1", "1.5", "24576"]);
        assert_eq!(percent(0.0312), "3.1 %");
        assert_eq!(plain(f64::NAN), ABSENT);
    }

    #[test]
    fn never_wider_than_their_columns() {
        let mut value = 1e-9;
        while value < 1e13 {
            assert!(plain(value).len() <= 4, "{}", plain(value));
            assert!(ratio(value).len() <= 4 && count(value).len() <= 6);
            assert!(
                time(value).len() <= 5 && size(value).len() <= 6,
                "{} {}",
                time(value),
                size(value)
            );
            assert!(mean_and_deviation(value.min(1e9), Some(value.min(9e7))).len() <= 9);
            value *= 1.07;
        }
    }
}

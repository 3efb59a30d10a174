//! Numbers as they stand in a table: few digits, and never wider than their column.

const MIB: f64 = (1u64 << 20) as f64;

/// Shown if there is no value.
pub(super) const ABSENT: &str = "-";

/// `640+-31 `: a mean and its deviation, in 9 characters.
pub(super) fn mean_and_deviation(mean: f64, deviation: Option<f64>) -> String {
    let deviation = match deviation {
        None => "?".to_owned(),
        Some(value) if value < 999.5 => plain(value),
        Some(value) if value < 99_500.0 => format!("{:.0}k", value / 1e3),
        Some(value) if value < 950_000.0 => format!(".{:.0}M", value / 1e5),
        Some(value) => format!("{:.0}M", value / 1e6),
    };
    format!("{}+-{deviation:<3}", plain(mean))
}

/// `36.2+-0.80`, `3.68M+-65.0k`: three digits of each, in 12 characters.
pub(super) fn with_deviation(mean: f64, deviation: Option<f64>) -> String {
    let deviation = deviation.map_or_else(|| "?".to_owned(), three_digits);
    format!("{}+-{deviation}", three_digits(mean))
}

/// `+1903%`, `-8.7%`: how much more than the first, in at most 7 characters; nothing is no share of
/// nothing.
pub(super) fn delta(value: f64, first: f64) -> String {
    match (value / first - 1.0) * 100.0 {
        change if !change.is_finite() => ABSENT.to_owned(),
        change if change.abs() < 99.95 => format!("{change:+.1}%"),
        change if change < 9_999.5 => format!("{change:+.0}%"),
        _ => ">+9999%".to_owned(),
    }
}

/// `0.09`, `36.2`, `4333`, `26.9k`, `3.68M`: at most 5 characters.
pub(crate) fn three_digits(value: f64) -> String {
    match in_unit(value) {
        (figure, _) if !figure.is_finite() => ABSENT.to_owned(),
        (figure, unit) if figure < 9.995 => format!("{figure:.2}{unit}"),
        (figure, unit) if figure < 99.95 => format!("{figure:.1}{unit}"),
        (figure, unit) => format!("{figure:.0}{unit}"),
    }
}

/// As a figure of at most four digits, or of three in a larger unit.
fn in_unit(value: f64) -> (f64, &'static str) {
    let units = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];
    let most = |unit: &str| if unit.is_empty() { 9999.5 } else { 999.5 };
    let found = units.iter().find(|(size, unit)| value / size < most(unit));
    let (size, unit) = found.unwrap_or(&units[units.len() - 1]);
    (value / size, unit)
}

/// Millions of bytes, with three digits.
pub(crate) fn megabytes(bytes: f64) -> String {
    three_digits(bytes / 1e6)
}

/// A mark of a scale, without digits that say nothing: `0.5`, `1.25`, `200`, `3M`.
pub(super) fn short(value: f64) -> String {
    let text = three_digits(value);
    let (figure, unit) =
        text.split_at(text.find(|letter: char| letter.is_alphabetic()).unwrap_or(text.len()));
    let figure = if figure.contains('.') {
        figure.trim_end_matches('0').trim_end_matches('.')
    } else {
        figure
    };
    format!("{figure}{unit}")
}

/// A quantity in at most 4 characters.
pub(super) fn plain(value: f64) -> String {
    match in_unit(value) {
        (figure, _) if !figure.is_finite() => ABSENT.to_owned(),
        (figure, unit) if figure < 9.95 && figure != figure.round() => format!("{figure:.1}{unit}"),
        (figure, unit) => format!("{figure:.0}{unit}"),
    }
}

/// A count with all its digits, up to six: `24576`, `1.5`.
pub(super) fn count(value: f64) -> String {
    if (9999.5..999_999.5).contains(&value) { format!("{value:.0}") } else { plain(value) }
}

/// A ratio with three digits: `0.98`, `1.69`, `12.3`, `123`. At most 4 characters.
pub(super) fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => ABSENT.to_owned(),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value if value < 999.5 => format!("{value:.0}"),
        _ => ">999".to_owned(),
    }
}

/// `1.69 [1.60-1.80]`, or without the interval.
pub(super) fn in_brackets([middle, low, high]: [f64; 3], has_none: bool) -> String {
    let middle = ratio(middle);
    if has_none { middle } else { format!("{middle} [{}-{}]", ratio(low), ratio(high)) }
}

/// A quantity per I/O: `0.04`, `1.25`, `310`; three digits below a tenth.
pub(super) fn per_io(value: f64) -> String {
    if value > 0.0 && value < 0.0995 { format!("{value:.3}") } else { ratio(value) }
}

/// As [`bytes`] in a table: `66MiB`, in at most 6 characters below a petabyte.
pub(crate) fn size(value: f64) -> String {
    bytes(value).replace(' ', "")
}

/// As [`microseconds`] in a table: `410ms`, in at most 5 characters up to a year.
pub(crate) fn time(value: f64) -> String {
    microseconds(value).replace(' ', "")
}

/// `66 MiB`, in at most 7 characters below a petabyte.
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

/// `410 ms`, `5.3 us`, `84 ns`, in at most 6 characters up to a year.
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

/// `3.1 %`.
pub(super) fn percent(share: f64) -> String {
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
        let mib = 1024.0 * 1024.0;
        let found = [1024.0, 66.0 * mib, 1023.9 * mib, 2048.0 * mib].map(bytes);
        assert_eq!(found, ["1 KiB", "66 MiB", "1.0 GiB", "2.0 GiB"]);
        let found = [0.084, 5.31, 512.0, 3210.0, 38_000.0, 1.5e6, 3e8].map(microseconds);
        assert_eq!(found, ["84 ns", "5.3 us", "512 us", "3.2 ms", "38 ms", "1.5 s", "300 s"]);
        assert_eq!([1.0, 10.4, 24_576.0, 3.1e6].map(plain), ["1", "10", "25k", "3.1M"]);
        assert_eq!([1.0, 1.5, 24_576.0].map(count), ["1", "1.5", "24576"]);
        assert_eq!(percent(0.0312), "3.1 %");
        assert_eq!(plain(f64::NAN), ABSENT);
        let found = [0.0, 0.5, 1.25, 1.0, 200.0, 3e6].map(short);
        assert_eq!(found, ["0", "0.5", "1.25", "1", "200", "3M"]);
    }

    #[test]
    fn as_they_stand_in_a_block() {
        assert_eq!(with_deviation(36.21, Some(0.8)), "36.2+-0.80");
        assert_eq!(with_deviation(3.68e6, Some(65e3)), "3.68M+-65.0k");
        assert_eq!(with_deviation(0.093, None), "0.09+-?");
        let found = [(3.68e6, 184e3), (44.6, 66.2), (1.0, 0.0), (0.0, 0.0), (3e9, 2.0), (2.0, 2.0)];
        let found = found.map(|(value, first)| delta(value, first));
        assert_eq!(found, ["+1900%", "-32.6%", "-", "-", ">+9999%", "+0.0%"]);
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
            assert!(
                with_deviation(value, Some(value)).len() <= 12,
                "{}",
                with_deviation(value, Some(value))
            );
            assert!(delta(value, 1.0).len() <= 7 && delta(1.0, value).len() <= 7);
            value *= 1.07;
        }
    }
}

//! Whether the page of the kernel lists answers each row of the threads, once.

use std::collections::BTreeMap;

use crate::results::cells;

/// Rows of answers, by thread of the kernel lists.
const ANSWERS: [usize; 4] = [26, 21, 23, 9];

/// Rows of the kernel lists that a page answers not exactly once.
pub(crate) fn unanswered(page: &str) -> Vec<String> {
    let mut lines = page.lines();
    let mut answered: BTreeMap<String, usize> = BTreeMap::new();
    while lines.any(|line| line.starts_with("| # | the thread says |")) {
        let rows = lines.by_ref().skip(1).take_while(|line| line.starts_with('|'));
        for number in rows.flat_map(|row| cells(row)[0].split(", ").flat_map(numbers_of)) {
            *answered.entry(number).or_default() += 1;
        }
    }
    let rows =
        (0..).zip(ANSWERS).flat_map(|(thread, rows)| (1..=rows).map(move |row| (thread, row)));
    let count = |number: &str| answered.get(number).copied().unwrap_or(0);
    rows.map(|(thread, row)| format!("{thread}.{row}"))
        .filter(|number| count(number) != 1)
        .map(|number| format!("row {number} has {} answers", count(&number)))
        .collect()
}

/// Returns the numbers of a row: that of its first cell, or all of `0.3 to 0.5`.
fn numbers_of(cell: &str) -> Vec<String> {
    let parse = |number: &str| {
        let (thread, row) = number.split_once('.')?;
        Some((thread.parse::<usize>().ok()?, row.parse::<usize>().ok()?))
    };
    let ends =
        cell.split_once(" to ").and_then(|(first, last)| Some((parse(first)?, parse(last)?)));
    match ends {
        Some(((thread, first), (same, last))) if thread == same => {
            (first..=last).map(|row| format!("{thread}.{row}")).collect()
        }
        _ => vec![cell.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_an_answer_is_found() {
        let row = |(thread, rows): (usize, &usize)| {
            let rows: String = (1..=*rows).map(|row| format!("| {thread}.{row} | a |\n")).collect();
            format!("| # | the thread says |\n|---|---|\n{rows}\n")
        };
        let page: String = ANSWERS.iter().enumerate().map(row).collect();
        assert_eq!(unanswered(&page), Vec::<String>::new());
        assert_eq!(unanswered(&page.replace("| 2.7 |", "| 2.8 |")).len(), 2);
        let several = page.replace("| 2.7 | a |\n| 2.8 |", "| 2.7 to 2.8 |");
        assert_eq!(unanswered(&several), Vec::<String>::new());
        assert_eq!(unanswered(&several.replace("2.7 to 2.8", "2.7 to 2.9")).len(), 1);
        let listed = page.replace("| 2.7 | a |\n| 2.8 |", "| 2.7, 2.8 |");
        assert_eq!(unanswered(&listed), Vec::<String>::new());
    }
}

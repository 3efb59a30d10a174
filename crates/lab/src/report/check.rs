//! The result of the check, as a table of at most 72 columns.

use crate::check::{Itself, MOST_FALSE, Said};

use super::table::{Column, Table, with_interval};
use super::{Block, written};

/// Returns the verdicts where the answer is known. Ends with a newline.
pub fn itself(found: &Itself) -> String {
    let said: Vec<&Said> = found.same.iter().chain(&found.planted).collect();
    let column = |head: &str, cell: fn(&&Said) -> String| Column::new(head, said.iter().map(cell));
    let columns = vec![
        column("what", |said| said.title.clone()),
        column("ratio [95 %]", |said| with_interval(&said.comparison)),
        column("p", |said| format!("{:.4}", said.comparison.p)),
        column("said", |said| said.comparison.verdict.name().to_owned()),
    ];
    let blocks = [
        Block::Lines(vec![
            "Requests per second of an arm against itself, and of a slower device".to_owned(),
        ]),
        Block::Table(Table { columns }),
        Block::Text(format!(
            "Of {} comparisons of an arm with itself {} were shown as a difference; {MOST_FALSE} may be. A device \
             that is 5 % slower was found {} times of {}.",
            found.same.len(),
            found.false_verdicts(),
            found.found(),
            found.planted.len()
        )),
    ];
    written(&blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Comparison;
    use crate::statistics::Verdict;

    fn comparison(job: &str, metric: &str) -> Comparison {
        Comparison {
            job: job.into(),
            metric: metric.into(),
            base: "base".into(),
            arm: "arm".into(),
            ratio: 1.04,
            ci_low: 1.03,
            ci_high: 1.05,
            p: 0.3125,
            verdict: Verdict::NotShown,
        }
    }

    #[test]
    fn what_was_said_of_itself_is_reported() {
        let same =
            vec![Said { title: "uring read 4k 1".into(), comparison: comparison("1", "iops") }];
        let slower = Comparison { verdict: Verdict::Worse, ..comparison("2", "iops") };
        let planted = vec![Said { title: "modelled 20000 ns".into(), comparison: slower }];
        let found = Itself { same, planted, rows: Vec::new() };
        let text = itself(&found);
        assert!(text.contains("1.04 [1.03-1.05] 0.3125 not shown"), "{text}");
        assert!(text.contains("1 comparisons of an arm with itself 0 were shown"), "{text}");
        assert!(text.contains("found 1 times of 1"), "{text}");
    }
}

//! Results of the checks, as tables of at most 72 columns.

use crate::check::{Agreement, Fio, Itself, MOST_FALSE, Mark, Said};

use super::figures::{percent, three_digits};
use super::table::{Head, Table, head, with_interval};
use super::{Block, Format, written};

const FIO_HEADS: [Head; 7] = [
    head(23, "", "load"),
    head(4, "", "what"),
    head(5, "", "lab"),
    head(5, "", "fio"),
    head(16, "", "lab / fio"),
    head(5, "", "floor"),
    head(5, "", ""),
];

const ITSELF_HEADS: [Head; 4] =
    [head(24, "", "what"), head(16, "", "ratio"), head(6, "", "p"), head(10, "", "said")];

/// Our load generator beside fio. Ends with a newline.
pub fn fio(found: &Fio, format: Format) -> String {
    let lines = found.agreements.iter().map(fio_line).collect();
    let [agree, noise, apart] =
        [Mark::Agree, Mark::WithinNoise, Mark::Apart].map(|mark| found.marked(mark));
    let blocks = [
        Block::Lines(vec![format!("Forebay's load generator beside {}, on one file", found.version)]),
        Block::Table(Table { heads: FIO_HEADS.into(), lines }),
        Block::Text(format!(
            "Of {} figures {agree} agree within 5 %, {noise} within the noise floor (noise), {apart} do not (APART).",
            found.agreements.len()
        )),
        Block::Text(
            "load: block size and depth; depth 1 is single calls (psync), more is io_uring. Latencies in us: from \
             handing over until the end was seen, which is fio's clat of single calls and its lat over a ring. floor: \
             what the worse of both is from itself. Uncached is left out: fio 3.17 to 3.37 send another flag for it."
                .to_owned(),
        ),
    ];
    written(&blocks, format).join("\n") + "\n"
}

fn fio_line(one: &Agreement) -> Vec<String> {
    let comparison = &one.comparison;
    let what = match comparison.metric.as_str() {
        "latency_p50_us" => "p50",
        "latency_p99_us" => "p99",
        other => other,
    };
    let mark = match one.mark {
        Mark::Agree => "ok",
        Mark::WithinNoise => "noise",
        Mark::Apart => "APART",
    };
    let (lab, fio) = (three_digits(one.lab), three_digits(one.fio));
    let interval = with_interval(comparison);
    vec![
        comparison.job.clone(),
        what.to_owned(),
        lab,
        fio,
        interval,
        percent(one.floor),
        mark.to_owned(),
    ]
}

/// Verdicts where the answer is known. Ends with a newline.
pub fn itself(found: &Itself, format: Format) -> String {
    let lines = found.same.iter().chain(&found.planted).map(itself_line).collect();
    let blocks = [
        Block::Lines(vec![
            "Requests per second of an arm against itself, and of a slower device".to_owned(),
        ]),
        Block::Table(Table { heads: ITSELF_HEADS.into(), lines }),
        Block::Text(format!(
            "Of {} comparisons of an arm with itself {} were shown as a difference; {MOST_FALSE} may be. A device \
             that is 5 % slower was found {} times of {}.",
            found.same.len(),
            found.false_verdicts(),
            found.found(),
            found.planted.len()
        )),
    ];
    written(&blocks, format).join("\n") + "\n"
}

fn itself_line(said: &Said) -> Vec<String> {
    let comparison = &said.comparison;
    let p = format!("{:.4}", comparison.p);
    let verdict = comparison.verdict.name().to_owned();
    vec![said.title.clone(), with_interval(comparison), p, verdict]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::assert_heads_fit;
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
    fn what_agrees_and_what_does_not_is_told() {
        assert_heads_fit(&FIO_HEADS);
        assert_heads_fit(&ITSELF_HEADS);
        let one = |metric, mark| Agreement {
            comparison: comparison("buffered write 128k 32", metric),
            lab: 104_000.0,
            fio: 100_000.0,
            floor: 0.012,
            mark,
        };
        let agreements = vec![one("iops", Mark::Agree), one("latency_p99_us", Mark::Apart)];
        let found = Fio { version: "fio-3.33".into(), agreements, rows: Vec::new() };
        let text = fio(&found, Format::Text);
        assert!(text.contains("beside fio-3.33"), "{text}");
        assert!(text.contains("iops  104k  100k 1.04 [1.03-1.05] 1.2 %    ok"), "{text}");
        assert!(text.contains("APART\n") && text.contains("1 do\nnot"), "{text}");
        let table = text.lines().skip(1).take(3);
        assert!(table.clone().all(|line| line.len() <= 72), "{text}");
        assert!(fio(&found, Format::Markdown).contains("| p99 |"));
    }

    #[test]
    fn what_was_said_of_itself_is_told() {
        let same =
            vec![Said { title: "uring read 4k 1".into(), comparison: comparison("1", "iops") }];
        let slower = Comparison { verdict: Verdict::Worse, ..comparison("2", "iops") };
        let planted = vec![Said { title: "modelled 20000 ns".into(), comparison: slower }];
        let found = Itself { same, planted, rows: Vec::new() };
        let text = itself(&found, Format::Text);
        assert!(text.contains("1.04 [1.03-1.05] 0.3125  not shown"), "{text}");
        assert!(text.contains("1 comparisons of an arm with itself 0 were shown"), "{text}");
        assert!(text.contains("found 1 times of 1"), "{text}");
    }
}

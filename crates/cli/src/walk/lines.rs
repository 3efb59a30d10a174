//! A walk as text: heading, a line for each step, and a legend of the words that came up.

use std::fmt::Write;

use forebay_block::Step;

use super::{page, scene::Line};

/// What the words of the first column mean, in the order of a bio's life.
const LEGEND: [(&str, &str); 14] = [
    ("submitted", "a caller gave a bio to the queue; bios are numbered as they come"),
    ("plugged", "it is held with its neighbours; so many are held now"),
    (
        "merged",
        "it touches others, and joins their request, which has the number of its oldest bio",
    ),
    ("waits", "something in flight must end before; the request stays back"),
    ("tagged", "so many tags were taken, in one sweep; no tag, no flight"),
    ("dispatched", "the device has the request, under its tag; it goes with the next doorbell"),
    ("refused", "the device's queue was full; the request goes first next time"),
    ("rung", "the doorbell: one costly call hands over so many requests (none: it only waits)"),
    ("completed", "the device is done with a request, for better or worse"),
    ("held", "so many completions are kept back for a moment, as more are about to come"),
    ("again", "short, interrupted, or it would have blocked: the rest is asked again"),
    ("apart", "a merged request failed: each bio of it is asked again alone"),
    ("ended", "a bio has its result, and its caller is told"),
    ("run", "a completion run is over, in which so many bios ended"),
];

/// All of it.
pub(crate) fn text(device: &str, walked: &[Line]) -> String {
    let mut text = format!("One context, {device}\n\n{:>9}  {}\n", "us", Step::HEADING.trim_end());
    let mut seen = Vec::new();
    for line in walked {
        let line = match line {
            Line::Act(title) => format!("\n           -- {title}"),
            Line::Step { after, step } => {
                let step = step.to_string();
                seen.extend(step.split_whitespace().next().map(str::to_owned));
                format!("{:>9.1}  {}", after.as_nanos() as f64 / 1000.0, step.trim_end())
            }
        };
        writeln!(text, "{line}").expect("a string takes all");
    }
    text.push('\n');
    for (word, meaning) in LEGEND {
        if seen.iter().any(|seen| seen == word) {
            writeln!(text, "{word:<10} {meaning}").expect("a string takes all");
        }
    }
    text
}

/// What the words of the first column mean for pages, in the order of a page's life.
const PAGE_LEGEND: [(&str, &str); 7] = [
    ("asked", "somebody waits for something"),
    (
        "planned",
        "a write has its frames; until it is published nobody else reads, sends or drops them",
    ),
    ("published", "the bytes are there, and accepted"),
    ("sent", "pages go out as a bio, for a reason"),
    ("settled", "the bio has ended, and this is what that means for the page"),
    ("ended", "a bio without pages has ended"),
    ("told", "who waited hears how it ended"),
];

/// All of a walk of pages.
pub(crate) fn pages(device: &str, walked: &[page::Line]) -> String {
    let mut text = format!(
        "One file, {device}\n\n{:>9}  {:<10}{:>5}  {:<12}what\n",
        "us", "step", "page", "is now"
    );
    for line in walked {
        let line = match line {
            page::Line::Act(title) => format!("\n           -- {title}"),
            page::Line::Step { after, step, page, what } => {
                let (number, state) = match page {
                    Some((number, state)) => (number.to_string(), state.to_string()),
                    None => (String::new(), String::new()),
                };
                let micros = after.as_nanos() as f64 / 1000.0;
                format!("{micros:>9.1}  {step:<10}{number:>5}  {state:<12}{what}")
            }
        };
        writeln!(text, "{line}").expect("a string takes all");
    }
    text.push('\n');
    for (word, meaning) in PAGE_LEGEND {
        writeln!(text, "{word:<10} {meaning}").expect("a string takes all");
    }
    text
}

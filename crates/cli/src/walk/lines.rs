//! A walk as text: heading, a line for each step, and a legend of the words that came up.

use std::fmt::Write;

use forebay_block::Step;

use super::{page, scene::Line};

/// Meanings of the words in the first column, in the order of a bio's life.
const LEGEND: [(&str, &str); 14] = [
    ("submitted", "a caller gives a bio to the queue; bios are numbered in this order"),
    ("plugged", "the bio waits for its neighbours; the number of bios that wait"),
    ("merged", "the bio touches others and joins their request, named after its oldest bio"),
    ("waits", "the request waits for another one in flight"),
    ("tagged", "the number of tags taken in one sweep; a request needs a tag to be in flight"),
    ("dispatched", "the device gets the request; it starts with the next doorbell"),
    ("refused", "the queue of the device is full; the request goes first next time"),
    ("rung", "one system call hands over this number of requests (0: it only waits)"),
    ("completed", "the device has finished a request, with success or an error"),
    ("held", "the number of completed writes that wait briefly, to end together with more"),
    ("again", "short, interrupted or would block: the rest is submitted again"),
    ("apart", "a merged request failed: each of its bios is submitted again alone"),
    ("ended", "a bio has its result, and its caller gets it"),
    ("run", "a completion run is over; the number of bios that it ended"),
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

/// Meanings of the words in the first column for pages, in the order of a page's life.
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

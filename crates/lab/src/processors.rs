//! Processors of a cell. The calling thread is pinned; threads it starts later inherit that.

use crate::refusal::Refusal;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Parses a list such as `0-3,6` of processors that this process may run on.
///
/// # Errors
///
/// A text that is no list, and a number that is no processor here.
pub fn parse(text: &str) -> Result<Vec<u32>, Refusal> {
    let wrong = || Refusal(format!("{text}: not a list of processors; use a form like 0-3,6"));
    let number =
        |word: &str| word.parse::<u32>().ok().filter(|number| (*number as usize) < CpuSet::MAX_CPU);
    let mut numbers = Vec::new();
    for word in text.split(',') {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        if first > last {
            return Err(wrong());
        }
        numbers
            .extend((first..=last).filter(|number| !numbers.contains(number)).collect::<Vec<_>>());
    }
    let allowed = allowed().map_err(|error| Refusal(format!("processors: {error}")))?;
    if let Some(number) = numbers.iter().find(|number| !allowed.contains(number)) {
        let there = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let what = format!("no processor {number} for this process; use some of {there}");
        return Err(Refusal(what));
    }
    Ok(numbers)
}

/// Returns the processors that this process may run on.
///
/// # Errors
/// The message of the system.
pub fn allowed() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|number| set.is_set(*number))
        .map(|number| number as u32)
        .collect())
}

/// Pins this thread to these processors; an empty list allows all.
pub fn pin(numbers: &[u32]) -> io::Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    numbers.iter().for_each(|number| set.set(*number as usize));
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_processors_that_are_there() {
        let there = allowed().unwrap();
        let (first, last) = (there[0], there[there.len() - 1]);
        assert_eq!(parse(&first.to_string()).unwrap(), [first]);
        assert_eq!(
            parse(&format!("{last},{first},{last}")).unwrap().len(),
            if first == last { 1 } else { 2 }
        );
        for wrong in ["", "a", "1-", "3-1", "99999"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("not a list"), "{wrong}");
        }
        let refused = parse("1023").unwrap_err().to_string();
        assert!(refused.contains("no processor 1023") || there.contains(&1023), "{refused}");
    }

    #[test]
    fn a_pinned_thread_and_those_it_starts_are_there() {
        let last = *allowed().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || {
            pin(&[last]).unwrap();
            std::thread::spawn(|| allowed().unwrap()).join().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
    }
}

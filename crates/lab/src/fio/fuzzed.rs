//! Job files, made from the input of a fuzzer. Compiled for the fuzzer (`fuzz/`) and for the test of
//! its corpus.

use std::path::Path;

use super::{Leniency, parse_with};

/// Reads a text as a job file.
///
/// # Panics
/// If a file that is read strictly is read in another way leniently.
pub fn text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let environment = |name: &str| (name == "A").then(|| "1m".to_owned());
    let parse = |leniency| {
        parse_with(
            &text,
            Path::new("no/such/job.fio"),
            leniency,
            Some(Path::new("/d")),
            &environment,
        )
    };
    let lenient = parse(Leniency::Lenient);
    match parse(Leniency::Strict) {
        Ok(jobs) => assert_eq!(Ok(jobs), lenient),
        Err(error) => drop(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_job_files_of_the_fuzzer() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/fio");
        for input in std::fs::read_dir(corpus).unwrap() {
            let input = input.unwrap().path();
            println!("{}", input.display());
            text(&std::fs::read(input).unwrap());
        }
    }
}

//! Bytes from outside of the process, made from the input of a fuzzer: lines of the control socket,
//! and messages of the keeper. Compiled for the fuzzer (`fuzz/`) and for the test of its corpus.

use crate::control::line::{Input, Line, Request};
use crate::keeper::message::Message;
use crate::{ErrorKind, Options};

/// Sends bytes to a control socket in pieces, and reads them as answers.
///
/// # Panics
/// If a line depends on the pieces, or changes its meaning on its way.
pub fn control(data: &[u8]) {
    let (cut, data) = data.split_first().unwrap_or((&1, &[]));
    let lines = |cut: usize| {
        let (mut input, mut lines) = (Input::default(), Vec::new());
        for piece in data.chunks(cut) {
            input.push(piece);
            while let Some(line) = input.next() {
                let Ok(line) = line else { return lines };
                lines.push(line);
            }
        }
        lines
    };
    let whole = lines(usize::MAX);
    assert_eq!(lines(usize::from(*cut).max(1)), whole, "lines of {cut} bytes a read");
    for line in &whole {
        match Request::parse(line) {
            Ok(request) => {
                let sent = request.line().expect("a request that arrived can be sent");
                assert_eq!(Request::parse(&sent.as_bytes()[..sent.len() - 1]).unwrap(), request);
                if let Request::Set { name, value } = &request {
                    set(name, value);
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert_eq!(Line::Error(error).to_string().matches('\n').count(), 1);
            }
        }
        if let Some(answer) = str::from_utf8(line).ok().and_then(Line::parse) {
            let sent = answer.to_string();
            let again = Line::parse(sent.trim_end_matches('\n')).expect("an answer can be sent");
            assert_eq!(again.to_string(), sent);
        }
    }
}

/// Sets an option by its name. Its value can be set again.
fn set(name: &str, value: &str) {
    let mut options = Options::default();
    match options.set(name, value) {
        Ok(()) => {
            let knob = options.knobs().into_iter().find(|knob| knob.name == name);
            let value = knob.expect("a knob that was set is listed").value;
            let mut again = Options::default();
            again.set(name, &value).expect("a listed value is valid");
            assert_eq!(again.knobs(), options.knobs(), "{name} is {value}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
    }
}

/// Reads bytes as a message between a program and its keeper.
///
/// # Panics
/// If bytes that are a message are not those of this message.
pub fn keeper(data: &[u8]) {
    match Message::decode(data) {
        Ok(message) => assert_eq!(message.encode(), data),
        Err(malformed) => drop(malformed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Runs all kept inputs of a target.
    fn replay(target: &str, run: impl Fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        for input in fs::read_dir(corpus).unwrap() {
            let input = input.unwrap().path();
            println!("{}", input.display());
            run(&fs::read(input).unwrap());
        }
    }

    #[test]
    fn kept_lines_of_the_fuzzer() {
        replay("control", control);
    }

    #[test]
    fn kept_messages_of_the_fuzzer() {
        replay("keeper", keeper);
    }
}

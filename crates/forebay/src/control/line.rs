//! Protocol of the control socket. A request is one line of words. Its answer is one or more lines,
//! each with its type as the first word; the last one is `ok` or `error`. The documentation of
//! [`Engine::serve_control`](crate::Engine::serve_control) describes it in full.

use std::fmt;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::knobs::{self, Change, Knob};
use crate::core::limits::CONTROL_LINE_BYTES;

/// Request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Value of one knob, or all knobs with their choices.
    Get(Option<String>),
    /// Change of a knob.
    Set { name: String, value: String },
    /// One counter of the engine, or all counters.
    Stats(Option<String>),
}

impl Request {
    /// Parses a line without its newline.
    ///
    /// # Errors
    /// `InvalidInput` if the line is not a request; the message lists the valid requests.
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        let line = str::from_utf8(line).map_err(|_| bad_request("it is not text"))?;
        if line.contains(|letter: char| letter.is_control() && letter != '\t' && letter != '\r') {
            return Err(bad_request("it is not text"));
        }
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let own = |word: &str| word.to_owned();
        match words[..] {
            ["get"] => Ok(Self::Get(None)),
            ["get", name] => Ok(Self::Get(Some(own(name)))),
            ["set", name, value] => Ok(Self::Set { name: own(name), value: own(value) }),
            ["stats"] => Ok(Self::Stats(None)),
            ["stats", name] => Ok(Self::Stats(Some(own(name)))),
            [] => Err(bad_request("it is empty")),
            ["get" | "set" | "stats", ..] => Err(bad_request("wrong number of words")),
            [verb, ..] => Err(bad_request(&format!("unknown command `{verb}`"))),
        }
    }

    /// Returns the request as a line, with its newline.
    ///
    /// # Errors
    /// `InvalidInput` if a name or value is not one word, or the line would be too long.
    pub(crate) fn line(&self) -> Result<String> {
        let line = match self {
            Self::Get(None) => "get\n".to_owned(),
            Self::Get(Some(name)) => format!("get {name}\n"),
            Self::Set { name, value } => format!("set {name} {value}\n"),
            Self::Stats(None) => "stats\n".to_owned(),
            Self::Stats(Some(name)) => format!("stats {name}\n"),
        };
        if line.len() > CONTROL_LINE_BYTES {
            return Err(too_long());
        }
        if Self::parse(&line.as_bytes()[..line.len() - 1]).ok().as_ref() != Some(self) {
            let what = format!("`{}` cannot be sent", line.trim_end().escape_debug());
            return Err(Error::new(ErrorKind::InvalidInput, what)
                .remedy("a name and a value are one word each"));
        }
        Ok(line)
    }
}

fn bad_request(why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("bad request: {why}"))
        .remedy("`get`, `get NAME`, `set NAME VALUE`, `stats`, `stats NAME`")
}

fn too_long() -> Error {
    let what = format!("bad request: a line of more than {CONTROL_LINE_BYTES} bytes");
    Error::new(ErrorKind::InvalidInput, what)
}

/// One line of an answer. Its text includes the newline.
#[derive(Debug)]
pub(crate) enum Line {
    /// Value of one knob or counter.
    Value(String),
    /// A knob.
    Knob(Knob),
    /// A counter of the engine.
    Number(String, u64),
    /// Success; the last line.
    Done,
    /// Failure with its reason; the last line.
    Error(Error),
}

/// Kinds of failure in the protocol, and their words.
const KINDS: [(ErrorKind, &str); 4] = [
    (ErrorKind::InvalidInput, "invalid"),
    (ErrorKind::NotPermitted, "refused"),
    (ErrorKind::Shutdown, "shutdown"),
    (ErrorKind::Io, "failed"),
];

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => writeln!(formatter, "value {value}"),
            Self::Knob(Knob { name, value, choices, change, .. }) => {
                writeln!(formatter, "knob {name} {value} {change} {choices}")
            }
            Self::Number(name, number) => writeln!(formatter, "number {name} {number}"),
            Self::Done => formatter.write_str("ok\n"),
            Self::Error(error) => {
                let kind = KINDS.iter().find(|(kind, _)| *kind == error.kind());
                let kind = kind.map_or("failed", |(_, word)| word);
                let what = error.to_string().replace(char::is_control, " ");
                writeln!(formatter, "error {kind} {what}")
            }
        }
    }
}

impl Line {
    /// Parses a line without its newline. Returns `None` if the line is invalid.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "value" => Some(Self::Value(rest.to_owned())),
            "knob" => {
                let mut words = rest.splitn(4, ' ');
                let (name, value) = (words.next()?, words.next()?.to_owned());
                let change = [Change::Live, Change::Fixed];
                let word = words.next()?;
                let change = change.into_iter().find(|change| change.to_string() == word)?;
                Some(Self::Knob(knobs::described(name, value, words.next()?, change)))
            }
            "number" => {
                let (name, number) = rest.split_once(' ')?;
                Some(Self::Number(name.to_owned(), number.parse().ok()?))
            }
            "ok" => Some(Self::Done),
            "error" => {
                let (word, what) = rest.split_once(' ')?;
                let (kind, _) = KINDS.iter().find(|(_, known)| *known == word)?;
                Some(Self::Error(Error::new(*kind, what)))
            }
            _ => None,
        }
    }
}

/// Bytes received from a client, cut into lines. Holds at most one line and one read.
#[derive(Debug, Default)]
pub(crate) struct Input(Vec<u8>);

impl Input {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Removes and returns the next complete line, without its newline.
    pub(crate) fn next(&mut self) -> Option<Result<Vec<u8>>> {
        let looked = &self.0[..self.0.len().min(CONTROL_LINE_BYTES)];
        match looked.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let mut line: Vec<u8> = self.0.drain(..=end).collect();
                line.pop();
                Some(Ok(line))
            }
            None if looked.len() == CONTROL_LINE_BYTES => Some(Err(too_long())),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = String> {
        "[!-~]{1,60}"
    }

    fn request() -> impl Strategy<Value = Request> {
        prop_oneof![
            proptest::option::of(word()).prop_map(Request::Get),
            (word(), word()).prop_map(|(name, value)| Request::Set { name, value }),
            proptest::option::of(word()).prop_map(Request::Stats),
        ]
    }

    /// Returns all lines of an input, up to the first that is too long.
    fn lines(input: &mut Input) -> Vec<std::result::Result<Vec<u8>, String>> {
        let mut lines = Vec::new();
        while let Some(line) = input.next() {
            lines.push(line.map_err(|error| error.to_string()));
            if lines.last().is_some_and(std::result::Result::is_err) {
                break;
            }
        }
        lines
    }

    proptest! {
        #[test]
        fn requests_arrive_as_they_were_sent(
            requests in proptest::collection::vec(request(), 0..8),
            cut in 1usize..64,
        ) {
            let said: String = requests.iter().map(|request| request.line().unwrap()).collect();
            let (mut input, mut heard) = (Input::default(), Vec::new());
            for part in said.as_bytes().chunks(cut) {
                input.push(part);
                while let Some(line) = input.next() {
                    heard.push(Request::parse(&line.unwrap()).unwrap());
                }
            }
            prop_assert_eq!(heard, requests);
            prop_assert!(input.0.is_empty());
        }

        #[test]
        fn lines_do_not_depend_on_the_sizes_of_reads(
            bytes in proptest::collection::vec(
                prop_oneof![4 => any::<u8>(), 1 => Just(b'\n'), 1 => Just(b' ')],
                0..2000,
            ),
            cut in 1usize..600,
        ) {
            let mut whole = Input::default();
            whole.push(&bytes);
            let expected = lines(&mut whole);
            let (mut input, mut found) = (Input::default(), Vec::new());
            for part in bytes.chunks(cut) {
                input.push(part);
                found.extend(lines(&mut input));
                prop_assert!(
                    input.0.len() < CONTROL_LINE_BYTES
                        || found.last().is_some_and(std::result::Result::is_err)
                );
                if found.last().is_some_and(std::result::Result::is_err) {
                    break;
                }
            }
            for line in found.iter().flatten() {
                prop_assert!(line.len() < CONTROL_LINE_BYTES);
                // Any line is a request, or is refused.
                if let Err(error) = Request::parse(line) {
                    prop_assert_eq!(error.kind(), ErrorKind::InvalidInput);
                    prop_assert_eq!(Line::Error(error).to_string().matches('\n').count(), 1);
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_word_is_parsed_as_two(name in ".{0,40}", value in ".{0,300}") {
            let request = Request::Set { name, value };
            match request.line() {
                Ok(line) => {
                    prop_assert!(
                        line.len() <= CONTROL_LINE_BYTES && line.matches('\n').count() == 1
                    );
                    prop_assert_eq!(
                        Request::parse(&line.as_bytes()[..line.len() - 1]).unwrap(),
                        request
                    );
                }
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::InvalidInput),
            }
        }

        #[test]
        fn an_invalid_answer_causes_no_panic(line in ".{0,200}") {
            let _ = Line::parse(&line);
        }

        #[test]
        fn numbers_and_knobs_arrive(
            name in "[a-z_]{1,20}",
            value in "[!-~]{1,20}",
            choices in "[ -~]{1,60}",
            number: u64,
        ) {
            let said = Line::Number(name.clone(), number).to_string();
            let heard = Line::parse(said.trim_end_matches('\n'));
            let is_same = matches!(
                &heard,
                Some(Line::Number(heard, same)) if *heard == name && *same == number
            );
            prop_assert!(is_same);
            let knob = knobs::described(&name, value, &choices, Change::Fixed);
            let said = Line::Knob(knob.clone()).to_string();
            let heard = Line::parse(said.trim_end_matches('\n'));
            let is_same = matches!(&heard, Some(Line::Knob(heard)) if *heard == knob);
            prop_assert!(is_same);
        }
    }

    #[test]
    fn an_invalid_request_is_answered_with_the_valid_ones() {
        for line in [
            &b""[..],
            b" ",
            b"put a b",
            b"get a b",
            b"set a",
            b"stats a b",
            b"set a b c",
            b"GET",
            b"\xff",
            b"get \0",
        ] {
            let error = Request::parse(line).unwrap_err().to_string();
            assert!(
                error.starts_with("bad request: ") && error.contains("`set NAME VALUE`"),
                "{error}"
            );
        }
        assert_eq!(Request::parse(b"  get \t plug\r").unwrap(), Request::Get(Some("plug".into())));
    }

    #[test]
    fn a_failure_keeps_its_kind() {
        for (kind, _) in KINDS {
            let said = Line::Error(Error::new(kind, "what\nand why")).to_string();
            let Some(Line::Error(heard)) = Line::parse(said.trim_end_matches('\n')) else {
                panic!("{said}")
            };
            assert_eq!((heard.kind(), heard.to_string()), (kind, "what and why".to_owned()));
        }
        assert!(
            Line::Error(Error::new(ErrorKind::Busy, "x")).to_string().starts_with("error failed ")
        );
    }
}

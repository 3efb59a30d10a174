//! The other end of a control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::line::{Line, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::knobs::Knob;
use crate::limits::{CONTROL_ANSWER_BYTES, CONTROL_PATIENCE};

/// A connection to an engine of another process that serves a control socket
/// ([`Engine::serve_control`](crate::Engine::serve_control)). Its calls block, for ten seconds at
/// most.
///
/// # Errors
/// All calls fail with what the engine answers: `InvalidInput` for a name or value that it does not
/// have, `NotPermitted` to another user, `Shutdown` while it ends; and with `Io` where nothing
/// answers.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// `Open` with the system's reason.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(CONTROL_PATIENCE))?;
            stream.set_write_timeout(Some(CONTROL_PATIENCE))?;
            Ok(stream)
        });
        let stream = connected.map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => "an engine serves it only while it runs",
                io::ErrorKind::ConnectionRefused => "no engine serves it any more",
                io::ErrorKind::PermissionDenied => "only the engine's own user may, and root",
                _ => "give the path of an engine's control socket",
            };
            Error::new(ErrorKind::Open, "could not connect")
                .at_path(path)
                .because(error)
                .remedy(remedy)
        })?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// What a knob stands at.
    ///
    /// # Errors
    /// See [`Control`].
    pub fn get(&mut self, name: &str) -> Result<String> {
        let lines = self.ask(&Request::Get(Some(name.to_owned())))?;
        self.one(lines)
    }

    /// Changes a knob, as [`Engine::set`](crate::Engine::set) does.
    ///
    /// # Errors
    /// See [`Control`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.ask(&Request::Set { name: name.to_owned(), value: value.to_owned() }).map(drop)
    }

    /// Every knob, as [`Engine::knobs`](crate::Engine::knobs) lists them.
    ///
    /// # Errors
    /// See [`Control`].
    pub fn knobs(&mut self) -> Result<Vec<Knob>> {
        let lines = self.ask(&Request::Get(None))?;
        let knob = |line| match line {
            Line::Knob(knob) => Ok(knob),
            _ => Err(self.no_answer(None)),
        };
        lines.into_iter().map(knob).collect()
    }

    /// One of the engine's numbers, by the name of the field of [`Stats`](crate::Stats).
    ///
    /// # Errors
    /// See [`Control`].
    pub fn number(&mut self, name: &str) -> Result<u64> {
        let lines = self.ask(&Request::Stats(Some(name.to_owned())))?;
        self.one(lines)?.parse().map_err(|_| self.no_answer(None))
    }

    /// All of them, with their names.
    ///
    /// # Errors
    /// See [`Control`].
    pub fn stats(&mut self) -> Result<Vec<(String, u64)>> {
        let lines = self.ask(&Request::Stats(None))?;
        let number = |line| match line {
            Line::Number(name, number) => Ok((name, number)),
            _ => Err(self.no_answer(None)),
        };
        lines.into_iter().map(number).collect()
    }

    /// The lines of an answer, without the last one.
    fn ask(&mut self, request: &Request) -> Result<Vec<Line>> {
        let line = request.line()?;
        // Who is refused is told why before anything is asked: that can be read even where this
        // cannot be written.
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let mut lines = Vec::new();
        let mut left = CONTROL_ANSWER_BYTES;
        loop {
            let mut line = String::new();
            let read = self.stream.by_ref().take(left).read_line(&mut line);
            let read = read.map_err(|error| self.no_answer(Some(error)))?;
            left -= read as u64;
            let Some(line) = line.strip_suffix('\n') else {
                // It has gone, or says more than there is to say.
                return Err(self.no_answer(sent.err()));
            };
            match Line::parse(line) {
                Some(Line::Done) => return Ok(lines),
                Some(Line::Error(error)) => return Err(error.at_path(&self.path)),
                Some(line) => lines.push(line),
                None => return Err(self.no_answer(None)),
            }
        }
    }

    fn one(&self, lines: Vec<Line>) -> Result<String> {
        match <[Line; 1]>::try_from(lines) {
            Ok([Line::Value(value)]) => Ok(value),
            _ => Err(self.no_answer(None)),
        }
    }

    fn no_answer(&self, cause: Option<io::Error>) -> Error {
        let error = Error::new(ErrorKind::Io, "no answer of an engine").at_path(&self.path);
        match cause {
            Some(cause) => error.because(cause),
            None => error.remedy("is it the control socket of one that runs?"),
        }
    }
}

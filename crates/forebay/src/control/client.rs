//! Client of a control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::line::{Line, Request};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::knobs::Knob;
use crate::core::limits::{CONTROL_ANSWER_BYTES, CONTROL_PATIENCE};

/// Connection to the control socket of an engine in another process
/// ([`Engine::serve_control`](crate::Engine::serve_control)).
///
/// Each call blocks until the engine answers, for ten seconds at most.
///
/// ```
/// use forebay::{Control, Engine};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("socket");
/// let engine = Engine::new()?;
/// engine.serve_control(&path)?;
///
/// let mut control = Control::connect(&path)?;        // usually in another process
/// control.set("dirty_age", "300ms")?;
/// assert_eq!(control.get("dirty_age")?, "300ms");
/// assert_eq!(control.number("dirty_bytes")?, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - `InvalidInput` for a name or value that the engine does not accept.
/// - `NotPermitted` if the engine belongs to another user.
/// - `Shutdown` while the engine shuts down.
/// - `Io` if the engine does not answer.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, or for any other reason of the system `Open`.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(CONTROL_PATIENCE))?;
            stream.set_write_timeout(Some(CONTROL_PATIENCE))?;
            Ok(stream)
        });
        let stream = connected.map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => {
                    "the engine must be running and serve a control socket there"
                }
                io::ErrorKind::ConnectionRefused => "the engine that served it has ended",
                io::ErrorKind::PermissionDenied => "connect as the user of the engine, or as root",
                _ => "pass the path of the control socket of an engine",
            };
            Error::new(ErrorKind::at_open(&error), "could not connect to the control socket")
                .at_path(path)
                .because(error)
                .remedy(remedy)
        })?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Returns the value of a knob as text.
    ///
    /// # Errors
    /// See [`Control`].
    pub fn get(&mut self, name: &str) -> Result<String> {
        let lines = self.ask(&Request::Get(Some(name.to_owned())))?;
        self.one(lines)
    }

    /// Changes a knob, as [`Engine::set_options`](crate::Engine::set_options).
    ///
    /// # Errors
    /// See [`Control`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.ask(&Request::Set { name: name.to_owned(), value: value.to_owned() }).map(drop)
    }

    /// Returns every knob, as [`Options::knobs`](crate::Options::knobs).
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

    /// Returns one number of the engine, by the name of its field in [`Stats`](crate::Stats).
    ///
    /// # Errors
    /// See [`Control`].
    pub fn number(&mut self, name: &str) -> Result<u64> {
        let lines = self.ask(&Request::Stats(Some(name.to_owned())))?;
        self.one(lines)?.parse().map_err(|_| self.no_answer(None))
    }

    /// Returns all numbers of the engine, with the names of their fields in
    /// [`Stats`](crate::Stats).
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

    /// Returns the lines of an answer, without the last one.
    fn ask(&mut self, request: &Request) -> Result<Vec<Line>> {
        let line = request.line()?;
        // A refused client gets the reason before it sends anything, so the answer can be readable
        // even if the write failed.
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let mut lines = Vec::new();
        let mut left = CONTROL_ANSWER_BYTES;
        loop {
            let mut line = String::new();
            let read = self.stream.by_ref().take(left).read_line(&mut line);
            let read = read.map_err(|error| self.no_answer(Some(error)))?;
            left -= read as u64;
            let Some(line) = line.strip_suffix('\n') else {
                // The engine closed the connection, or the answer is longer than any valid answer.
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
        let error = Error::new(ErrorKind::Io, "the engine did not answer").at_path(&self.path);
        match cause {
            Some(cause) => error.because(cause),
            None => error.remedy("check that this is the control socket of a running engine"),
        }
    }
}

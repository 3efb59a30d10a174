//! Adoption of the data and files that a keeper holds of a dead program: the protocol with the
//! keeper, and the checks of its content.
//!
//! ```text
//! new program --- adopt ------------------> keeper    (has written all it could, and waits)
//!             <-- arena, files, end -------------
//!             ... maps and checks them ...
//!             ... starts its own keeper, on trial, and gives it the files ...
//!             --- room ----------------------> keeper    (leaves its socket to the next one)
//!             ... confirms its own keeper, which listens now ...
//!             --- taken --------------------->         ends
//! ```
//!
//! Until the last message the keeper has everything, and each step here can be repeated. If the new
//! program dies or gives up in between, the next one can adopt. Nothing received is trusted. The
//! memory is mapped only if its description of itself is valid, and a file counts only if the arena
//! refers to it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use forebay_uring::layout::LAYOUT_VERSION;
use forebay_uring::passing::{self, Received};
use forebay_uring::{Arena, Channel, OpenFile};

use super::message::Message;
use super::process::path_of;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{KEEPER_ANSWER, KEEPER_FINISHING, KEEPER_FIRST_WORD};
use crate::core::recovery::inherited::{self, HandedFile, whole_files};

/// Content handed over by a keeper. The keeper still has it until it is released.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) channel: Channel,
    pub(crate) arena: Arc<Arena>,
    /// Process id of the dead program.
    pub(crate) process: u32,
    pub(crate) files: Vec<HandedFile>,
}

impl Handed {
    /// Asks the keeper at a socket for its content. Blocks while the keeper is still writing.
    pub(crate) fn ask(socket: &Path) -> Result<Self> {
        let channel = connect(socket).map_err(|error| error.at_path(socket))?;
        Self::receive(channel).map_err(|error| error.at_path(socket))
    }

    fn receive(channel: Channel) -> Result<Self> {
        let sent = channel.send(&Message::Adopt { layout: LAYOUT_VERSION }.encode(), &[]);
        // A keeper that does not read may have sent the reason.
        let (first, descriptors) = match channel.receive(Some(KEEPER_FINISHING)) {
            Ok(Received::Message(message)) => decode(message)?,
            Ok(Received::Nothing) => return Err(failed("the keeper does not answer")),
            Ok(Received::End) => {
                let gone =
                    failed("the keeper is gone, or another program has adopted its files already");
                return Err(sent
                    .err()
                    .map_or(gone.remedy(OPEN_ANEW), |error| failed("no keeper").because(error)));
            }
            Err(error) => return Err(failed("could not receive from the keeper").because(error)),
        };
        let (process, count) = match first {
            Message::Handed { process, files } => (process, files),
            Message::Refused { reason } => {
                return Err(failed(&format!("the keeper refused the adoption: {reason}")));
            }
            _ => return Err(failed("the process at the socket sent an unexpected answer")),
        };
        let [memfd] = one(descriptors)?;
        let arena = Arena::of_memfd(memfd).map_err(|error| {
            failed(&format!("could not adopt the memory of the dead program: {error}"))
        })?;
        let mut files = BTreeMap::new();
        for _ in 0..count {
            let (number, generation, descriptor) = next_file(&channel)?;
            let found = path_of(&descriptor);
            let file = OpenFile::of_descriptor(descriptor);
            files.insert(number, inherited::Received { generation, found, file });
        }
        match next(&channel)? {
            (Message::End, _) => {}
            _ => return Err(failed("the keeper sent more files than it announced")),
        }
        let arena = Arc::new(arena);
        let files = whole_files(&arena, files)?;
        Ok(Self { channel, arena, process, files })
    }

    /// Lets a new keeper listen at the path of the old one.
    ///
    /// # Errors
    /// `Keeper` if the old keeper does not answer, or has ended the adoption.
    pub(crate) fn make_room(channel: &Channel) -> Result<()> {
        // A keeper that has ended needs no message.
        let asked = channel
            .send(&Message::Room.encode(), &[])
            .and_then(|()| channel.receive(Some(KEEPER_ANSWER)));
        match asked {
            Ok(Received::Nothing) => Err(failed("the keeper does not answer")),
            Ok(Received::Message(message)) => unless_refused(message),
            Ok(Received::End) | Err(_) => Ok(()),
        }
    }

    /// Confirms that everything is taken over, before any of it is used. Returns when the keeper
    /// has released it or has ended, after a second at most.
    ///
    /// # Errors
    /// `Keeper` if the keeper has ended the adoption because it took too long: other programs may
    /// have the files.
    pub(crate) fn report_taken(channel: &Channel) -> Result<()> {
        // A keeper that has ended cannot give anything to other programs. Its last message can
        // still be read.
        let sent = channel.send(&Message::Taken.encode(), &[]);
        match channel.receive(Some(KEEPER_ANSWER)) {
            Ok(Received::Message(message)) => unless_refused(message),
            Ok(Received::Nothing) if sent.is_ok() => {
                tracing::warn!("the keeper of the dead program does not end");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Remedy if there is nothing to adopt.
const OPEN_ANEW: &str = "accepted data is already written: build a new engine and open the files";

/// Checks the answer of the old keeper, which may refuse because the adoption took too long.
fn unless_refused(message: passing::Message) -> Result<()> {
    match decode(message)?.0 {
        Message::Refused { reason } => {
            Err(failed(&format!("the keeper refuses: {reason}")).remedy(OPEN_ANEW))
        }
        _ => Ok(()),
    }
}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Keeper, what)
}

fn connect(socket: &Path) -> Result<Channel> {
    let channel = Channel::connect(socket).map_err(|error| {
        let is_gone =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        let nobody = failed("no keeper listens at the socket").because(error);
        if is_gone { nobody.remedy(OPEN_ANEW) } else { nobody }
    })?;
    let peer = channel.peer().map_err(|error| {
        failed("could not determine the user of the process at the socket").because(error)
    })?;
    if !peer.is_trusted() {
        return Err(failed(&format!(
            "the keeper at the socket belongs to another user ({})",
            peer.user
        )));
    }
    Ok(channel)
}

fn decode(message: passing::Message) -> Result<(Message, Vec<OwnedFd>)> {
    let decoded = Message::decode(&message.bytes).map_err(|malformed| {
        failed(&format!("invalid message from the process at the socket: {malformed}"))
    })?;
    if message.lost {
        let error = failed("this process has reached its limit of open files");
        return Err(error.remedy("raise the limit of open files (ulimit -n)"));
    }
    Ok((decoded, message.descriptors))
}

/// Receives the next announced message, which must come at once.
fn next(channel: &Channel) -> Result<(Message, Vec<OwnedFd>)> {
    match channel.receive(Some(KEEPER_FIRST_WORD)) {
        Ok(Received::Message(message)) => decode(message),
        Ok(_) => Err(failed("the keeper stopped sending its files")),
        Err(error) => Err(failed("could not receive from the keeper").because(error)),
    }
}

fn next_file(channel: &Channel) -> Result<(u32, u16, OwnedFd)> {
    match next(channel)? {
        (Message::File { number, generation }, descriptors) => {
            let [file] = one(descriptors)?;
            Ok((number, generation, file))
        }
        _ => Err(failed("the keeper sent fewer files than it announced")),
    }
}

fn one(descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; 1]> {
    let wrong = |got: Vec<OwnedFd>| {
        failed(&format!("the keeper sent {} descriptors instead of one", got.len()))
    };
    descriptors.try_into().map_err(wrong)
}

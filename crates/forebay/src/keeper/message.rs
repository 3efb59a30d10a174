//! Messages between a program and its keeper, and between an adopting program and a keeper.
//!
//! A message is one packet. It has a byte for its kind, then its fields in order, little endian.
//! Descriptors are sent beside it; each kind requires a fixed number. Text and paths are bytes
//! after their length (16 bits). No bytes may be left over. Decoding any bytes returns a message or
//! the reason why they are not one.
//!
//! The first message of a connection (`Hello`, `Adopt`) begins with the sign and the version, in
//! every version of the protocol. So another version can be distinguished from invalid bytes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::passing::MESSAGE_BYTES;

use crate::core::limits::KEEPER_PATH_BYTES;

/// Version of this protocol.
pub(crate) const VERSION: u32 = 3;

/// Maximum length of a reason in bytes; the rest is cut off.
const REASON_BYTES: usize = 1000;

const _: () =
    assert!(3 * KEEPER_PATH_BYTES + 64 <= MESSAGE_BYTES && REASON_BYTES + 64 <= MESSAGE_BYTES);

/// Start of the first message of a connection.
const SIGN: [u8; 4] = *b"FBK\x01";

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// First message of the owner. With it: the memory of the arena, the descriptor that reports
    /// the end of the rings, and the intent log if there is one.
    Hello(Hello),
    /// Keep this file. With it: the file.
    Add {
        /// Number of the file in the headers of frames.
        number: u32,
        /// Generation in the record of the file.
        generation: u16,
    },
    /// Close this file.
    Remove {
        /// As in `Add`.
        number: u32,
        /// As in `Add`.
        generation: u16,
    },
    /// All is written; the keeper ends.
    Goodbye,
    /// The keeper's answer to `Hello`.
    Welcome {
        /// Process id of the keeper.
        process: u32,
    },
    /// The keeper refuses.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The keeper holds the file.
    Added {
        /// Number of the file.
        number: u32,
    },
    /// The keeper cannot hold the file.
    NotAdded {
        /// Number of the file.
        number: u32,
        /// The reason.
        reason: String,
    },
    /// The keeper has closed the file.
    Removed {
        /// Number of the file.
        number: u32,
    },
    /// Another program asks for the content of a dead program.
    Adopt {
        /// Version of the layout of the arena.
        layout: u64,
    },
    /// The keeper hands it over. With it: the memory of the arena.
    Handed {
        /// Process id of the dead program.
        process: u32,
        /// Number of `File` messages that follow, before `End`.
        files: u32,
    },
    /// One of the files. With it: the file.
    File {
        /// Number of the file in the headers of frames.
        number: u32,
        /// Generation in the record of the file.
        generation: u16,
    },
    /// End of the files.
    End,
    /// The adopting program has everything, and the keeper may end. To a keeper on trial: the trial
    /// ends. As its answer: it listens.
    Taken,
    /// The keeper of the adopting program is about to listen at the path of this one, which stops
    /// listening. Also the answer.
    Room,
}

/// Content of the first message of an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// Version of the layout of the arena.
    pub(crate) layout: u64,
    /// Process id of the owner.
    pub(crate) process: u32,
    /// Time that the keeper retries failed writes.
    pub(crate) patience: Duration,
    /// Time that the keeper waits for an adopting program.
    pub(crate) linger: Duration,
    /// Whether another keeper still has the content. Until `Taken`, this keeper writes nothing and
    /// does not listen.
    pub(crate) on_trial: bool,
    /// Whether the owner has an intent log.
    pub(crate) has_log: bool,
    /// Socket where the keeper waits for adopting programs.
    pub(crate) socket: Option<PathBuf>,
    /// Directory for data that could not be written.
    pub(crate) save_to: Option<PathBuf>,
    /// Log file.
    pub(crate) log: Option<PathBuf>,
}

/// Reason why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Malformed {
    /// The other end has another version.
    Version(u32),
    /// The packet is empty.
    Empty,
    /// The kind is unknown.
    Kind(u8),
    /// The first message of a connection lacks the sign.
    Sign,
    /// Bytes are missing.
    Short,
    /// Bytes are left over.
    Long,
    /// A text is not UTF-8, or a path is not absolute.
    Text,
    /// A flag is neither 0 nor 1.
    Flag,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(other) => {
                write!(
                    formatter,
                    "version {other} of the keeper protocol, and this is version {VERSION}"
                )
            }
            Self::Empty => formatter.write_str("an empty message"),
            Self::Kind(kind) => write!(formatter, "a message of no known kind ({kind})"),
            Self::Sign => formatter.write_str("a message without the sign of the keeper protocol"),
            Self::Short => formatter.write_str("a message that is cut off"),
            Self::Long => formatter.write_str("a message with bytes left over"),
            Self::Text => formatter.write_str("a message with an invalid text or path"),
            Self::Flag => formatter.write_str("a message with an invalid flag"),
        }
    }
}

impl Message {
    /// Returns the message as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Writer(vec![self.kind()]);
        match self {
            Self::Hello(hello) => {
                bytes.begin();
                bytes.put(&hello.layout.to_le_bytes());
                bytes.put(&hello.process.to_le_bytes());
                bytes.duration(hello.patience);
                bytes.duration(hello.linger);
                bytes.put(&[u8::from(hello.on_trial), u8::from(hello.has_log)]);
                for path in [&hello.socket, &hello.save_to, &hello.log] {
                    bytes.path(path.as_deref());
                }
            }
            Self::Add { number, generation }
            | Self::Remove { number, generation }
            | Self::File { number, generation } => {
                bytes.put(&number.to_le_bytes());
                bytes.put(&generation.to_le_bytes());
            }
            Self::Welcome { process } => bytes.put(&process.to_le_bytes()),
            Self::Refused { reason } => bytes.text(reason),
            Self::Added { number } | Self::Removed { number } => bytes.put(&number.to_le_bytes()),
            Self::NotAdded { number, reason } => {
                bytes.put(&number.to_le_bytes());
                bytes.text(reason);
            }
            Self::Adopt { layout } => {
                bytes.begin();
                bytes.put(&layout.to_le_bytes());
            }
            Self::Handed { process, files } => {
                bytes.put(&process.to_le_bytes());
                bytes.put(&files.to_le_bytes());
            }
            Self::Goodbye | Self::End | Self::Taken | Self::Room => {}
        }
        bytes.0
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Add { .. } => 2,
            Self::Remove { .. } => 3,
            Self::Goodbye => 4,
            Self::Welcome { .. } => 16,
            Self::Refused { .. } => 17,
            Self::Added { .. } => 18,
            Self::NotAdded { .. } => 19,
            Self::Removed { .. } => 20,
            Self::Adopt { .. } => 32,
            Self::Handed { .. } => 33,
            Self::File { .. } => 34,
            Self::End => 35,
            Self::Taken => 36,
            Self::Room => 37,
        }
    }

    /// Parses a message. The bytes are not trusted.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, rest) = bytes.split_first().ok_or(Malformed::Empty)?;
        let mut fields = Reader(rest);
        let message = match kind {
            1 => Self::Hello(fields.hello()?),
            2 => Self::Add { number: fields.u32()?, generation: fields.u16()? },
            3 => Self::Remove { number: fields.u32()?, generation: fields.u16()? },
            4 => Self::Goodbye,
            16 => Self::Welcome { process: fields.u32()? },
            17 => Self::Refused { reason: fields.text()? },
            18 => Self::Added { number: fields.u32()? },
            19 => Self::NotAdded { number: fields.u32()?, reason: fields.text()? },
            20 => Self::Removed { number: fields.u32()? },
            32 => {
                fields.begin()?;
                Self::Adopt { layout: fields.u64()? }
            }
            33 => Self::Handed { process: fields.u32()?, files: fields.u32()? },
            34 => Self::File { number: fields.u32()?, generation: fields.u16()? },
            35 => Self::End,
            36 => Self::Taken,
            37 => Self::Room,
            kind => return Err(Malformed::Kind(*kind)),
        };
        if fields.0.is_empty() { Ok(message) } else { Err(Malformed::Long) }
    }
}

/// Appends fields to a message.
struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn begin(&mut self) {
        self.put(&SIGN);
        self.put(&VERSION.to_le_bytes());
    }

    /// Appends a time in milliseconds.
    fn duration(&mut self, duration: Duration) {
        self.put(&u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
    }

    fn path(&mut self, path: Option<&Path>) {
        self.bytes(path.map_or(b"", |path| path.as_os_str().as_bytes()));
    }

    fn text(&mut self, text: &str) {
        // A reason is one line; a longer text is cut.
        let mut end = text.len().min(REASON_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len())
            .expect("paths of the kernel are shorter, and texts were cut");
        self.put(&length.to_le_bytes());
        self.put(bytes);
    }
}

/// Removes fields from the front of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("N bytes were taken"))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn duration(&mut self) -> Result<Duration, Malformed> {
        Ok(Duration::from_millis(self.u64()?))
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed::Flag),
        }
    }

    fn begin(&mut self) -> Result<(), Malformed> {
        if self.array()? != SIGN {
            return Err(Malformed::Sign);
        }
        match self.u32()? {
            VERSION => Ok(()),
            other => Err(Malformed::Version(other)),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)?;
        Ok(text.to_owned())
    }

    /// An empty path means `None`.
    fn path(&mut self) -> Result<Option<PathBuf>, Malformed> {
        let path = Path::new(OsStr::from_bytes(self.bytes()?));
        match path.as_os_str().as_bytes() {
            [] => Ok(None),
            bytes if bytes.contains(&0) || !path.is_absolute() => Err(Malformed::Text),
            _ => Ok(Some(path.to_owned())),
        }
    }

    fn hello(&mut self) -> Result<Hello, Malformed> {
        self.begin()?;
        Ok(Hello {
            layout: self.u64()?,
            process: self.u32()?,
            patience: self.duration()?,
            linger: self.duration()?,
            on_trial: self.flag()?,
            has_log: self.flag()?,
            socket: self.path()?,
            save_to: self.path()?,
            log: self.path()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Message {
        Message::Hello(Hello {
            layout: 2,
            process: 77,
            patience: Duration::from_secs(60),
            linger: Duration::ZERO,
            on_trial: true,
            has_log: false,
            socket: Some("/run/forebay.keeper".into()),
            save_to: None,
            log: Some("/var/log/\u{fc}".into()),
        })
    }

    fn some() -> Vec<Message> {
        vec![
            hello(),
            Message::Add { number: 7, generation: 1 },
            Message::Remove { number: u32::MAX, generation: u16::MAX },
            Message::Goodbye,
            Message::Welcome { process: 12 },
            Message::Refused { reason: "no".into() },
            Message::Added { number: 7 },
            Message::NotAdded { number: 7, reason: "too many open files".into() },
            Message::Removed { number: 7 },
            Message::Adopt { layout: 2 },
            Message::Handed { process: 77, files: 3 },
            Message::File { number: 7, generation: 1 },
            Message::End,
            Message::Taken,
            Message::Room,
        ]
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for message in some() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn a_cut_or_longer_message_is_refused() {
        for message in some() {
            let mut bytes = message.encode();
            for length in 0..bytes.len() {
                assert!(
                    Message::decode(&bytes[..length]).is_err(),
                    "{length} bytes of {message:?}"
                );
            }
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), Err(Malformed::Long), "{message:?}");
        }
    }

    #[test]
    fn another_version_is_distinguished_from_invalid_bytes() {
        let mut bytes = hello().encode();
        bytes[5] = 9;
        // The rest may have any form.
        bytes.truncate(9);
        assert_eq!(Message::decode(&bytes), Err(Malformed::Version(9)));
        bytes[1] = b'?';
        assert_eq!(Message::decode(&bytes), Err(Malformed::Sign));
        assert_eq!(Message::decode(&[200]), Err(Malformed::Kind(200)));
        assert_eq!(Message::decode(&[]), Err(Malformed::Empty));
    }

    #[test]
    fn a_long_reason_is_cut_between_letters() {
        let message = Message::Refused { reason: "\u{fc}".repeat(70_000) };
        let Ok(Message::Refused { reason }) = Message::decode(&message.encode()) else { panic!() };
        assert_eq!(reason.len(), 1000);
    }

    #[test]
    fn a_relative_path_is_refused() {
        let Message::Hello(hello) = hello() else { panic!() };
        let message = Message::Hello(Hello { save_to: Some("somewhere".into()), ..hello });
        assert_eq!(Message::decode(&message.encode()), Err(Malformed::Text));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_are_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }

        #[test]
        fn a_changed_message_is_a_message_or_is_refused(
            which in 0..15_usize,
            at in 0..64_usize,
            to in any::<u8>(),
        ) {
            let mut bytes = some()[which].encode();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

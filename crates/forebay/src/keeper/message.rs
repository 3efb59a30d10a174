//! What a program and its keeper say to each other, and what a program that adopts says to a
//! keeper.
//!
//! A message is one packet: a byte that says which it is, then its fields in their order, little
//! endian. Descriptors go beside it; how many there have to be is the message's. Text and paths are
//! bytes behind their number (16 bits). Nothing may be left over. Whatever was sent, reading it
//! ends in a message or in a reason why it is none.
//!
//! The first message of a conversation (`Hello`, `Adopt`) begins with the sign and the version in
//! every version there will be, so that another version is told from nonsense.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::passing::MESSAGE_BYTES;

use crate::core::limits::KEEPER_PATH_BYTES;

/// The version of this protocol.
pub(crate) const VERSION: u32 = 2;

/// Bytes of a reason that are told.
const REASON_BYTES: usize = 1000;

const _: () =
    assert!(3 * KEEPER_PATH_BYTES + 64 <= MESSAGE_BYTES && REASON_BYTES + 64 <= MESSAGE_BYTES);

/// What a conversation begins with.
const SIGN: [u8; 4] = *b"FBK\x01";

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// The owner's first word. With it: the arena's memory, and the end that tells when its rings
    /// are gone.
    Hello(Hello),
    /// Keep this file. With it: the file.
    Add {
        /// By which frames name it.
        number: u32,
        /// That of its record.
        generation: u16,
    },
    /// Let go of this file.
    Remove {
        /// As it was added.
        number: u32,
        /// As it was added.
        generation: u16,
    },
    /// All is written: there is nothing to keep.
    Goodbye,
    /// The keeper's answer to `Hello`.
    Welcome {
        /// The keeper.
        process: u32,
    },
    /// It will not.
    Refused {
        /// Why.
        reason: String,
    },
    /// It keeps the file.
    Added {
        /// Which.
        number: u32,
    },
    /// It cannot.
    NotAdded {
        /// Which.
        number: u32,
        /// Why.
        reason: String,
    },
    /// It has let go of the file.
    Removed {
        /// Which.
        number: u32,
    },
    /// Another program asks for what the keeper holds of a dead one.
    Adopt {
        /// Of the arena's layout.
        layout: u64,
    },
    /// It gets it. With it: the arena's memory.
    Handed {
        /// Whose it was.
        process: u32,
        /// So many `File` messages follow, then `End`.
        files: u32,
    },
    /// One of the files. With it: the file.
    File {
        /// By which frames name it.
        number: u32,
        /// That of its record.
        generation: u16,
    },
    /// That was all.
    End,
    /// The adopter has it all: the keeper may go. To a keeper on trial, and its answer: it is one,
    /// and listens.
    Taken,
    /// The adopter's own keeper is about to listen at the path of this one, which stops that; and
    /// the answer.
    Room,
}

/// What an owner tells its keeper first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// Of the arena's layout.
    pub(crate) layout: u64,
    /// The owner.
    pub(crate) process: u32,
    /// How long it goes on trying to write.
    pub(crate) patience: Duration,
    /// How long it stays for who adopts.
    pub(crate) linger: Duration,
    /// What it keeps is another keeper's until it is told `Taken`: before that it writes nothing,
    /// and does not listen.
    pub(crate) on_trial: bool,
    /// Where it listens for those.
    pub(crate) socket: Option<PathBuf>,
    /// Where it saves what it could not write.
    pub(crate) save_to: Option<PathBuf>,
    /// Where it says what it did.
    pub(crate) log: Option<PathBuf>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Malformed {
    /// The other end is of another version.
    Version(u32),
    /// There is not even a kind.
    Empty,
    /// There is no such message.
    Kind(u8),
    /// It does not begin as a conversation does.
    Sign,
    /// It ends too early.
    Short,
    /// It goes on.
    Long,
    /// A text that is none, or a path that is not absolute.
    Text,
    /// What is neither yes nor no.
    Flag,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(other) => {
                write!(
                    formatter,
                    "version {other} of what keepers speak, and this is version {VERSION}"
                )
            }
            Self::Empty => formatter.write_str("a message without a beginning"),
            Self::Kind(kind) => write!(formatter, "a message of no known kind ({kind})"),
            Self::Sign => formatter.write_str("not what a program that knows keepers begins with"),
            Self::Short => formatter.write_str("a message that is cut off"),
            Self::Long => formatter.write_str("a message with bytes left over"),
            Self::Text => formatter.write_str("a text or path that cannot be"),
            Self::Flag => formatter.write_str("a yes or no that is neither"),
        }
    }
}

impl Message {
    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Writer(vec![self.kind()]);
        match self {
            Self::Hello(hello) => {
                bytes.begin();
                bytes.put(&hello.layout.to_le_bytes());
                bytes.put(&hello.process.to_le_bytes());
                bytes.duration(hello.patience);
                bytes.duration(hello.linger);
                bytes.put(&[u8::from(hello.on_trial)]);
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

    /// Reads one; it is trusted in nothing.
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

/// Puts fields behind each other.
struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn begin(&mut self) {
        self.put(&SIGN);
        self.put(&VERSION.to_le_bytes());
    }

    /// In milliseconds.
    fn duration(&mut self, duration: Duration) {
        self.put(&u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
    }

    fn path(&mut self, path: Option<&Path>) {
        self.bytes(path.map_or(b"", |path| path.as_os_str().as_bytes()));
    }

    fn text(&mut self, text: &str) {
        // A reason is a line; whoever writes a longer one is not heard to its end.
        let mut end = text.len().min(REASON_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let length =
            u16::try_from(bytes.len()).expect("the kernel's paths are shorter, and texts were cut");
        self.put(&length.to_le_bytes());
        self.put(bytes);
    }
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("as many were taken"))
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

    /// None is one of no bytes.
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
    fn what_is_said_is_heard() {
        for message in some() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn cut_or_longer_it_is_no_message() {
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
    fn another_version_is_told_from_nonsense() {
        let mut bytes = hello().encode();
        bytes[5] = 9;
        // However the rest of it looks.
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
        fn whatever_bytes_end_in_a_message_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }

        #[test]
        fn a_changed_message_ends_in_one_or_a_reason(which in 0..15_usize, at in 0..64_usize, to in any::<u8>()) {
            let mut bytes = some()[which].encode();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

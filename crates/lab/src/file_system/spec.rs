//! The text of `--scratch`: `xfs,size=16g,agcount=16,inode32`. An unknown key is refused with the
//! nearest known one; mkfs decides about combinations.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::bytes::Bytes;
use crate::disk::Charges;
use crate::load::guard::{check_target, device_length};
use crate::nearest;
use crate::refusal::Refusal;
use crate::words::words;

/// Of an image, where nothing else is asked for.
const DEFAULT_BYTES: u64 = 8 << 30;

/// Below this mkfs makes nothing useful of any kind.
const LEAST_BYTES: u64 = 16 << 20;

/// Options of a mount.
const INODE32: &str = "inode32";
const DATA_JOURNAL: &str = "data=journal";

/// The words after the first.
const KEYS: [&str; 8] =
    ["size", "agcount", "inode32", "data", "keep", "sparse", "memory", "device"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    pub kind: Kind,
    pub size_bytes: u64,
    /// Allocation groups of XFS; as mkfs chooses if none.
    pub groups: Option<u32>,
    /// `inode32` of XFS: inodes where their numbers fit in 32 bits, so that data and inode of a
    /// file need not share a group. `data=journal` of ext4: data goes through the journal, too.
    pub mount_options: &'static str,
    pub per: Per,
    pub image: Image,
    /// On this block device rather than on an image.
    pub device: Option<PathBuf>,
    pub charges: Charges,
}

words! {
    pub enum Kind {
        Xfs = "xfs",
        Ext4 = "ext4",
        Btrfs = "btrfs",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    Cell,
    Comparison,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Image {
    /// Every byte is written beforehand.
    Written,
    /// A length alone: writes then pay for the space below.
    Sparse,
    /// In memory, where blocks of zeroes take none, and those with the data of the jobs hardly any.
    Memory,
}

impl Spec {
    /// Returns about how much a cell finds free; a file system keeps some for itself.
    pub fn free_bytes(&self) -> u64 {
        self.size_bytes / 100 * 94
    }

    /// Returns the bytes of its image that are written before the first cell.
    pub fn image_bytes(&self) -> u64 {
        let is_written = self.device.is_none() && self.image == Image::Written;
        if is_written { self.size_bytes } else { 0 }
    }

    /// Returns the command that makes it. It discards nothing, because the device would work on that
    /// during a cell, and defers nothing.
    pub(super) fn make_command(&self, device: &Path) -> Vec<String> {
        let options: &[&str] = match self.kind {
            Kind::Xfs => &["mkfs.xfs", "-f", "-K"],
            Kind::Ext4 => {
                &["mkfs.ext4", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]
            }
            Kind::Btrfs => &["mkfs.btrfs", "-f", "-K"],
        };
        let mut words: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        if let Some(groups) = self.groups {
            words.extend(["-d".to_owned(), format!("agcount={groups}")]);
        }
        words.push(device.display().to_string());
        words
    }

    /// Checks that this user can mount something, and that no program uses the device it names.
    /// Returns it with the size of that device.
    pub fn looked_at(mut self) -> Result<Self, Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal(
                "only root can make and mount one (or use --dir on one that is there)".to_owned(),
            ));
        }
        if let Some(device) = &self.device {
            let reported = |error: crate::load::error::CellError| Refusal(error.to_string());
            check_target(device).map_err(reported)?;
            self.size_bytes = device_length(device).map_err(reported)?;
        }
        Ok(self)
    }
}

impl FromStr for Spec {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let mut words = text.split(',').map(str::trim);
        let kind = words.next().unwrap_or_default();
        let kind = Kind::by_name(kind).ok_or_else(|| {
            let known = Kind::ALL.map(Kind::name);
            let meant = nearest::meant(kind, known.into_iter());
            Refusal(format!(
                "{kind}: no file system that can be made{meant} (there are: {})",
                known.join(", ")
            ))
        })?;
        let mut spec = Self {
            kind,
            size_bytes: DEFAULT_BYTES,
            groups: None,
            mount_options: "",
            per: Per::Cell,
            image: Image::Written,
            device: None,
            charges: Charges::NONE,
        };
        let refuse = |what: String| Err(Refusal(what));
        let mut sized = false;
        for word in words {
            let (key, value) =
                word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
            match (key, value) {
                ("size", Some(value)) => {
                    sized = true;
                    Bytes(spec.size_bytes) = Bytes::try_from(value.to_owned()).map_err(Refusal)?;
                    if spec.size_bytes < LEAST_BYTES || !spec.size_bytes.is_multiple_of(4096) {
                        return refuse(format!("{word}: 16m or more, in steps of 4k"));
                    }
                }
                ("agcount", Some(value)) => match value.parse() {
                    Ok(groups @ 1..) => spec.groups = Some(groups),
                    _ => return refuse(format!("{word}: not a number of groups")),
                },
                ("device", Some(value)) if !value.is_empty() => spec.device = Some(value.into()),
                ("inode32", None) => spec.mount_options = INODE32,
                ("data", Some("journal")) => spec.mount_options = DATA_JOURNAL,
                ("data", _) => return refuse(format!("{word}: say data=journal, or leave it out")),
                ("keep", None) => spec.per = Per::Comparison,
                ("sparse", None) => spec.image = Image::Sparse,
                ("memory", None) => spec.image = Image::Memory,
                ("size" | "agcount" | "device", _) => {
                    return refuse(format!("{key} wants a value (such as size=16g, agcount=16)"));
                }
                ("inode32" | "keep" | "sparse" | "memory", Some(_)) => {
                    return refuse(format!("{word}: {key} takes no value (say {key} alone)"));
                }
                _ => match value.and_then(|value| spec.charges.set(key, value)) {
                    Some(Ok(())) => {}
                    Some(Err(what)) => return refuse(format!("{word}: {what}")),
                    None => {
                        let keys = || KEYS.into_iter().chain(Charges::KEYS);
                        let known = keys().collect::<Vec<_>>().join(", ");
                        let meant = nearest::meant(key, keys());
                        return refuse(format!("{key}: no such key{meant} (there are: {known})"));
                    }
                },
            }
        }
        spec.refuse_what_does_not_go_together(sized)?;
        Ok(spec)
    }
}

impl Spec {
    fn refuse_what_does_not_go_together(&self, sized: bool) -> Result<(), Refusal> {
        let refuse = |what: &str| Err(Refusal(what.to_owned()));
        if self.kind != Kind::Xfs && (self.groups.is_some() || self.mount_options == INODE32) {
            return refuse("agcount and inode32 are XFS's (leave them out, or say xfs)");
        }
        if self.kind != Kind::Ext4 && self.mount_options == DATA_JOURNAL {
            return refuse("data=journal is ext4's (leave it out, or say ext4)");
        }
        if self.device.is_some() && (sized || self.image != Image::Written) {
            return refuse("a device has its size and content (leave size, sparse and memory out)");
        }
        if self.device.is_some() && self.charges != Charges::NONE {
            return refuse("a device charges what it charges (leave iops, rate and flush out)");
        }
        Ok(())
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.kind.name())?;
        match (&self.device, self.size_bytes) {
            (Some(device), _) => write!(formatter, ",device={}", device.display())?,
            (_, bytes) if bytes.is_multiple_of(1 << 30) => {
                write!(formatter, ",size={}g", bytes >> 30)?;
            }
            (_, bytes) if bytes.is_multiple_of(1 << 20) => {
                write!(formatter, ",size={}m", bytes >> 20)?;
            }
            (_, bytes) => write!(formatter, ",size={bytes}")?,
        }
        if let Some(groups) = self.groups {
            write!(formatter, ",agcount={groups}")?;
        }
        let said = [
            (!self.mount_options.is_empty(), self.mount_options),
            (self.per == Per::Comparison, "keep"),
            (self.image == Image::Sparse, "sparse"),
            (self.image == Image::Memory, "memory"),
        ];
        said.iter().filter(|(is, _)| *is).try_for_each(|(_, word)| write!(formatter, ",{word}"))?;
        write!(formatter, "{}", self.charges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Spec>().unwrap_err().to_string()
    }

    #[test]
    fn what_is_asked_is_understood_and_reported_again() {
        for text in [
            "xfs,size=16g,agcount=16,inode32",
            "xfs,size=300m,keep,sparse",
            "ext4,device=/dev/sdz,keep",
            "ext4,size=8g,data=journal,keep",
            "btrfs,size=8g",
            "xfs,size=1024g,memory",
            "ext4,size=8g,keep,iops=3000,rate=125m,flush=1ms",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        assert_eq!("xfs".parse::<Spec>().unwrap().to_string(), "xfs,size=8g");
    }

    #[test]
    fn an_image_is_written_unless_it_is_sparse_or_there_is_a_device() {
        let bytes = |text: &str| text.parse::<Spec>().unwrap().image_bytes();
        assert_eq!(bytes("xfs,size=10g"), 10 << 30);
        assert_eq!(bytes("xfs,size=10g,sparse"), 0);
        assert_eq!(bytes("xfs,device=/dev/null"), 0);
    }

    #[test]
    fn the_command_is_what_one_would_type() {
        let spec: Spec = "xfs,agcount=4,inode32".parse().unwrap();
        assert_eq!(
            spec.make_command(Path::new("/dev/loop7")).join(" "),
            "mkfs.xfs -f -K -d agcount=4 /dev/loop7"
        );
        assert_eq!(spec.mount_options, "inode32");
        let spec: Spec = "ext4,data=journal".parse().unwrap();
        assert_eq!(spec.mount_options, "data=journal");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_would_do() {
        for (text, expected) in [
            (
                "xsf",
                "xsf: no file system that can be made; did you mean xfs? (there are: xfs, ext4, btrfs)",
            ),
            ("", ": no file system that can be made (there"),
            (
                "xfs,agcuont=4",
                "agcuont: no such key; did you mean agcount? (there are: size, agcount",
            ),
            ("xfs,frobnicate", "frobnicate: no such key (there are: size"),
            ("xfs,size=many", "many: no number of bytes (such as"),
            ("xfs,size=1m", "size=1m: 16m or more"),
            ("xfs,size", "size wants a value"),
            ("xfs,agcount=0", "agcount=0: not a number of groups"),
            ("xfs,inode32=yes", "inode32 takes no value"),
            ("ext4,agcount=4", "agcount and inode32 are XFS's"),
            ("xfs,device=/dev/sdz,size=1g", "a device has its size"),
            ("xfs,data=journal", "data=journal is ext4's"),
            ("ext4,data=ordered", "say data=journal, or leave it out"),
            ("xfs,iops=none", "iops=none: not a number of requests"),
            ("xfs,flash=1ms", "flash: no such key; did you mean flush?"),
            ("xfs,iops", "iops: no such key"),
            ("xfs,device=/dev/sdz,flush=1ms", "a device charges what it charges"),
            ("xfs,memory=yes", "memory takes no value"),
        ] {
            let said = refused(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}

//! The kernel's description of its own types (BTF, `/sys/kernel/btf/vmlinux`): the offset of a
//! member in a struct, and the number of a tracepoint.
//!
//! Layouts differ from kernel to kernel, so offsets are looked up and never assumed. The data is
//! not trusted: a reference out of bounds or in a circle counts as not found.

use std::io::ErrorKind;
use std::path::Path;

/// First two bytes.
const MAGIC: u16 = 0xeb9f;

/// Bytes of a type without the part that depends on its kind.
const TYPE_BYTES: usize = 12;

/// Largest depth of nested unnamed structs, and of qualifiers.
const DEEPEST: u32 = 8;

/// The kernel's numbers of kinds (`linux/btf.h`).
mod kind {
    pub(crate) const INT: u32 = 1;
    pub(crate) const PTR: u32 = 2;
    pub(crate) const ARRAY: u32 = 3;
    pub(crate) const STRUCT: u32 = 4;
    pub(crate) const UNION: u32 = 5;
    pub(crate) const ENUM: u32 = 6;
    pub(crate) const FWD: u32 = 7;
    pub(crate) const TYPEDEF: u32 = 8;
    pub(crate) const VOLATILE: u32 = 9;
    pub(crate) const CONST: u32 = 10;
    pub(crate) const RESTRICT: u32 = 11;
    pub(crate) const FUNC: u32 = 12;
    pub(crate) const FUNC_PROTO: u32 = 13;
    pub(crate) const VAR: u32 = 14;
    pub(crate) const DATASEC: u32 = 15;
    pub(crate) const FLOAT: u32 = 16;
    pub(crate) const DECL_TAG: u32 = 17;
    pub(crate) const TYPE_TAG: u32 = 18;
    pub(crate) const ENUM64: u32 = 19;
}

/// The types of a kernel.
pub(crate) struct Btf {
    text: Vec<u8>,
    /// Where each type begins. The index is its number minus one, because 0 is `void`.
    types: Vec<usize>,
    strings: std::ops::Range<usize>,
}

/// A type of any kind.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// Number of members, arguments or values.
    count: usize,
    /// Whether a member has its width in the upper bits of its offset.
    with_widths: bool,
    /// Number of the type that it points to or names; the size of other kinds.
    target: u32,
    /// Where the part that depends on its kind begins.
    rest: usize,
}

impl Btf {
    /// Reads the types of the running kernel.
    pub(crate) fn of_kernel() -> Result<Self, String> {
        Self::read(Path::new("/sys/kernel/btf/vmlinux"))
    }

    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!(
                "this kernel has no {}; it was built without CONFIG_DEBUG_INFO_BTF",
                path.display()
            ),
            _ => format!("cannot read {}: {error}", path.display()),
        })?;
        Self::parse(text).ok_or_else(|| format!("{}: unknown format", path.display()))
    }

    /// Returns `None` for other data, and for a kind of type that is not known.
    pub(crate) fn parse(text: Vec<u8>) -> Option<Self> {
        let word = |at: usize| read_u32(&text, at).map(|value| value as usize);
        if u16::from_le_bytes([*text.first()?, *text.get(1)?]) != MAGIC {
            return None;
        }
        let header = word(4)?;
        let section = |at: usize| {
            let start = header.checked_add(word(at)?)?;
            let end = start.checked_add(word(at + 4)?)?;
            (end <= text.len()).then_some(start..end)
        };
        let (all, strings) = (section(8)?, section(16)?);
        let mut types = Vec::new();
        let mut at = all.start;
        while at < all.end {
            let bytes = TYPE_BYTES + added_bytes(type_at(&text, at)?)?;
            types.push(at);
            at += bytes;
        }
        (at == all.end).then_some(Self { text, types, strings })
    }

    /// Returns the offset of a member in bytes. The member may be in an unnamed struct within.
    pub(crate) fn member(&self, structure: &str, member: &str) -> Option<u32> {
        let (_, found) = self.find(structure, kind::STRUCT)?;
        let bits = self.member_bits(found, member, DEEPEST)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Returns the number of a tracepoint. If `first` names a struct, the first argument must be a
    /// pointer to it.
    pub(crate) fn tracepoint(&self, name: &str, first: Option<&str>) -> Option<u32> {
        let (number, typedef) = self.find(&format!("btf_trace_{name}"), kind::TYPEDEF)?;
        let pointer = self.of_kind(typedef.target, kind::PTR)?;
        let form = self.of_kind(pointer.target, kind::FUNC_PROTO)?;
        if let Some(first) = first {
            // The argument before it belongs to the kernel.
            let argument = read_u32(&self.text, form.rest + 8 + 4).filter(|_| form.count > 1)?;
            let pointer = self.of_kind(argument, kind::PTR)?;
            let target = self.plain(pointer.target)?;
            if !self.is_called(target.name, first) {
                return None;
            }
        }
        Some(number)
    }

    fn find(&self, name: &str, kind: u32) -> Option<(u32, Type)> {
        self.types.iter().zip(1..).find_map(|(&at, number)| {
            let found = type_at(&self.text, at)?;
            (found.kind == kind && self.is_called(found.name, name)).then_some((number, found))
        })
    }

    fn member_bits(&self, structure: Type, wanted: &str, deepest: u32) -> Option<u32> {
        let deeper = deepest.checked_sub(1)?;
        (0..structure.count).find_map(|place| {
            let at = structure.rest + place * 12;
            let (name, number) = (read_u32(&self.text, at)?, read_u32(&self.text, at + 4)?);
            let offset = read_u32(&self.text, at + 8)?;
            let bits = if structure.with_widths { offset & 0x00ff_ffff } else { offset };
            if self.is_called(name, wanted) {
                return Some(bits);
            }
            let inner = self.plain(number).filter(|_| self.is_called(name, ""))?;
            let inner =
                Some(inner).filter(|inner| matches!(inner.kind, kind::STRUCT | kind::UNION))?;
            bits.checked_add(self.member_bits(inner, wanted, deeper)?)
        })
    }

    fn of_kind(&self, number: u32, wanted: u32) -> Option<Type> {
        self.plain(number).filter(|found| found.kind == wanted)
    }

    /// Returns a type without its qualifiers.
    fn plain(&self, mut number: u32) -> Option<Type> {
        for _ in 0..DEEPEST {
            let place = usize::try_from(number.checked_sub(1)?).ok()?;
            let found = type_at(&self.text, *self.types.get(place)?)?;
            match found.kind {
                kind::CONST | kind::VOLATILE | kind::RESTRICT | kind::TYPE_TAG | kind::TYPEDEF => {
                    number = found.target;
                }
                _ => return Some(found),
            }
        }
        None
    }

    fn is_called(&self, name: u32, wanted: &str) -> bool {
        let strings = &self.text[self.strings.clone()];
        let rest = strings.get(name as usize..).unwrap_or_default();
        rest.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }
}

fn type_at(text: &[u8], at: usize) -> Option<Type> {
    let info = read_u32(text, at.checked_add(4)?)?;
    Some(Type {
        name: read_u32(text, at)?,
        kind: (info >> 24) & 0x1f,
        count: (info & 0xffff) as usize,
        with_widths: info >> 31 == 1,
        target: read_u32(text, at + 8)?,
        rest: at + TYPE_BYTES,
    })
}

/// Returns the number of bytes that depend on the kind of a type.
fn added_bytes(of: Type) -> Option<usize> {
    Some(match of.kind {
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::ENUM | kind::FUNC_PROTO => 8 * of.count,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * of.count,
        _ => return None,
    })
}

fn read_u32(text: &[u8], at: usize) -> Option<u32> {
    let bytes = text.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: &[u8] = b"\0outer\0inside\0plain\0btf_trace_event\0call\0";

    fn name(text: &str) -> u32 {
        let with_ends = format!("\0{text}\0");
        let at =
            NAMES.windows(with_ends.len()).position(|part| part == with_ends.as_bytes()).unwrap();
        u32::try_from(at + 1).unwrap()
    }

    /// A struct with a member in an unnamed struct, a tracepoint with a pointer to it, and a
    /// function.
    fn small() -> Vec<u8> {
        let info = |of: u32, count: u32| of << 24 | count;
        let types = [
            vec![0, info(kind::INT, 0), 4, 32],
            vec![0, info(kind::STRUCT, 1), 8, name("inside"), 1, 32],
            vec![name("outer"), info(kind::STRUCT, 2), 24, name("plain"), 1, 0, 0, 2, 64],
            vec![0, info(kind::CONST, 0), 3],
            vec![0, info(kind::PTR, 0), 4],
            vec![0, info(kind::FUNC_PROTO, 2), 0, 0, 5, 0, 5],
            vec![0, info(kind::PTR, 0), 6],
            vec![name("btf_trace_event"), info(kind::TYPEDEF, 0), 7],
            vec![name("call"), info(kind::FUNC, 0), 6],
        ];
        let types: Vec<u32> = types.concat();
        let type_bytes = u32::try_from(types.len() * 4).unwrap();
        let header = [24, 0, type_bytes, type_bytes, u32::try_from(NAMES.len()).unwrap()];
        let mut text = vec![0x9f, 0xeb, 1, 0];
        text.extend(header.iter().chain(&types).flat_map(|word| word.to_le_bytes()));
        text.extend(NAMES);
        text
    }

    #[test]
    fn members_and_tracepoints_are_found_by_name() {
        let btf = Btf::parse(small()).unwrap();
        assert_eq!(btf.member("outer", "plain"), Some(0));
        assert_eq!(btf.member("outer", "inside"), Some(12), "it is in an unnamed struct");
        assert_eq!(btf.member("outer", "call"), None);
        assert_eq!(btf.tracepoint("event", Some("outer")), Some(8));
        assert_eq!(btf.tracepoint("event", None), Some(8));
        assert_eq!(btf.tracepoint("event", Some("inside")), None, "its first argument is another");
    }

    #[test]
    fn the_types_of_this_kernel_are_read() {
        match Btf::of_kernel() {
            Ok(btf) => {
                assert_eq!(btf.member("list_head", "prev"), Some(8));
                assert!(btf.tracepoint("block_rq_issue", Some("request")).is_some());
            }
            Err(reason) => eprintln!("skipped: {reason}"),
        }
    }

    #[test]
    fn a_kernel_without_it_is_named_in_one_sentence() {
        let missing = Path::new("/nonexistent/btf/vmlinux");
        let reason = Btf::read(missing).err().unwrap();
        let said = "it was built without CONFIG_DEBUG_INFO_BTF";
        assert_eq!(reason, format!("this kernel has no /nonexistent/btf/vmlinux; {said}"));
        let other = Path::new("/proc/version");
        assert_eq!(Btf::read(other).err().unwrap(), "/proc/version: unknown format");
    }

    fn ask_everything(text: Vec<u8>) {
        let Some(btf) = Btf::parse(text) else { return };
        for wanted in ["plain", "inside", "nothing", ""] {
            btf.member("outer", wanted);
        }
        btf.tracepoint("event", Some("outer"));
    }

    proptest! {
        #[test]
        fn no_data_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            ask_everything(text);
        }

        #[test]
        fn nor_does_damaged_data(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            kept in any::<prop::sample::Index>(),
        ) {
            let mut text = small();
            for (place, value) in changes {
                let place = place.index(text.len());
                text[place] = value;
            }
            ask_everything(text[..=kept.index(text.len())].to_vec());
            ask_everything(text);
        }
    }
}

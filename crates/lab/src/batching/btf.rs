//! What the kernel says about its own types (BTF, as in `/sys/kernel/btf/vmlinux`): where in a
//! struct a member is, and by which number a tracepoint goes.
//!
//! Layouts differ from kernel to kernel, so offsets are looked up and never assumed. Nothing in the
//! text is trusted: whatever points outside of it, or in a circle, is not found.

/// How every such text begins.
const MAGIC: u16 = 0xeb9f;

/// Bytes of a type before what its kind adds.
const TYPE_BYTES: usize = 12;

/// Structs without a name that are looked into, one inside the other.
const DEEPEST: u32 = 8;

/// The kernel's numbers of kinds (`linux/btf.h`).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// All types of a kernel.
pub(super) struct Btf {
    text: Vec<u8>,
    /// Where each type begins; index is its number less one, for number 0 is `void`.
    types: Vec<usize>,
    strings: std::ops::Range<usize>,
}

/// A type, of whichever kind.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// Members, arguments or values.
    count: usize,
    /// Whether the offsets of members share their word with widths.
    with_widths: bool,
    /// What it points to or names; for others their size.
    target: u32,
    /// Where what its kind adds begins.
    rest: usize,
}

impl Btf {
    /// Of the running kernel.
    pub(super) fn of_kernel() -> Result<Self, String> {
        const PATH: &str = "/sys/kernel/btf/vmlinux";
        let text = std::fs::read(PATH).map_err(|error| {
            format!("{PATH}: {error} (the kernel is built without CONFIG_DEBUG_INFO_BTF?)")
        })?;
        Self::parse(text).ok_or_else(|| format!("{PATH}: not understood"))
    }

    /// None if it is no such text, or one of a kind that is not known.
    pub(super) fn parse(text: Vec<u8>) -> Option<Self> {
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

    /// How many bytes into a struct a member is, looked for in nameless ones within it as well.
    pub(super) fn member(&self, structure: &str, member: &str) -> Option<u32> {
        let (_, found) = self.find(structure, |one| one == kind::STRUCT)?;
        let bits = self.member_bits(found, member, DEEPEST)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// The number of a tracepoint, if its first argument is a pointer to that struct; any will do
    /// if none is named.
    pub(super) fn tracepoint(&self, name: &str, first: Option<&str>) -> Option<u32> {
        let (number, typedef) =
            self.find(&format!("btf_trace_{name}"), |one| one == kind::TYPEDEF)?;
        let pointer = self.of_kind(typedef.target, kind::PTR)?;
        let form = self.of_kind(pointer.target, kind::FUNC_PROTO)?;
        if let Some(first) = first {
            // The one before it is the kernel's own.
            let argument = read_u32(&self.text, form.rest + 8 + 4).filter(|_| form.count > 1)?;
            let pointer = self.of_kind(argument, kind::PTR)?;
            let target = self.plain(pointer.target)?;
            if !self.is_called(target.name, first) {
                return None;
            }
        }
        Some(number)
    }

    fn find(&self, name: &str, of_kind: impl Fn(u32) -> bool) -> Option<(u32, Type)> {
        self.types.iter().zip(1..).find_map(|(&at, number)| {
            let found = type_at(&self.text, at)?;
            (of_kind(found.kind) && self.is_called(found.name, name)).then_some((number, found))
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

    /// A type without what qualifies it.
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

/// Bytes that the kind of a type adds.
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

    /// A struct of which one member is in a nameless one, and a tracepoint of it; a function stands
    /// for what else is there.
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
        assert_eq!(btf.member("outer", "inside"), Some(12), "it is in a nameless one");
        assert_eq!(btf.member("outer", "call"), None);
        assert_eq!(btf.tracepoint("event", Some("outer")), Some(8));
        assert_eq!(btf.tracepoint("event", None), Some(8));
        assert_eq!(btf.tracepoint("event", Some("inside")), None, "its first argument is another");
    }

    #[test]
    fn this_kernels_own_is_understood() {
        match Btf::of_kernel() {
            Ok(btf) => {
                assert_eq!(btf.member("list_head", "prev"), Some(8));
                assert!(btf.tracepoint("block_rq_issue", Some("request")).is_some());
            }
            Err(reason) => eprintln!("skipped: {reason}"),
        }
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
        fn nothing_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            ask_everything(text);
        }

        #[test]
        fn nor_does_anything_that_is_nearly_right(
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

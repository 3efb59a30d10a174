//! JSON with a line for each thing: the levels near the root are spread out, and a row, a
//! comparison or a cell with all its numbers is one line. So a result of many cells stays small,
//! and `grep` and `diff` can read it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Levels that are spread out.
const SPREAD: usize = 2;

/// Writes a value so.
pub(super) fn write(to: impl Write, value: &impl Serialize) -> io::Result<()> {
    let lines = Lines { spread: PrettyFormatter::new(), depth: 0 };
    value.serialize(&mut Serializer::with_formatter(to, lines)).map_err(io::Error::from)
}

struct Lines {
    spread: PrettyFormatter<'static>,
    /// Of what is open.
    depth: usize,
}

impl Lines {
    fn is_spread(&self) -> bool {
        self.depth <= SPREAD
    }
}

/// The calls that an array and an object have in common, in both forms.
macro_rules! spread_or_not {
    ($($begin:ident, $end:ident, $open:literal, $close:literal;)*) => {$(
        fn $begin<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            self.depth += 1;
            if self.is_spread() { self.spread.$begin(writer) } else { writer.write_all($open) }
        }

        fn $end<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
            let spread = self.is_spread();
            self.depth -= 1;
            if spread { self.spread.$end(writer) } else { writer.write_all($close) }
        }
    )*};
}

impl Formatter for Lines {
    spread_or_not! {
        begin_array, end_array, b"[", b"]";
        begin_object, end_object, b"{", b"}";
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        match (self.is_spread(), first) {
            (true, _) => self.spread.begin_array_value(writer, first),
            (false, true) => Ok(()),
            (false, false) => writer.write_all(b","),
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.is_spread() { self.spread.end_array_value(writer) } else { Ok(()) }
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        match (self.is_spread(), first) {
            (true, _) => self.spread.begin_object_key(writer, first),
            (false, true) => Ok(()),
            (false, false) => writer.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.is_spread() { self.spread.end_object_value(writer) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::random::Random;
    use serde_json::json;

    use super::*;

    #[test]
    fn near_the_root_it_is_spread_out_and_below_it_is_not() {
        let value = json!({
            "empty": [],
            "one": { "b": { "c": [1, 2], "d": {} }, "none": {} },
            "rows": [{ "a": "x", "rounds": [1.5, null, 2.0] }, { "a": "y", "rounds": [] }],
        });
        let mut text = Vec::new();
        write(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = "{
  \"empty\": [],
  \"one\": {
    \"b\": {\"c\": [1,2], \"d\": {}},
    \"none\": {}
  },
  \"rows\": [
    {\"a\": \"x\", \"rounds\": [1.5,null,2.0]},
    {\"a\": \"y\", \"rounds\": []}
  ]
}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    /// A report is made again from a saved result, digit for digit.
    #[test]
    fn a_saved_number_is_read_as_it_was() {
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            // Numbers from 395.5 to 791.
            let number = f64::from_bits(0x3ff << 52 | random.draw() >> 12) * 395.5;
            let text = serde_json::to_string(&number).unwrap();
            let read: f64 = serde_json::from_str(&text).unwrap();
            assert_eq!(read.to_bits(), number.to_bits(), "{text}");
        }
    }
}

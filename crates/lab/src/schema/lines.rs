//! JSON with a line for each thing: the levels near the root are spread out, and a row, a
//! comparison or a cell with all its numbers is one line. So a result of many cells stays small,
//! and `grep` and `diff` can read it.

use std::io::{self, Write};

use serde::Serialize;

/// Levels that are spread out.
const SPREAD: usize = 2;

/// Writes a value so: the pretty form, with its deeper lines joined.
pub(super) fn write(mut to: impl Write, value: &impl Serialize) -> io::Result<()> {
    let pretty = serde_json::to_string_pretty(value)?;
    let mut text = String::with_capacity(pretty.len());
    for line in pretty.lines() {
        let content = line.trim_start();
        let depth = (line.len() - content.len()) / 2;
        let closes = content.starts_with(['}', ']']);
        if depth < SPREAD || (depth == SPREAD && !closes) {
            text.push('\n');
            text.push_str(line);
            continue;
        }
        let is_key = content.starts_with('"') && content.contains("\": ");
        if is_key && text.ends_with(',') {
            text.push(' ');
        }
        text.push_str(content);
    }
    assert!(text.starts_with('\n'), "a value has a line");
    to.write_all(&text.as_bytes()[1..])
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

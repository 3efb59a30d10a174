//! Options as a map from names to values, for configuration files.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::core::options::Options;

/// Needs the feature `serde`. A map from the names of options to their values as text, as
/// [`Options::set`] takes them. Options that are at their default are left out.
///
/// ```
/// use forebay::{Options, options::Contexts};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let written = r#"{"cache_bytes":"64m","contexts":2,"uncached":true,"dirty_age":"200ms"}"#;
/// let options: Options = serde_json::from_str(written)?;
/// assert_eq!((options.cache_bytes, options.contexts), (Some(64 << 20), Contexts::Fixed(2)));
/// assert_eq!(serde_json::from_str::<Options>(&serde_json::to_string(&options)?)?, options);
/// # Ok(())
/// # }
/// ```
impl Serialize for Options {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (knobs, defaults) = (self.knobs(), Self::default().knobs());
        let differs = knobs.iter().zip(&defaults).filter(|(knob, default)| {
            match knob.name.as_str() {
                // Without a value these follow from the machine, or from each other.
                "cache_bytes" => self.cache_bytes.is_some(),
                "dirty_bytes" => self.dirty_bytes.is_some(),
                "background_bytes" => self.background_bytes.is_some(),
                _ => knob.value != default.value,
            }
        });
        serializer.collect_map(differs.map(|(knob, _)| (&knob.name, &knob.value)))
    }
}

/// Needs the feature `serde`. From a map of names to values, which are text, numbers or booleans.
/// Options that are not in the map are at their default. An unknown name is an error.
impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Named)
    }
}

struct Named;

impl<'de> Visitor<'de> for Named {
    type Value = Options;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("options of an engine by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
        let mut options = Options::default();
        while let Some((name, Text(value))) = map.next_entry::<String, Text>()? {
            options.set(&name, &value).map_err(A::Error::custom)?;
        }
        Ok(options)
    }
}

/// A value as text.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfValue)
    }
}

struct OfValue;

impl Visitor<'_> for OfValue {
    type Value = Text;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text, a number or a boolean")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Text, E> {
        Ok(Text(value.to_owned()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Text, E> {
        Ok(Text(if value { "on" } else { "off" }.to_owned()))
    }
}

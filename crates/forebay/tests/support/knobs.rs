//! The options of an engine by name, as `forebay ctl` and configurations have them.

use forebay::{Engine, Options, Result};

/// Options with other values of some knobs.
pub(crate) fn named<const N: usize>(mut options: Options, knobs: [(&str, &str); N]) -> Options {
    for (name, value) in knobs {
        options.set(name, value).unwrap();
    }
    options
}

/// Sets a knob of a running engine.
pub(crate) fn set(engine: &Engine, name: &str, value: &str) -> Result<()> {
    let mut options = engine.options();
    options.set(name, value)?;
    engine.set_options(options)
}

/// The value of a knob of a running engine.
pub(crate) fn get(engine: &Engine, name: &str) -> String {
    let knobs = engine.options().knobs();
    knobs.into_iter().find(|knob| knob.name == name).expect("a knob").value
}

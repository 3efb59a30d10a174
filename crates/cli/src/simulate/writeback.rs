//! `forebay simulate writeback`: contexts over allocation groups.

use forebay_sim::writeback::model::{Model, SETTINGS};
use serde_json::json;

use super::{Outcome, Pairs, Simulation, as_set, model, rows};
use crate::failure::Failure;

pub(crate) const SIMULATION: Simulation = Simulation {
    name: "writeback",
    what: "what do contexts, affinity and layout each give?",
    settings: || rows(&SETTINGS),
    run,
};

fn run(settings: &Pairs, _seed: u64) -> Result<Outcome, Failure> {
    let model: Model = model(&SETTINGS, settings)?;
    model.check().map_err(Failure::usage)?;
    let text =
        SETTINGS.iter().map(|setting| format!("{}={}\n", setting.name, (setting.show)(&model))).collect();
    Ok(Outcome { text, figures: json!({ "settings": as_set(&SETTINGS, &model) }) })
}

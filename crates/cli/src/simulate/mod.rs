//! `forebay simulate`: a model, worked through in virtual time.
//!
//! Each simulation is a file here and a line in [`SIMULATIONS`]; names, help and what is said of a
//! mistake come from that line.

mod order;
mod writeback;

use forebay_lab::nearest::meant_or_all;
use forebay_sim::setting::{Refusal, Setting};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::print;

/// Those there are.
pub(crate) const SIMULATIONS: [Simulation; 2] = [writeback::SIMULATION, order::SIMULATION];

/// What was typed to be set: keys and values.
pub(crate) type Pairs = [(String, String)];

/// One of them.
pub(crate) struct Simulation {
    pub(crate) name: &'static str,
    /// The question, in a line.
    pub(crate) what: &'static str,
    /// What can be set: each name, what it is, and what it is unless set.
    pub(crate) settings: fn() -> Vec<[String; 3]>,
    /// Does it. What cannot be set is refused before anything is done.
    pub(crate) run: fn(&Pairs, u64) -> Result<Outcome, Failure>,
}

/// What came out.
pub(crate) struct Outcome {
    /// To be read: lines of at most 72 characters.
    pub(crate) text: String,
    /// The same as an object; the name and the seed are added to it.
    pub(crate) figures: Value,
}

/// As what the outcome is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Text,
    Json,
}

/// A simulation to run.
#[derive(Debug)]
pub(crate) struct SimulateRequest {
    pub(crate) simulation: &'static Simulation,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) seed: u64,
    pub(crate) form: Form,
}

/// Runs one and prints what came out.
pub(crate) fn simulate(request: &SimulateRequest) -> Result<(), Failure> {
    let Outcome { text, mut figures } = (request.simulation.run)(&request.settings, request.seed)?;
    match request.form {
        Form::Text => print(&text),
        Form::Json => {
            figures["simulation"] = json!(request.simulation.name);
            figures["seed"] = json!(format!("{:x}", request.seed));
            print(&format!("{figures:#}\n"))
        }
    }
}

/// The one of that name.
pub(crate) fn find(name: &str) -> Result<&'static Simulation, Failure> {
    static ALL: [Simulation; SIMULATIONS.len()] = SIMULATIONS;
    ALL.iter().find(|simulation| simulation.name == name).ok_or_else(|| {
        let names: Vec<&str> = SIMULATIONS.iter().map(|simulation| simulation.name).collect();
        Failure::usage(format!("{name}: no such simulation{}", meant_or_all(name, &names)))
    })
}

/// The end of the help: what there is, and what can be set.
pub(crate) fn in_full() -> String {
    let mut text = "A seed gives the same figures on every machine.\n".to_owned();
    for simulation in &SIMULATIONS {
        text.push_str(&format!(
            "\n{}: {}\nParameters and their defaults:\n",
            simulation.name, simulation.what
        ));
        for [name, what, value] in (simulation.settings)() {
            text.push_str(&format!("  {:<20} {what}\n", format!("{name}={value}")));
        }
    }
    text.trim_end().to_owned()
}

/// The rows of a table of settings, for the help.
fn rows<M: Default>(table: &[Setting<M>]) -> Vec<[String; 3]> {
    let model = M::default();
    let row = |setting: &Setting<M>| {
        [setting.name.to_owned(), setting.what.to_owned(), (setting.show)(&model)]
    };
    table.iter().map(row).collect()
}

/// A model as it was set.
fn model<M: Default>(table: &[Setting<M>], settings: &Pairs) -> Result<M, Failure> {
    let mut model = M::default();
    for (key, value) in settings {
        forebay_sim::setting::set(table, &mut model, key, value)
            .map_err(|refusal| refused(key, value, &refusal))?;
    }
    Ok(model)
}

/// All of a model's settings as an object.
fn as_set<M>(table: &[Setting<M>], model: &M) -> Value {
    table.iter().map(|setting| (setting.name.to_owned(), json!((setting.show)(model)))).collect()
}

fn refused(key: &str, value: &str, refusal: &Refusal) -> Failure {
    Failure::usage(match refusal {
        Refusal::Setting(known) => {
            format!("--set {key}={value}: no such setting{}", meant_or_all(key, known))
        }
        Refusal::Word(known) => {
            format!("--set {key}={value}: no such {key}{}", meant_or_all(value, known))
        }
        Refusal::Value(allowed) => format!("--set {key}={value}: not possible (give {allowed})"),
    })
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

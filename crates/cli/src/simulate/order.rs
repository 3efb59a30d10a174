//! `forebay simulate order`: what the order of a work list does to a closed loop. As it is, a table
//! of loads; with any of the load's settings, one load that is as set.

use forebay_sim::order::{
    Answers, Figures, LOADS, Load, NamedLoad, Order, Rounds, Source, Span, rounds, table,
};
use forebay_sim::setting::{Setting, micros, number, word};
use serde_json::{Value, json};

use super::{Outcome, Pairs, Simulation, model, rows};
use crate::failure::Failure;

pub(crate) const SIMULATION: Simulation = Simulation {
    name: "order",
    what: "what does it cost to work off newest first?",
    settings: || rows(&SETTINGS),
    run,
};

/// What is asked.
struct Asked {
    rounds: u32,
    load: Load,
}

impl Default for Asked {
    fn default() -> Self {
        Self { rounds: 10, load: Load::of(4, 2, Source::Together) }
    }
}

const SOURCES: [(&str, Source); 2] = [("each", Source::Each), ("together", Source::Together)];
const ANSWERS: [(&str, Answers); 2] =
    [("served", Answers::AsServed), ("pass", Answers::WithThePass)];

/// A number of the load.
macro_rules! numbered {
    ($name:literal, $what:literal, $field:ident) => {
        Setting {
            name: $name,
            what: $what,
            set: |asked, text| {
                asked.load.$field = number(text, 1..=u64::from(u32::MAX))? as u32;
                Ok(())
            },
            show: |asked| asked.load.$field.to_string(),
        }
    };
}

/// A time of the load that does not vary once it is set.
macro_rules! timed {
    ($name:literal, $what:literal, $field:ident) => {
        Setting {
            name: $name,
            what: $what,
            set: |asked, text| {
                asked.load.$field = Span::fixed(micros(text)?.as_nanos() as u64);
                Ok(())
            },
            show: |asked| between(asked.load.$field),
        }
    };
}

const SETTINGS: [Setting<Asked>; 10] = [
    Setting {
        name: "rounds",
        what: "runs of each load",
        set: |asked, text| {
            asked.rounds = number(text, 1..=1000)? as u32;
            Ok(())
        },
        show: |asked| asked.rounds.to_string(),
    },
    numbered!("connections", "sources", connections),
    numbered!("in_flight", "messages of each", in_flight),
    Setting {
        name: "source",
        what: "each or together: what lets it send again",
        set: |asked, text| {
            asked.load.source = word(text, &SOURCES)?;
            Ok(())
        },
        show: |asked| named(&SOURCES, asked.load.source),
    },
    Setting {
        name: "answers",
        what: "served or pass: when they leave",
        set: |asked, text| {
            asked.load.answers = word(text, &ANSWERS)?;
            Ok(())
        },
        show: |asked| named(&ANSWERS, asked.load.answers),
    },
    numbered!("pass_limit", "messages of one pass at most", pass_limit),
    Setting {
        name: "pass_cost",
        what: "us of a pass, besides its messages",
        set: |asked, text| {
            asked.load.pass_cost = micros(text)?.as_nanos() as u64;
            Ok(())
        },
        show: |asked| in_micros(asked.load.pass_cost),
    },
    timed!("service", "us of the server, a message", service),
    timed!("turnaround", "us of the client, a message", turnaround),
    timed!("wire", "us on the way, each way", wire),
];

fn run(settings: &Pairs, seed: u64) -> Result<Outcome, Failure> {
    let asked: Asked = model(&SETTINGS, settings)?;
    let own = [NamedLoad { title: "as set", load: asked.load }];
    let loads =
        if settings.iter().any(|(name, _)| name != "rounds") { &own[..] } else { &LOADS[..] };
    let text = table(loads, seed, asked.rounds).map_err(Failure::usage)?;
    let mut each = Vec::new();
    for NamedLoad { title, load } in loads {
        for order in [Order::Fifo, Order::Lifo] {
            let found =
                rounds(&load.with_order(order), seed, asked.rounds).map_err(Failure::usage)?;
            each.push(figures(title, order, &found));
        }
    }
    Ok(Outcome { text, figures: json!({ "rounds": asked.rounds, "loads": each }) })
}

/// Means over the runs.
fn figures(title: &str, order: Order, rounds: &Rounds) -> Value {
    let micros = |figure: fn(&Figures) -> f64| rounds.mean(figure) / 1000.0;
    json!({
        "load": title,
        "order": order.name(),
        "requests_per_s": rounds.mean(|one| one.requests_per_s),
        "coefficient_of_variation": rounds.coefficient_of_variation(),
        "idle_share": rounds.mean(|one| one.idle_share),
        "latency_p50_us": micros(|one| one.latency_p50 as f64),
        "latency_p99_us": micros(|one| one.latency_p99 as f64),
        "latency_p999_us": micros(|one| one.latency_p999 as f64),
        "longest_wait_us": micros(|one| one.longest_wait as f64),
        "reorder_distance_p99": rounds.mean(|one| one.reorder_distance_p99 as f64),
        "messages_per_pass": rounds.mean(|one| one.per_pass),
    })
}

fn named<T: Copy + PartialEq>(table: &[(&'static str, T)], value: T) -> String {
    let found = table.iter().find(|(_, known)| *known == value);
    found.map(|(word, _)| (*word).to_owned()).expect("the table has every one")
}

/// A span as it is read by people: what varies can be set to what does not, but not back.
fn between(span: Span) -> String {
    if span.least == span.most {
        return in_micros(span.least);
    }
    format!("{} to {}", in_micros(span.least), in_micros(span.most))
}

fn in_micros(nanos: u64) -> String {
    forebay_sim::setting::show_micros(std::time::Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(settings: &[(&str, &str)]) -> Result<Outcome, Failure> {
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        run(&settings, 1)
    }

    #[test]
    fn a_load_that_is_set_is_run_alone_and_replays() {
        let set = [("rounds", "2"), ("connections", "3"), ("wire", "6.5"), ("source", "each")];
        let (first, again) = (ran(&set).unwrap(), ran(&set).unwrap());
        assert_eq!((&first.text, &first.figures), (&again.text, &again.figures));
        assert!(
            first.text.contains("as set:") && !first.text.contains("256 x 2"),
            "{}",
            first.text
        );
        assert_eq!(first.figures["loads"].as_array().unwrap().len(), 2);
        assert_eq!(first.figures["loads"][0]["reorder_distance_p99"], 0.0);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for set in [("wires", "1"), ("connections", "0"), ("source", "all"), ("service", "x")] {
            assert!(matches!(ran(&[set]), Err(Failure::Usage(_))), "{set:?}");
        }
        assert!(matches!(ran(&[("service", "0"), ("pass_cost", "0")]), Err(Failure::Usage(_))));
    }
}

//! What the order of a work list does to a closed loop, and what it does not.

use forebay_sim::PerMille;
use forebay_sim::order::{
    Answers, Figures, LOADS, Load, NamedLoad, Order, Rounds, Source, Span, rounds, run, table,
};

const SEED: u64 = 1;

/// The same load in both orders, from the same seeds.
fn both(load: Load) -> [Rounds; 2] {
    [Order::Fifo, Order::Lifo].map(|order| rounds(&load.with_order(order), SEED, 10).unwrap())
}

fn rate(one: &Figures) -> f64 {
    one.requests_per_s
}

fn idle(one: &Figures) -> f64 {
    one.idle_share
}

fn p99(one: &Figures) -> f64 {
    one.latency_p99 as f64
}

fn longest(one: &Figures) -> f64 {
    one.longest_wait as f64
}

#[test]
fn in_order_nothing_is_overtaken_and_in_reverse_something_is() {
    for connections in [2, 4, 32, 256] {
        for source in [Source::Each, Source::Together] {
            for pass_limit in [8, u32::MAX] {
                let load =
                    Load { pass_limit, nanos: 20_000_000, ..Load::of(connections, 2, source) };
                let passed =
                    |order| run(&load.with_order(order), SEED).unwrap().reorder_distance_most;
                assert_eq!(passed(Order::Fifo), 0, "{load:?}");
                assert!(passed(Order::Lifo) > 0, "{load:?}");
            }
        }
    }
}

#[test]
fn at_medium_load_sources_that_wait_for_all_their_answers_go_idle_in_reverse() {
    let [fifo, lifo] = both(Load::of(4, 2, Source::Together));
    assert!(lifo.mean(rate) < 0.9 * fifo.mean(rate), "{} {}", lifo.mean(rate), fifo.mean(rate));
    assert!(
        fifo.mean(idle) < 0.01 && lifo.mean(idle) > 0.1,
        "{} {}",
        fifo.mean(idle),
        lifo.mean(idle)
    );
    // Where each answer lets the next one go it is not so: the order alone takes no work away.
    let [fifo, lifo] = both(Load::of(4, 2, Source::Each));
    assert!((lifo.mean(rate) / fifo.mean(rate) - 1.0).abs() < 0.002);
    assert!(lifo.mean(p99) > fifo.mean(p99), "but somebody waits longer");
}

#[test]
fn at_medium_load_the_rate_differs_more_from_run_to_run_in_reverse() {
    let [fifo, lifo] = both(Load { pass_cost: 10_000, ..Load::of(4, 2, Source::Together) });
    let [fifo, lifo] = [fifo, lifo].map(|rounds| rounds.coefficient_of_variation().unwrap());
    assert!(lifo > 5.0 * fifo, "{lifo} {fifo}");
}

#[test]
fn at_the_peak_the_rate_is_the_same_in_both_orders() {
    for source in [Source::Each, Source::Together] {
        for connections in [32, 256] {
            let [fifo, lifo] = both(Load::of(connections, 2, source));
            let ratio = lifo.mean(rate) / fifo.mean(rate);
            assert!((ratio - 1.0).abs() < 0.002, "{connections} {source:?}: {ratio}");
            assert!(fifo.mean(idle) + lifo.mean(idle) < 0.001);
            assert!(lifo.mean(p99) > fifo.mean(p99), "{connections} {source:?}");
        }
    }
}

#[test]
fn with_one_message_there_is_no_order() {
    for source in [Source::Each, Source::Together] {
        let [fifo, lifo] = both(Load::of(1, 1, source));
        assert_eq!(fifo, lifo);
    }
}

#[test]
fn a_bounded_pass_in_reverse_leaves_the_oldest_for_good() {
    let load = Load { pass_limit: 8, ..Load::of(256, 2, Source::Each) };
    let [fifo, lifo] = both(load);
    assert!(fifo.mean(longest) < 0.1 * load.nanos as f64, "in order everybody's turn comes");
    assert!(
        lifo.mean(longest) > 0.9 * load.nanos as f64,
        "what came first still waits: {}",
        lifo.mean(longest)
    );
    assert!((lifo.mean(rate) / fifo.mean(rate) - 1.0).abs() < 0.002, "and the rate does not tell");
}

#[test]
fn a_message_that_costs_more_than_others_holds_up_the_rest() {
    let load = Load::of(4, 2, Source::Each);
    let service = Span { rarely: PerMille(20), long: 400_000, ..load.service };
    for order in [Order::Fifo, Order::Lifo] {
        let load = load.with_order(order);
        let even = run(&load, SEED).unwrap();
        let uneven = run(&Load { service, ..load }, SEED).unwrap();
        assert!(uneven.latency_p99 > 4 * even.latency_p99, "{order:?}");
        assert!(uneven.latency_p50 < 3 * even.latency_p50, "{order:?}");
    }
}

#[test]
fn answers_that_leave_with_the_pass_wait_for_its_end() {
    let load =
        Load { service: Span::fixed(1_000), pass_cost: 3_000, ..Load::of(4, 2, Source::Each) };
    let with_the_pass = Load { answers: Answers::WithThePass, ..load };
    let [each, all] = [load, with_the_pass].map(|load| run(&load, SEED).unwrap());
    assert!(all.latency_p50 > each.latency_p50, "{all:?} {each:?}");
    assert_eq!(all.reorder_distance_most, 0);
}

#[test]
fn a_seed_replays_and_another_is_another_run() {
    let load = Load::of(4, 2, Source::Together).with_order(Order::Lifo);
    assert_eq!(run(&load, 7), run(&load, 7));
    assert_ne!(run(&load, 7), run(&load, 8));
}

#[test]
fn what_goes_in_comes_out() {
    // At one message in the loop, a round trip is the sum of its parts.
    let load = Load {
        service: Span::fixed(1_000),
        wire: Span::fixed(5_000),
        pass_cost: 3_000,
        ..Load::of(1, 1, Source::Each)
    };
    let found = run(&load, SEED).unwrap();
    assert_eq!((found.latency_p50, found.latency_p999), (14_000, 14_000));
    assert!((found.requests_per_s / (1e9 / 16_000.0) - 1.0).abs() < 0.002, "{found:?}");
    assert!((found.idle_share - 12.0 / 16.0).abs() < 0.002, "{found:?}");
    assert_eq!(found.per_pass, 1.0);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let fine = Load::of(4, 2, Source::Each);
    let refused = [
        Load { connections: 0, ..fine },
        Load { connections: u32::MAX, in_flight: u32::MAX, ..fine },
        Load { pass_limit: 0, ..fine },
        Load { wire: Span::between(2, 1), ..fine },
        Load { service: Span::fixed(0), pass_cost: 0, ..fine },
        Load { nanos: 0, ..fine },
    ];
    for load in refused {
        let why = run(&load, SEED).unwrap_err().to_string();
        assert!(!why.is_empty());
        assert!(table(&[NamedLoad { title: "x", load }], SEED, 1).is_err());
    }
    assert!(LOADS.iter().all(|one| one.load.check().is_ok()));
}

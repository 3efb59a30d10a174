//! Seeded runs of the machine alone: writers, visitors and losses of power, judged by a ledger.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::faults::{Faults, Latency};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::stored::Keep;
use crate::world::machine::survivors;
use crate::world::others::Visit;

const PAGES: u64 = 8;

fn plan(seed: u64) -> MachinePlan {
    let mut random = Random::new(seed ^ 0x6d61_6368);
    let rate = |random: &mut Random| PerMille(*random.pick(&[0, 100, 300]));
    let faults = Faults {
        refuse: PerMille(0),
        shorten: rate(&mut random),
        interrupt: rate(&mut random),
        ..Faults::NONE
    };
    let latency = Latency { least: micros(0), most: micros(*random.pick(&[1, 100, 5000])) };
    MachinePlan::draw(faults, latency, &mut random)
}

/// Writes one page, again until all of it is written.
fn write(rig: &mut Rig, ledger: &RefCell<Ledger>, page: u64, byte: u8) {
    rig.fill(0, byte);
    ledger.borrow_mut().accept(page * PAGE as u64, &[byte; PAGE]);
    while rig.act(&pages(Operation::Write, page, 0..1)) != Ok(PAGE as u64) {}
}

fn sync(rig: &mut Rig, ledger: &RefCell<Ledger>) {
    let change = ledger.borrow().change();
    for operation in [Operation::FlushData, Operation::FlushDirectory] {
        while rig.act(&plain(operation, 0, 0)) != Ok(0) {}
    }
    ledger.borrow_mut().synced(change);
    ledger.borrow_mut().name_synced();
}

/// Returns the number of states that were judged.
fn swarm(seed: u64) -> u32 {
    on(plan(seed), seed, move || {
        let mut random = Random::new(seed);
        let ledger = Rc::new(RefCell::new(Ledger::new()));
        let file = Arc::new(make("/a"));
        let choice = *random.pick(&[Choice::IoUring, Choice::Threads]);
        let engine = world::new_process("engine");
        let (mut chance, reported, owned) = (random.fork(), Rc::clone(&ledger), Arc::clone(&file));
        let done = Rc::new(std::cell::Cell::new(false));
        let report = Rc::clone(&done);
        world::spawn(engine, "writer", move || {
            let mut rig = Rig::new(choice, owned);
            for at in 0..40 {
                match chance.below(5) {
                    0 => sync(&mut rig, &reported),
                    _ => write(&mut rig, &reported, chance.below(PAGES), at + 1),
                }
            }
            sync(&mut rig, &reported);
            report.set(true);
        });
        let mut chance = random.fork();
        spawn_other("visitor", move || {
            for _ in 0..4 {
                world::sleep(micros(chance.below(3000)));
                Visit::draw(&mut chance).make("/a", |_| {}).unwrap();
            }
        });
        let mut judged = 0;
        while !done.get() {
            world::sleep(micros(random.below(2000)));
            let keep = *random.pick(&[Keep::Nothing, Keep::Some, Keep::Some, Keep::Everything]);
            let found = survivors(keep, &mut random).at("/a");
            ledger.borrow().check(&found).unwrap_or_else(|wrong| panic!("contract 3: {wrong}"));
            judged += 1;
        }
        let found = survivors(Keep::Nothing, &mut random).at("/a");
        ledger.borrow().check(&found).unwrap();
        assert_eq!((found.exists, found.size), (true, ledger.borrow().size()));
        drop(file);
        judged
    })
}

#[test]
fn contract_03_no_loss_of_power_shows_what_was_never_accepted() {
    let judged: u32 = (0..150).map(swarm).sum();
    assert!(judged > 1000, "{judged}");
}

//! Tasks that write new pages of a logged file and sync it at the same time. Each page is in a
//! hole, so its space is allocated before its record is written.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use forebay_cache::limits::PAGE;

use super::logged::LOG;
use super::unwritable::{PATH, with_a_record};
use crate::random::Random;
use crate::stored::{Keep, bytes_of};
use crate::world::{self, machine};

const TASKS: u64 = 6;
const PAGES: u64 = 8;

/// Returns the pages that a loss of power would have taken although their sync had returned.
///
/// # Panics
/// If a write or a sync fails.
#[must_use]
pub fn lost_pages(seed: u64) -> Vec<u64> {
    with_a_record(seed, |engine, file| {
        let (file, lost) = (Rc::new(file), Rc::new(RefCell::new(Vec::new())));
        file.write_at(&[0xff; PAGE as usize], 2 * (TASKS * PAGES + 1) * PAGE)
            .expect("memory is free");
        file.sync_data().expect("a calm machine");
        let left = Rc::new(Cell::new(TASKS));
        for task in 0..TASKS {
            let (file, lost, left) = (Rc::clone(&file), Rc::clone(&lost), Rc::clone(&left));
            world::spawn(world::process(), "caller", move || {
                for number in task * PAGES + 1..=(task + 1) * PAGES {
                    // No two of them are one range.
                    let (page, byte) = (2 * number, number as u8);
                    file.write_at(&[byte; PAGE as usize], page * PAGE).expect("memory is free");
                    file.sync_data().expect("a calm machine");
                    if !is_durable(page, byte) {
                        lost.borrow_mut().push(page);
                    }
                }
                left.set(left.get() - 1);
            });
        }
        while left.get() > 0 {
            world::sleep(Duration::from_millis(1));
        }
        let file = Rc::into_inner(file).expect("the tasks have ended");
        file.close().expect("a calm machine");
        engine.shutdown(Duration::from_secs(50)).expect("a calm machine");
        lost.take()
    })
}

/// Returns whether a page has these bytes after a loss of power and a recovery.
fn is_durable(page: u64, byte: u8) -> bool {
    let mut found = machine::survivors(Keep::Nothing, &mut Random::new(1));
    found.replay(LOG);
    let sectors = found.at(PATH).sectors;
    let per_page = (PAGE / 512) as usize;
    let is_its = |sector| bytes_of(sector).iter().all(|found| *found == byte);
    let of_page = sectors.iter().skip(page as usize * per_page).take(per_page);
    of_page.clone().count() == per_page && of_page.clone().all(is_its)
}

//! Events from outside while callers run: pages that cannot be written, clean pages that are
//! dropped, knobs that change, and looks at states after a loss of power.

use std::rc::Rc;
use std::time::Duration;

use forebay_log::HEADS;

use crate::core::engine::Engine;
use crate::core::options::Options;
use crate::random::{PerMille, Random};
use crate::run::logged::LOG;
use crate::run::stage::Stage;
use crate::stored::Keep;
use crate::world::{self, machine};

/// Virtual time after which the device gets well in any case: pages that cannot be written may hold
/// all memory, and then nobody goes on.
const WELL_AFTER: Duration = Duration::from_secs(120);

/// Longest time between two disturbances.
const PAUSES: [u64; 3] = [20_000, 200_000, 2_000_000];

impl Stage {
    /// Disturbs until the callers have ended.
    pub(super) fn disturb(self: &Rc<Self>) {
        let start = world::now();
        let mut random = world::draw(Random::fork);
        while self.callers.get() > 0 {
            let pause = self.plan.disturbance.pause.as_nanos() as u64;
            let most = if pause > 0 { pause } else { *random.pick(&PAUSES) };
            world::sleep(Duration::from_nanos(random.below(most)));
            if world::now().since(start) > WELL_AFTER {
                self.get_well();
                world::sleep(WELL_AFTER);
            }
            let disturbance = self.plan.disturbance;
            self.check_progress();
            if random.happens(disturbance.hang) && !self.is_well.get() {
                self.begin_hang(&mut random);
            }
            if random.happens(disturbance.crash) {
                let keep = *random.pick(&[Keep::Nothing, Keep::Everything, Keep::Some, Keep::Some]);
                self.check_power_loss(keep, "contract 3: after a loss of power");
            }
            if random.happens(disturbance.crash) {
                self.check_process_death();
            }
            if self.deaths_left.get() > 0 && random.happens(disturbance.death) {
                self.deaths_left.set(self.deaths_left.get() - 1);
                self.die(&mut random);
            }
            if random.happens(disturbance.programs) && !self.plan.are_devices {
                self.send_visitor(&mut random);
            }
            if random.happens(disturbance.bad_pages) && !self.is_well.get() {
                self.spoil_pages(&mut random);
            }
            if disturbance.bad_log.0 > 0 && random.happens(disturbance.bad_log) {
                self.spoil_log(&mut random);
            }
        }
    }

    fn spoil_pages(&self, random: &mut Random) {
        let path = self.plan.path(random.below(u64::from(self.plan.files)) as usize);
        let first = random.below(self.plan.file_pages);
        if machine::identity(&path).is_some() {
            machine::set_bad(&path, first..first + random.below(4));
        }
    }

    /// Makes blocks of the intent log unwritable: heads, batches or all of it; sometimes none.
    fn spoil_log(&self, random: &mut Random) {
        let (heads, end) = (HEADS, self.plan.log_blocks.unwrap_or(0) + HEADS);
        if machine::identity(LOG).is_some() {
            let parts = [0..0, 0..heads, heads..end, 0..end, 0..end];
            machine::set_bad(LOG, random.pick(&parts).clone());
            self.hit("log spoiled");
        }
    }

    /// Changes knobs while callers run. Runs in the process of the engine.
    pub(super) fn turn_knobs(&self, engine: &Engine, mut random: Random) {
        while self.callers.get() > 0 {
            let most = *random.pick(&PAUSES);
            crate::platform::thread::sleep(Duration::from_nanos(random.below(most * 4)));
            if !random.happens(PerMille(500)) {
                continue;
            }
            let (name, values) = *random.pick(KNOBS);
            let value = *random.pick(values);
            let change = |options: &mut Options| options.set(name, value);
            let changed = engine.owner.shared.change_options(change);
            world::trace(format_args!("{name} = {value}: {changed:?}"));
            changed.unwrap_or_else(|error| panic!("{name} cannot be {value}: {error}"));
            self.hit("knob turned");
        }
    }
}

/// Knobs with some of their values.
const KNOBS: &[(&str, &[&str])] = &[
    ("contexts", &["adaptive", "1", "2", "3", "5"]),
    ("affinity", &["single", "hash", "directory", "group"]),
    ("dirty_age", &["1ms", "20ms", "1s"]),
    ("flight", &["1", "2", "32", "time=100", "time=2000"]),
    ("prealloc", &["off", "adaptive", "256k"]),
    ("uncached", &["off", "on"]),
    ("plug", &["never", "always", "adaptive"]),
    ("merge", &["off", "on"]),
    ("completion", &["throttled", "immediate", "delay=1000", "delay=50"]),
    ("order", &["fifo"]),
];

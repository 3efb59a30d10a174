//! The cost of requests in a world where work has a price (`prices.rs`).

use std::time::Duration;

use forebay_block::{Moment, Operation};

use super::flying::Flying;
use super::port::Staged;
use super::prices::{ALLOCATION, BIO, CALL, PAGE, Prices, REQUEST};
use super::state::Machine;
use crate::world;

impl Machine {
    /// Returns the time at which the device has done a request. An allocation is made by a worker
    /// of the kernel, which waits for the lock of the group: io_uring does not block its caller.
    pub(super) fn paid(&mut self, flying: &Flying, prices: Prices) -> Moment {
        let (bio, now) = (&flying.bio, world::now().nanoseconds());
        if !bio.operation.moves_bytes() && bio.operation != Operation::Allocate {
            return Moment::from_nanoseconds(now) + self.plan.latency.least;
        }
        let submitted = self.group_of_new(flying).map_or(now, |group| {
            let done = world::work(ALLOCATION);
            let held = self.priced.groups.entry(group).or_default();
            *held = (*held + ALLOCATION).max(done);
            *held
        });
        let by_bytes = bio.length.saturating_mul(1_000_000_000) / prices.bytes_per_second;
        let cost = match bio.operation {
            Operation::Allocate => 0,
            _ => by_bytes.max(1_000_000_000 / prices.requests_per_second),
        };
        self.priced.device = self.priced.device.max(now) + cost;
        let latency = self.plan.latency.least.as_nanos() as u64;
        Moment::from_nanoseconds(self.priced.device.max(submitted + latency))
    }

    /// Returns the group of the space that a request allocates.
    fn group_of_new(&self, flying: &Flying) -> Option<u64> {
        let (bio, inode) = (&flying.bio, self.inode(flying.node));
        let first = bio.offset / PAGE_BYTES;
        let is_new = match bio.operation {
            Operation::Allocate => true,
            Operation::Write => !inode.stored.allocated().contains(&first),
            _ => false,
        };
        let plan = &self.plan.volumes[inode.volume];
        let bytes = plan.groups.map_or(u64::MAX, |groups| groups.group_bytes);
        is_new.then(|| inode.place(plan, first) / bytes)
    }

    /// Returns the processor time for the staged requests of a port.
    fn price_of_staged(&self, number: u64) -> Duration {
        let staged = self.port(number).map_or(&[][..], |port| &port.staged);
        let of = |staged: &Staged| REQUEST + BIO + PAGE * staged.bio.length.div_ceil(PAGE_BYTES);
        Duration::from_nanos(CALL + staged.iter().map(of).sum::<u64>())
    }
}

const PAGE_BYTES: u64 = forebay_block::limits::PAGE as u64;

/// Has the calling task pay for the staged requests of a port.
pub(crate) fn pay(number: u64) {
    if world::processors() > 0 {
        world::spend(super::with(|machine| machine.price_of_staged(number)));
    }
}

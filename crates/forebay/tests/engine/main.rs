//! Tests of the engine that need no process of their own. In one program they build in a fraction
//! of the time.

mod adapters;
mod appends;
mod arenas;
mod attributes;
mod batch_disks;
mod bypass;
mod bypassed;
mod copy;
mod direct_going;
mod direct_model;
mod entries;
mod full_disk_closing;
mod futures;
mod groups;
mod growth;
mod locks;
mod mapped;
mod metrics;
mod model;
mod nearly_full;
mod no_space;
mod plug;
#[path = "../support/positioned.rs"]
mod positioned;
mod read_lease;
mod readers;
mod renamed;
mod shared;
mod sizes;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod tokio;
mod volumes;

/// Another program, where a test starts this one again.
#[test]
fn another_program() {
    support::other::serve();
}

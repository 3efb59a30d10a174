//! The state of the machine, its making, and the nodes of its file systems.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use forebay_block::{Errno, Moment};
use forebay_uring::{Identity, Kind};

use super::attributes::Logged;
use super::flying::Flying;
use super::inode::{Content, Inode};
use super::names::{Names, Node};
use super::opened::{Description, Descriptor};
use super::plan::{INODE_BITS, MachinePlan, UNLIMITED, VolumePlan};
use super::points;
use super::port::Port;
use super::prices::Priced;
use super::watch::Watch;
use crate::random::{PerMille, Random};
use crate::world::{self, Events, Process, Reason};

/// Share of new files that get the inode number of a removed one.
const REUSED: PerMille = PerMille(500);

/// A mounted file system.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) root: Node,
    /// Number of inodes so far.
    inodes: u64,
    /// Inode numbers of removed files.
    freed: Vec<u64>,
}

/// The machine of a world.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) plan: MachinePlan,
    /// Distinguishes this machine from those of other worlds of the same thread.
    pub(crate) epoch: u64,
    pub(crate) random: Random,
    pub(super) names: Names,
    /// Nodes by number; `None` once nothing refers to one.
    pub(super) nodes: Vec<Option<Inode>>,
    /// Roots of file systems, by the directories that they cover.
    pub(super) mounts: BTreeMap<Node, Node>,
    pub(super) volumes: Vec<Volume>,
    pub(super) descriptions: BTreeMap<u64, Description>,
    pub(super) descriptors: BTreeMap<u64, Descriptor>,
    pub(super) watches: BTreeMap<u64, Watch>,
    pub(super) ports: BTreeMap<u64, Port>,
    /// Processes that have a keeper.
    pub(super) kept: BTreeSet<Process>,
    /// Requests at the devices, by the time of their end and their number.
    pub(super) flying: BTreeMap<(Moment, u64), Flying>,
    /// Devices that do not answer.
    pub(super) hung: BTreeSet<u64>,
    /// Results of calls that a task waits for.
    pub(super) ended_calls: BTreeMap<u64, Result<u64, Errno>>,
    /// Changes so far: the order of versions.
    pub(super) sequence: u64,
    pub(super) transitions: u64,
    pub(super) priced: Priced,
    /// Writes to a device that have failed, as a sync of a whole file system reports them.
    pub(super) failures: u64,
    /// Nanoseconds that the wall clock was set forward, or back.
    pub(super) clock_offset: i64,
}

/// Where a path leads.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) directory: Node,
    pub(crate) name: OsString,
    /// `None` if the name is free.
    pub(crate) node: Option<Node>,
}

/// Whether a path that ends in a symbolic link stands for the link or for its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// The machine's place in its world.
#[derive(Default)]
struct Slot(RefCell<Option<Machine>>);

/// The ends of requests, as the scheduler sees them.
struct Completions(Rc<Slot>);

impl Events for Completions {
    fn next(&self) -> Option<Moment> {
        self.0.0.borrow().as_ref().and_then(Machine::next_end)
    }

    fn happen(&self) {
        if let Some(machine) = self.0.0.borrow_mut().as_mut() {
            machine.complete_next();
        }
        points::pass();
    }
}

/// Acts on the machine of this world. The action must not block, and not call [`with`].
pub(crate) fn with<T>(act: impl FnOnce(&mut Machine) -> T) -> T {
    let slot = world::extension(Slot::default);
    if slot.0.borrow().is_none() {
        put(&slot, MachinePlan::default());
    }
    act(slot.0.borrow_mut().as_mut().expect("put there just now"))
}

/// Makes the machine of this world, before anything uses it.
///
/// # Panics
/// If the world has a machine already.
pub fn install(plan: MachinePlan) {
    let slot = world::extension(Slot::default);
    assert!(slot.0.borrow().is_none(), "the world has a machine already");
    put(&slot, plan);
}

fn put(slot: &Rc<Slot>, plan: MachinePlan) {
    let random = world::draw(Random::fork);
    *slot.0.borrow_mut() = Some(Machine::new(plan, random));
    world::set_events(Rc::new(Completions(Rc::clone(slot))));
}

thread_local! {
    static MACHINES: Cell<u64> = const { Cell::new(0) };
}

impl Machine {
    fn new(plan: MachinePlan, random: Random) -> Self {
        MACHINES.set(MACHINES.get() + 1);
        let mut machine = Self {
            plan,
            epoch: MACHINES.get(),
            random,
            names: Names::default(),
            nodes: Vec::new(),
            mounts: BTreeMap::new(),
            volumes: Vec::new(),
            descriptions: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            watches: BTreeMap::new(),
            ports: BTreeMap::new(),
            kept: BTreeSet::new(),
            flying: BTreeMap::new(),
            hung: BTreeSet::new(),
            ended_calls: BTreeMap::new(),
            sequence: 0,
            transitions: 0,
            priced: Priced::default(),
            failures: 0,
            clock_offset: 0,
        };
        assert!(!machine.plan.volumes.is_empty(), "a machine has a file system at least");
        for number in 0..machine.plan.volumes.len() {
            machine.mount(number);
        }
        machine.add_entry("/dev", Content::Directory).expect("an empty file system");
        machine.names.flush_all();
        machine
    }

    /// Mounts the next file system.
    fn mount(&mut self, number: usize) {
        let root = Node(self.nodes.len());
        self.volumes.push(Volume { root, inodes: 1, freed: Vec::new() });
        let identity = Identity { device: device_of(number), inode: 1 };
        self.nodes.push(Some(Inode::new(Content::Directory, number, identity)));
        self.names.add_directory(root, self.volumes[0].root);
        if number > 0 {
            let point = self.add_entry(format!("/volume{number}"), Content::Directory);
            self.mounts.insert(point.expect("a name of its own"), root);
        }
    }

    /// Adds a node under a new name.
    pub(super) fn add_entry(
        &mut self,
        path: impl AsRef<Path>,
        content: Content,
    ) -> Result<Node, Errno> {
        let found = self.resolve(path.as_ref(), Last::Keep)?;
        if found.node.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        self.create(&found, content)
    }

    /// Makes a node under a free name.
    pub(super) fn create(&mut self, at: &Found, content: Content) -> Result<Node, Errno> {
        self.check_directory(at.directory)?;
        let volume = self.inode(at.directory).volume;
        let node = Node(self.nodes.len());
        let identity = match content {
            Content::Device(_) => Identity { device: 1 << 16 | node.0 as u64, inode: u64::MAX },
            _ => Identity { device: device_of(volume), inode: self.new_number(volume) },
        };
        if content == Content::Directory {
            self.names.add_directory(node, at.directory);
        }
        let logged = Logged::new(node, self.wall());
        self.nodes.push(Some(Inode { logged, ..Inode::new(content, volume, identity) }));
        let sequence = self.next_sequence();
        self.names.assign(at.directory, &at.name, Some(node), sequence);
        Ok(node)
    }

    /// Returns the number of a change that is made now.
    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn new_number(&mut self, volume: usize) -> u64 {
        let plan = &self.plan.volumes[volume];
        let Volume { inodes, freed, .. } = &mut self.volumes[volume];
        if !freed.is_empty() && self.random.happens(REUSED) {
            let at = self.random.below(freed.len() as u64) as usize;
            return freed.swap_remove(at);
        }
        *inodes += 1;
        let group = plan.groups.map_or(0, |groups| *inodes % u64::from(groups.groups));
        group << INODE_BITS | *inodes
    }

    pub(crate) fn inode(&self, node: Node) -> &Inode {
        self.nodes[node.0].as_ref().expect("a name or an open file refers to it")
    }

    pub(crate) fn inode_mut(&mut self, node: Node) -> &mut Inode {
        self.nodes[node.0].as_mut().expect("a name or an open file refers to it")
    }

    pub(crate) fn kind(&self, node: Node) -> Kind {
        match self.inode(node).content {
            Content::File => Kind::Regular,
            Content::Device(_) => Kind::Block,
            Content::Directory | Content::Link(_) => Kind::Other,
        }
    }

    /// Returns the file system's properties.
    pub(crate) fn volume_of(&self, node: Node) -> &VolumePlan {
        &self.plan.volumes[self.inode(node).volume]
    }

    /// Pages of a file system that no file has.
    pub(crate) fn free_pages(&self, volume: usize) -> u64 {
        let counts =
            |inode: &&Inode| inode.volume == volume && !inode.is_device() && !inode.is_gone;
        let of_volume = self.nodes.iter().flatten().filter(counts);
        let allocated: usize = of_volume.map(|inode| inode.stored.allocated().len()).sum();
        self.plan.volumes[volume].space_pages.saturating_sub(allocated as u64)
    }

    /// Returns the pages that a file may still get: as [`Machine::free_pages`], or any large number
    /// on a file system that no test fills.
    pub(super) fn room(&self, volume: usize) -> u64 {
        let all = self.plan.volumes[volume].space_pages;
        if all >= UNLIMITED { all } else { self.free_pages(volume) }
    }

    /// Returns whether the node is the root of a file system.
    pub(crate) fn is_root(&self, node: Node) -> bool {
        self.volumes.iter().any(|volume| volume.root == node)
    }

    /// Frees the space of files without a name that nobody has open, and forgets those that no
    /// loss of power can bring back.
    pub(crate) fn collect(&mut self) {
        // A directory that is forgotten takes the names in it along.
        while self.collect_once() {}
    }

    /// Returns whether a directory was forgotten.
    fn collect_once(&mut self) -> bool {
        let mut is_changed = false;
        let mut start = Node(0);
        while let Some(node) = self.names.next_nameless(start) {
            start = Node(node.0 + 1);
            let inode = self.inode(node);
            if self.is_root(node) || !inode.opened.is_empty() {
                continue;
            }
            if self.names.refers_to(node) {
                self.inode_mut(node).is_gone = true;
                continue;
            }
            if matches!(inode.content, Content::File | Content::Directory) {
                let (volume, number) = (inode.volume, inode.identity.inode);
                self.volumes[volume].freed.push(number);
            }
            is_changed |= self.names.is_directory(node);
            self.names.forget(node);
            self.nodes[node.0] = None;
        }
        is_changed
    }

    /// Lets the tasks continue that wait for this.
    pub(crate) fn wake(what: &'static str, number: u64) {
        world::wake(Reason { what, number });
    }

    /// All nodes, for a look at each.
    pub(crate) fn all_nodes(&self) -> BTreeSet<Node> {
        let numbered = self.nodes.iter().enumerate();
        numbered.filter(|(_, inode)| inode.is_some()).map(|(at, _)| Node(at)).collect()
    }
}

/// Device number of a file system.
fn device_of(volume: usize) -> u64 {
    256 + volume as u64
}

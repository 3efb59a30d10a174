//! Whoever stands by an engine: a keeper, or the service manager's store. What the engine asks of
//! either.

use std::process::Child;
use std::sync::Arc;

use forebay_uring::{Alive, Arena, File};

use super::link::Link;
use super::store::Store;
use super::{Keeper, KeeperState};
use crate::error::Result;
use crate::shared::Shared;

/// Whoever stands by.
#[derive(Debug)]
pub(crate) enum Standby {
    Keeper(Arc<Link>),
    Store(Store),
}

impl Standby {
    /// Has somebody stand by for an arena; and the process, where it is one, for
    /// [`Standby::watch`]. On trial until it is confirmed, where another keeper has everything
    /// still.
    pub(crate) fn start(
        keeper: Keeper,
        arena: &Arc<Arena>,
        on_trial: bool,
    ) -> Result<(Self, Option<Child>)> {
        if keeper.is_store() {
            return Ok((Self::Store(Store::start(arena)?), None));
        }
        let (link, child) = Link::start(keeper, Arc::clone(arena), on_trial)?;
        Ok((Self::Keeper(link), Some(child)))
    }

    /// What every ring has to hold.
    pub(crate) fn alive(&self) -> Option<Arc<Alive>> {
        match self {
            Self::Keeper(link) => link.alive(),
            Self::Store(store) => Some(Arc::clone(store.alive())),
        }
    }

    /// Whether there is somebody at this moment.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Keeper(link) => link.is_there(),
            Self::Store(_) => true,
        }
    }

    /// Notices the end of the process.
    pub(crate) fn watch(&self, shared: &Arc<Shared>, child: Option<Child>) -> Result<()> {
        match (self, child) {
            (Self::Keeper(link), Some(child)) => link.watch(shared, child),
            _ => Ok(()),
        }
    }

    /// Everything there is to keep is held, and is nobody else's.
    pub(crate) fn confirm(&self) -> Result<()> {
        match self {
            Self::Keeper(link) => link.confirm(),
            Self::Store(_) => Ok(()),
        }
    }

    /// A file is opened: returns when it is held.
    pub(crate) fn add(&self, number: u32, generation: u16, file: &Arc<File>) -> Result<()> {
        match self {
            Self::Keeper(link) => link.add(number, generation, file),
            Self::Store(store) => store.add(number, generation, file),
        }
    }

    /// A file is closed: returns when it is let go of.
    pub(crate) fn remove(&self, number: u32, generation: u16) {
        match self {
            Self::Keeper(link) => link.remove(number, generation),
            Self::Store(store) => store.remove(number, generation),
        }
    }

    pub(crate) fn state(&self) -> KeeperState {
        match self {
            Self::Keeper(link) => link.state(),
            Self::Store(store) => KeeperState { process: None, files: store.files(), restarts: 0 },
        }
    }

    /// All is written.
    pub(crate) fn say_goodbye(&self) {
        match self {
            Self::Keeper(link) => link.say_goodbye(),
            Self::Store(store) => store.say_goodbye(),
        }
    }

    /// Not all is written, and this process does nothing more about it.
    pub(crate) fn leave_it(&self) {
        match self {
            Self::Keeper(link) => link.leave_it(),
            // As it is when the process dies.
            Self::Store(_) => {}
        }
    }
}

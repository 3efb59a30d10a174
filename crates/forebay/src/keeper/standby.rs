//! The two kinds of keeper: a process, or the store of the service manager.

use std::process::Child;
use std::sync::Arc;

use forebay_uring::{Alive, Arena, OpenFile};

use super::Keeper;
use super::link::Link;
use super::store::Store;
use crate::core::error::Result;
use crate::core::shared::Shared;
use crate::core::standby::{KeeperState, Standby};

/// The keeper of an engine, and the process it runs in, if it is one.
pub(crate) struct Started {
    pub(crate) standby: Box<dyn Standby>,
    process: Option<(Arc<Link>, Child)>,
}

impl Started {
    /// Starts the keeper of an arena. With `on_trial`, another keeper still has everything until
    /// [`Standby::confirm`].
    pub(crate) fn start(keeper: Keeper, arena: &Arc<Arena>, on_trial: bool) -> Result<Self> {
        if keeper.is_store() {
            return Ok(Self { standby: Box::new(Store::start(arena)?), process: None });
        }
        let (link, child) = Link::start(keeper, Arc::clone(arena), on_trial)?;
        let process = Some((Arc::clone(&link), child));
        Ok(Self { standby: Box::new(link), process })
    }

    /// Separates the standby from the call that starts to watch its process.
    pub(crate) fn split(self) -> (Box<dyn Standby>, impl FnOnce(&Arc<Shared>) -> Result<()>) {
        let Self { standby, process } = self;
        let watch = move |shared: &Arc<Shared>| match process {
            Some((link, child)) => link.watch(shared, child),
            None => Ok(()),
        };
        (standby, watch)
    }
}

impl Standby for Arc<Link> {
    fn alive(&self) -> Option<Arc<Alive>> {
        Link::alive(self)
    }

    fn is_there(&self) -> bool {
        Link::is_there(self)
    }

    fn confirm(&self) -> Result<()> {
        Link::confirm(self)
    }

    fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()> {
        Link::add(self, number, generation, file)
    }

    fn remove(&self, number: u32, generation: u16) {
        Link::remove(self, number, generation);
    }

    fn state(&self) -> KeeperState {
        Link::state(self)
    }

    fn say_goodbye(&self) {
        Link::say_goodbye(self);
    }

    fn leave_it(&self) {
        Link::leave_it(self);
    }
}

impl Standby for Store {
    fn alive(&self) -> Option<Arc<Alive>> {
        Some(Arc::clone(Store::alive(self)))
    }

    fn is_there(&self) -> bool {
        true
    }

    fn confirm(&self) -> Result<()> {
        Ok(())
    }

    fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()> {
        Store::add(self, number, generation, file)
    }

    fn remove(&self, number: u32, generation: u16) {
        Store::remove(self, number, generation);
    }

    fn state(&self) -> KeeperState {
        KeeperState { process: None, files: self.files(), restarts: 0 }
    }

    fn say_goodbye(&self) {
        Store::say_goodbye(self);
    }

    /// The same as the death of the process: nothing has to be done.
    fn leave_it(&self) {}
}

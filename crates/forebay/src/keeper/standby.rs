//! The keeper process of an engine, as the engine sees it.

use std::process::Child;
use std::sync::Arc;

use forebay_uring::{Alive, Arena, OpenFile};

use super::Keeper;
use super::link::Link;
use crate::core::error::Result;
use crate::core::recovery::{KeeperState, Standby};
use crate::core::shared::Shared;

/// The keeper of an engine, and the process it runs in.
pub(crate) struct Started {
    link: Arc<Link>,
    process: Child,
}

impl Started {
    /// Starts the keeper of an arena. With `on_trial`, another keeper still has everything until
    /// [`Standby::confirm`].
    pub(crate) fn start(keeper: Keeper, arena: &Arc<Arena>, on_trial: bool) -> Result<Self> {
        let (link, process) = Link::start(keeper, Arc::clone(arena), on_trial)?;
        Ok(Self { link, process })
    }

    /// Separates the standby from the call that starts to watch its process.
    pub(crate) fn split(self) -> (Box<dyn Standby>, impl FnOnce(&Arc<Shared>) -> Result<()>) {
        let Self { link, process } = self;
        let standby: Box<dyn Standby> = Box::new(Arc::clone(&link));
        (standby, move |shared: &Arc<Shared>| link.watch(shared, process))
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

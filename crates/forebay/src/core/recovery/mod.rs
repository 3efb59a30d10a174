//! Recovery after the death of a program: the content of its arena, the way of that data to its
//! files, and the parts that another engine can take over. Used by the keeper, by recovery from an
//! image, and by adoption.
//!
//! The keeper of an engine, as the engine sees it: a second process, or the store of the service
//! manager, that finishes writeback if this process dies.

use std::sync::Arc;

use crate::core::error::Result;
use crate::platform::{Alive, OpenFile};

pub(crate) mod finish;
pub(crate) mod inherited;
pub(crate) mod plan;
pub(crate) mod work;

/// Holds off the keeper, if there is one: until this is dropped, it does not begin to write, even
/// if the process lives on.
#[derive(Debug)]
pub(crate) struct HeldOff(Option<Arc<Alive>>);

impl HeldOff {
    /// Returns `None` if the keeper has taken over.
    pub(crate) fn new(keeper: Option<&dyn Standby>) -> Option<Self> {
        match keeper {
            Some(keeper) => keeper.alive().map(|alive| Self(Some(alive))),
            None => Some(Self(None)),
        }
    }

    /// Returns the object that a ring has to hold for requests that may outlive the process.
    pub(crate) fn alive(&self) -> Option<&Alive> {
        self.0.as_deref()
    }
}

/// Calls of the engine to its keeper. They may block until the keeper answers, so the engine holds
/// no lock meanwhile.
pub(crate) trait Standby: Send + Sync + std::fmt::Debug {
    /// Returns the object that every ring of the engine has to hold.
    fn alive(&self) -> Option<Arc<Alive>>;

    /// Returns whether a keeper runs now.
    fn is_there(&self) -> bool;

    /// Confirms that the keeper is the only one that holds the data.
    fn confirm(&self) -> Result<()>;

    /// Hands over a file that was opened, and returns when the keeper holds it.
    fn add(&self, number: u32, generation: u16, file: &Arc<OpenFile>) -> Result<()>;

    /// Removes a file that is closed, and returns when the keeper no longer holds it.
    fn remove(&self, number: u32, generation: u16);

    /// Returns the state, for the program.
    fn state(&self) -> KeeperState;

    /// Ends the keeper, because everything is written.
    fn say_goodbye(&self);

    /// Leaves unwritten data to the keeper: this process does nothing more about it.
    fn leave_it(&self);
}

/// State of the keeper of an engine, as [`Engine::keeper`](crate::Engine::keeper) returns it.
///
/// ```no_run
/// # fn main() -> forebay::Result<()> {
/// use forebay::{Engine, Keeper, Options};
///
/// forebay::keeper::run_if_asked();
/// let engine = Engine::builder(Options::default()).survive(Keeper::this_program()).build()?;
/// let keeper = engine.keeper().expect("it has one");
/// println!("pid {:?}, {} files, {} restarts", keeper.process, keeper.files, keeper.restarts);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeeperState {
    /// Process id of the keeper, or `None` while no keeper runs.
    pub process: Option<u32>,
    /// Number of open files that the keeper process holds. While no keeper runs, the number of
    /// files that the next one will hold.
    pub files: usize,
    /// Number of times that a lost keeper was replaced.
    pub restarts: u64,
}

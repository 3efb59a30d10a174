//! The knobs of an engine that runs: what they stand at, and what a change of one does.

use std::sync::Arc;
use std::task::Waker;

use crate::core::context::Message;
use crate::core::contexts::wanted::Wanted;
use crate::core::error::Result;
use crate::core::inode::failing;
use crate::core::knobs::{self, Knob};
use crate::core::settings::Settings;
use crate::core::shared::Shared;
use crate::core::user_code;

impl Shared {
    /// What a knob stands at.
    pub(crate) fn get(&self, name: &str) -> Result<String> {
        knobs::get(&self.settings(), name)
    }

    /// Every knob.
    pub(crate) fn knobs(&self) -> Vec<Knob> {
        knobs::list(&self.settings())
    }

    /// Changes a knob: wholly, or not at all.
    pub(crate) fn set(self: &Arc<Self>, name: &str, value: &str) -> Result<()> {
        self.check()?;
        let mut settings = self.settings();
        let mut changed = settings.clone();
        knobs::change(&mut changed, name, value)?;
        knobs::check(&changed)?;
        // First, for it may fail.
        if let Err(error) = self.spread(&changed) {
            self.contexts.auto.begin(settings.contexts);
            return Err(error);
        }
        *settings = changed;
        let mut wakers = Vec::new();
        // Under the lock, so that everyone hears of changes in their order.
        self.apply(&settings, &mut wakers);
        drop(settings);
        user_code::wake_all(wakers);
        Ok(())
    }

    /// Starts what writes; what it runs on, in one line.
    pub(crate) fn start(self: &Arc<Self>) -> Result<String> {
        let settings = self.settings();
        Ok(self.spread(&settings)?.expect("nothing ran before"))
    }

    /// Spreads the files among as many contexts as are wanted.
    fn spread(self: &Arc<Self>, settings: &Settings) -> Result<Option<String>> {
        let active = self.contexts.auto.begin(settings.contexts);
        self.contexts.spread(self, settings.of_context(), (active, settings.affinity))
    }

    /// Spreads them among as many as were found to bring something, unless somebody has said how
    /// many meanwhile.
    pub(crate) fn spread_found(self: &Arc<Self>, active: usize) -> Result<()> {
        let settings = self.settings();
        if settings.contexts == Wanted::Auto && self.check().is_ok() {
            self.contexts.spread(self, settings.of_context(), (active, settings.affinity))?;
        }
        Ok(())
    }

    /// Tells everyone who acts on a knob; whom to wake is appended.
    fn apply(&self, settings: &Settings, wakers: &mut Vec<Waker>) {
        self.set_caching(settings.caching);
        if self.set_reserving(settings.reserving) {
            for inode in self.table().inodes() {
                inode.lock().cache.change_reserving(settings.reserving);
            }
        }
        if self.level.set_throttle(settings.throttle(), wakers) {
            for inode in self.table().inodes() {
                failing::look_again(&inode.volume.failing, &self.level, wakers);
            }
        }
        self.send(Message::Knobs(settings.of_context()));
    }

    fn settings(&self) -> crate::platform::sync::MutexGuard<'_, Settings> {
        self.settings.lock()
    }
}

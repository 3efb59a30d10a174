//! The knobs of a running engine: their values, and the effect of a change.

use std::sync::Arc;
use std::task::Waker;

use crate::core::error::Result;
use crate::core::inode::failing;
use crate::core::knobs::{self, Knob};
use crate::core::message::Message;
use crate::core::settings::Settings;
use crate::core::shared::Shared;
use crate::core::user_code;

impl Shared {
    /// Returns the value of a knob.
    pub(crate) fn get(&self, name: &str) -> Result<String> {
        knobs::get(&self.settings(), name)
    }

    /// Returns every knob.
    pub(crate) fn knobs(&self) -> Vec<Knob> {
        knobs::list(&self.settings())
    }

    /// Changes a knob. After an error nothing has changed.
    pub(crate) fn set(self: &Arc<Self>, name: &str, value: &str) -> Result<()> {
        self.check()?;
        let _spreading = self.spreading.lock();
        let mut settings = self.settings();
        let mut changed = settings.clone();
        knobs::change(&mut changed, name, value)?;
        knobs::check(&changed)?;
        if changed.priority != settings.priority {
            changed.priority.check()?;
        }
        // This comes first because it may fail.
        if let Err(error) = self.spread(&changed) {
            self.load.resume(settings.contexts);
            return Err(error);
        }
        *settings = changed;
        let mut wakers = Vec::new();
        // Under the lock, so that all parts see changes in the same order.
        self.apply(&settings, &mut wakers);
        drop(settings);
        user_code::wake_all(wakers);
        Ok(())
    }

    /// Passes the values on to the parts that use them. Adds the tasks to wake to `wakers`.
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

//! Leases and locks of a file.

use std::io;

use forebay_uring::{Coverage, Lock};

use super::OpenFile;
use crate::platform::lease::LeaseWatch;
use crate::world::machine::{Leases, Machine, call};

impl OpenFile {
    /// Takes the write lease of the file. When another program opens the file, the callback of the
    /// watch gets `key`.
    ///
    /// # Errors
    /// `WouldBlock` if the file is open elsewhere, others if the file system has no leases.
    pub fn try_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        watch.start()?;
        call(|machine| machine.take_lease(self.descriptor, watch.number(), key))
    }

    /// Returns the programs that a lease of this file holds off.
    #[must_use]
    pub fn lease_coverage(&self) -> Coverage {
        let leases = call(|machine| {
            let node = machine.node_of(self.descriptor)?;
            Ok(machine.volume_of(node).leases)
        });
        match leases {
            Ok(Leases::Enforced) => Coverage::Everyone,
            Ok(Leases::Bypassed) => Coverage::NotEveryone("fuse".to_owned()),
            Ok(Leases::Refused) | Err(_) => Coverage::NotEveryone("nfs".to_owned()),
        }
    }

    /// Watches the lease that the open file already has.
    ///
    /// # Errors
    /// If the watch is shut down.
    pub fn adopt_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        watch.start()?;
        call(|machine| machine.adopt_lease(self.descriptor, watch.number(), key))
    }

    /// Returns whether the open file has a lease that no program waits for, in any process.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        call(|machine| Ok(machine.has_lease(self.descriptor))).unwrap_or(false)
    }

    /// Gives up the lease of the open file, in all processes.
    pub fn give_up_lease(&self) {
        // Of a closed descriptor there is nothing to give up.
        let _ = call(|machine| {
            let description = machine.descriptor(self.descriptor)?.description;
            machine.give_up_lease(description);
            Ok(())
        });
    }

    /// Returns whether this process holds the lease and no program waits for it.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        let is_ours = |machine: &mut Machine| {
            let leased = machine.descriptor(self.descriptor)?.leased;
            Ok(leased.is_some() && machine.has_lease(self.descriptor))
        };
        call(is_ours).unwrap_or(false)
    }

    /// Returns whether the lease is held, even if another program waits for it.
    #[must_use]
    pub fn has_lease_still(&self) -> bool {
        let is_ours = |machine: &mut Machine| {
            let leased = machine.descriptor(self.descriptor)?.leased;
            Ok(leased.is_some() && machine.has_lease_still(self.descriptor))
        };
        call(is_ours).unwrap_or(false)
    }

    /// Gives up the lease, which lets waiting programs continue.
    pub fn release_lease(&self) {
        let _ = call(|machine| {
            machine.release_lease(self.descriptor);
            Ok(())
        });
    }

    /// Tries to lock the whole file against other engines. Does not wait.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn try_ofd_lock(&self) -> io::Result<Lock> {
        call(|machine| machine.lock(self.descriptor))
    }

    /// Releases the lock, unless it was [left](OpenFile::leave).
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn ofd_unlock(&self) -> io::Result<()> {
        call(|machine| match machine.descriptor(self.descriptor)?.is_left {
            true => Ok(()),
            false => machine.unlock(self.descriptor),
        })
    }

    /// Leaves lease and lock to the other processes that share the open file.
    pub fn leave(&self) {
        let _ = call(|machine| {
            machine.leave_lease(self.descriptor);
            Ok(())
        });
    }
}

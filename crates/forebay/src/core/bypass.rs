//! Large aligned writes under memory pressure: from the caller's memory straight to the device.

use std::sync::Arc;

use crate::core::error::Error;
use crate::core::inode::Inode;
use crate::core::shared::Shared;
use crate::platform::Direct;

impl Inode {
    /// Writes from the caller's buffer to the device, on the caller's thread, which may block.
    /// Returns `None` if the write has to go through the cache, and an error if a part of it may
    /// have been written.
    pub(crate) fn bypass(
        self: &Arc<Self>,
        shared: &Shared,
        data: &[u8],
        offset: u64,
    ) -> Option<std::io::Result<()>> {
        let (is_direct, alignment) = (*self.file.direct() == Direct::Yes, self.file.alignment());
        if !is_direct || !(data.as_ptr() as usize).is_multiple_of(alignment.memory as usize) {
            return None;
        }
        let _held = shared.hold_off_keeper()?;
        let bytes = offset..offset + data.len() as u64;
        let bypass = shared.change(self, |file| {
            self.check_whole(file).ok()?;
            file.apply(|cache, settled| cache.begin_bypass(bytes, settled))
        })?;
        let written = self.file.write_all_at(data, offset);
        let ended = shared.change(self, |file| {
            self.check_whole(file)?;
            file.cache.end_bypass(bypass);
            // Callers that wait for the file to become quiet wait for this.
            file.look();
            file.wake();
            Ok::<(), Error>(())
        });
        if let Err(error) = ended {
            return Some(Err(error.into()));
        }
        // The write moved nothing: the file system requires another alignment than it reported.
        if written.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            return None;
        }
        Some(written)
    }
}

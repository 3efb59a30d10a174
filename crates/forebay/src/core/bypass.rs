//! Large aligned writes under memory pressure: from the caller's memory straight to the device.

use std::sync::Arc;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::shared::Shared;
use crate::platform::Direct;

impl Inode {
    /// Writes from the caller's buffer to the device, on the caller's thread, which may block.
    /// Returns false if the write has to go through the cache.
    ///
    /// # Errors
    /// A part of the data may have been written.
    pub(crate) fn bypass(
        self: &Arc<Self>,
        shared: &Shared,
        data: &[u8],
        offset: u64,
    ) -> Result<bool> {
        let (is_direct, alignment) = (*self.file.direct() == Direct::Yes, self.file.alignment());
        if !is_direct || !(data.as_ptr() as usize).is_multiple_of(alignment.memory as usize) {
            return Ok(false);
        }
        let Some(_held) = shared.hold_off_keeper() else { return Ok(false) };
        let bytes = offset..offset + data.len() as u64;
        let begun = shared.change(self, |file| {
            self.check_whole(file)?;
            Ok::<_, Error>(file.apply(|cache, settled| cache.begin_bypass(bytes, settled)))
        });
        let Some(bypass) = begun? else { return Ok(false) };
        let written = self.file.write_all_at(data, offset);
        shared.change(self, |file| {
            self.check_whole(file)?;
            file.cache.end_bypass(bypass);
            // Callers that wait for the file to become quiet wait for this.
            file.look();
            file.wake();
            Ok::<(), Error>(())
        })?;
        match written {
            Ok(()) => Ok(true),
            // It moved nothing: the file system requires another alignment than it reported.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            Err(error) => {
                let what = "could not write past the cache; a part may have been written";
                Err(Error::new(ErrorKind::at_device(&error), what)
                    .at_path(&self.path)
                    .at_offset(offset)
                    .because(error)
                    .remedy("write the range again"))
            }
        }
    }
}

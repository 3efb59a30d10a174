//! What direct I/O on a file asks of addresses, offsets and lengths.

use forebay_block::limits::PAGE;
use rustix::fs::{AtFlags, StatxFlags};

use crate::file::{Direct, File};

/// What every request past the kernel's page cache has to keep. Powers of two, a page at most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Alignment {
    /// Addresses are multiples of this.
    pub memory: u32,
    /// Offsets and lengths are multiples of this.
    pub offset: u32,
}

impl Alignment {
    /// Everything goes: through the kernel's page cache.
    pub const NONE: Alignment = Alignment { memory: 1, offset: 1 };
}

impl File {
    /// What direct requests have to keep. A page where the kernel (before 6.1) does not tell; nothing where direct I/O
    /// was refused.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        if matches!(self.direct(), Direct::Refused(_)) {
            return Alignment::NONE;
        }
        let page = u32::try_from(PAGE).expect("a page is small");
        let known = rustix::fs::statx(self, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|status| status.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        let sound = |told: u32| if told.is_power_of_two() && told <= page { told } else { page };
        known.map_or(Alignment { memory: page, offset: page }, |status| Alignment {
            memory: sound(status.stx_dio_mem_align),
            offset: sound(status.stx_dio_offset_align),
        })
    }
}

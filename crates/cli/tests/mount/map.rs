//! A map of a file.

use std::fs::File;

/// A shared map of the first bytes of a file, for reading.
pub(crate) struct Map(*mut libc::c_void);

impl Map {
    pub(crate) const LENGTH: usize = 4096;

    pub(crate) fn of(file: &File) -> Self {
        use std::os::fd::AsRawFd as _;

        let (how, descriptor) = (libc::PROT_READ, file.as_raw_fd());
        let place = std::ptr::null_mut();
        // SAFETY: a new map, which nothing else uses.
        let map = unsafe { libc::mmap(place, Self::LENGTH, how, libc::MAP_SHARED, descriptor, 0) };
        assert_ne!(map, libc::MAP_FAILED);
        Self(map)
    }

    pub(crate) fn first(&self) -> u8 {
        // SAFETY: the file has this byte while the map is used.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is mapped once, and not used afterwards.
        unsafe { libc::munmap(self.0, Self::LENGTH) };
    }
}

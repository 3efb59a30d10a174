//! Options of the opens that runs make.

use crate::core::open::open_options::OpenOptions;

pub(crate) fn read() -> OpenOptions {
    OpenOptions::new().read(true).clone()
}

/// For reads and writes, as all that follow.
pub(crate) fn write() -> OpenOptions {
    read().write(true).clone()
}

pub(crate) fn create() -> OpenOptions {
    write().create(true).clone()
}

pub(crate) fn create_new() -> OpenOptions {
    write().create_new(true).clone()
}

pub(crate) fn append() -> OpenOptions {
    read().append(true).create(true).clone()
}

pub(crate) fn temporary() -> OpenOptions {
    create_new().temporary(true).clone()
}

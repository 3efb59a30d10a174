//! Threads of ours run no handler of the program's: they are started with every signal blocked.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Calls `start` while this thread blocks every signal; threads started in it block them for good.
pub(super) fn blocked<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the place is valid for a set, which is written.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set was filled above and is read during the call; the second is valid to be
    // written.
    let error =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let restore = Restore(before);
    let started = start();
    drop(restore);
    Ok(started)
}

/// The mask as it was, put back on every way out.
struct Restore(MaybeUninit<libc::sigset_t>);

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: the set was written by the call that blocked; no old one is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.0.as_ptr(), ptr::null_mut()) };
    }
}

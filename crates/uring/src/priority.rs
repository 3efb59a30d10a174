//! Scheduling class of a thread.

use std::io;

/// Priority within the real-time class: the lowest, above every normal thread.
const LOWEST: libc::c_int = 1;

/// Gives the calling thread a real-time priority (`SCHED_FIFO`, the lowest), or a normal one.
///
/// Threads that it starts, those of the kernel included, keep a normal priority.
///
/// # Errors
/// `PermissionDenied` for a real-time priority without `CAP_SYS_NICE`, if `RLIMIT_RTPRIO` is below
/// it or the control group of the process grants no real-time runtime.
pub fn set_realtime(is_realtime: bool) -> io::Result<()> {
    let (policy, sched_priority) =
        if is_realtime { (libc::SCHED_FIFO, LOWEST) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the pointer is to parameters that live during the call.
    match unsafe {
        libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: no memory is passed.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_thread_gets_the_class_or_is_refused() {
        let before = policy();
        match set_realtime(true) {
            Ok(()) => {
                assert_eq!(policy(), libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
                set_realtime(false).unwrap();
                assert_eq!(policy() & libc::SCHED_FIFO, 0);
            }
            Err(error) => {
                assert_eq!((error.kind(), policy()), (io::ErrorKind::PermissionDenied, before));
            }
        }
    }
}

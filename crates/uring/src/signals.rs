//! The signals that this process was started to ignore.

/// Returns those of these signals that are not ignored. A program should handle no others: a caller
/// that starts it with a signal ignored, such as `nohup`, wants it to go on when that signal comes.
#[must_use]
pub fn not_ignored(signals: &[libc::c_int]) -> Vec<libc::c_int> {
    signals.iter().copied().filter(|signal| !is_ignored(*signal)).collect()
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut present = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), present.as_mut_ptr()) };
    // SAFETY: the call has written the present action.
    failed == 0 && unsafe { present.assume_init() }.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_ignored_if_the_process_says_so() {
        // Signals that nothing in this process uses. The number is no signal.
        let asked = [libc::SIGUSR2, libc::SIGWINCH, 9999];
        assert_eq!(not_ignored(&asked), asked);
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGWINCH, libc::SIG_IGN) };
        assert_eq!(not_ignored(&asked), [libc::SIGUSR2, 9999]);
    }
}

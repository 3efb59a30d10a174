//! A system call that the kernel refuses to this process from now on, as container filters do.

use std::io;

/// The threads that the call is refused to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// The calling thread and those it starts.
    This,
    /// All threads of the process.
    All,
}

/// Makes the kernel answer a system call with an error. This cannot be undone.
pub(crate) fn system_call(number: libc::c_long, errno: i32, threads: Threads) {
    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    // Offsets in `struct seccomp_data`: the number of the call, and its architecture.
    const NUMBER: u32 = 0;
    const NUMBERS_OF: u32 = 4;
    let load = |offset: u32| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    // Skips `skip` instructions if the word is not the value.
    let unless = |value: u32, skip: u8| libc::sock_filter { code: 0x15, jt: 0, jf: skip, k: value };
    let answer = |action: u32| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: action };
    let mut filter = [
        load(NUMBERS_OF),
        unless(ARCHITECTURE, 3),
        load(NUMBER),
        unless(u32::try_from(number).unwrap(), 1),
        answer(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    let flags = match threads {
        Threads::This => 0,
        Threads::All => libc::SECCOMP_FILTER_FLAG_TSYNC,
    };
    // SAFETY: takes numbers alone.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: the program and its instructions, as many as it says, are read during the call.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

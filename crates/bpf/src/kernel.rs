//! The system call `bpf(2)`: a map of counters, and programs attached to tracepoints.
//!
//! Each is a descriptor. The kernel removes a program when its last descriptor is closed, so a
//! process that is killed leaves nothing behind.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands, types and attach types (`linux/bpf.h`).
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_RAW_TRACEPOINT: u32 = 23;

/// License of the programs. The kernel lets only programs compatible with the GPL follow its
/// pointers.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// Bytes of the verifier's log.
const LOG_BYTES: usize = 64 << 10;

/// Request for a new map. The kernel takes the rest as zero.
#[repr(C)]
struct MapRequest {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    most_entries: u32,
    flags: u32,
}

/// Request for a value of a map.
#[repr(C)]
struct LookupRequest {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Request for a new program.
#[repr(C)]
#[derive(Default)]
struct ProgramRequest {
    program_type: u32,
    instructions: u32,
    first_instruction: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
    types: u32,
    function_info_bytes: u32,
    function_info: u64,
    function_infos: u32,
    line_info_bytes: u32,
    line_info: u64,
    line_infos: u32,
    attach_to: u32,
    attach_in: u32,
    padding: u32,
}

/// Request to attach a program to its tracepoint.
#[repr(C)]
struct AttachRequest {
    name: u64,
    program: u32,
    padding: u32,
}

/// Counters for each processor.
#[derive(Debug)]
pub(crate) struct PerProcessor {
    map: OwnedFd,
    words: usize,
    processors: usize,
}

impl PerProcessor {
    /// Creates a map with `words` counters of 64 bits.
    pub(crate) fn new(words: usize) -> io::Result<Self> {
        let processors = possible_processors()?;
        let value_bytes = u32::try_from(words * 8).expect("counters are few");
        let map = new_map(&MapRequest {
            map_type: MAP_TYPE_PERCPU_ARRAY,
            key_bytes: 4,
            value_bytes,
            most_entries: 1,
            flags: 0,
        })?;
        Ok(Self { map, words, processors })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Returns the counters of one processor after the other.
    pub(crate) fn read(&self) -> io::Result<Vec<u64>> {
        let mut values = vec![0_u64; self.words * self.processors];
        let key = 0_u32;
        let request = LookupRequest {
            map: self.map.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: (&raw const key).addr() as u64,
            value: values.as_mut_ptr().addr() as u64,
            flags: 0,
        };
        // The kernel writes through that address.
        values.as_mut_ptr().expose_provenance();
        // SAFETY: the key is of the map's size, and the kernel writes the value of every possible
        // processor; there is room for all of them.
        unsafe { bpf(MAP_LOOKUP_ELEM, &request) }?;
        Ok(values)
    }
}

fn new_map(request: &MapRequest) -> io::Result<OwnedFd> {
    // SAFETY: the request names no memory.
    let map = unsafe { bpf(MAP_CREATE, request) }?;
    Ok(owned(map))
}

/// Runs a program at a tracepoint as long as the returned descriptor is open.
pub(crate) fn attach(instructions: &[u64], to: u32) -> Result<OwnedFd, String> {
    let program = load(instructions, to)?;
    let request =
        AttachRequest { name: 0, program: program.as_raw_fd().cast_unsigned(), padding: 0 };
    // SAFETY: without a name the request names no memory.
    let link = unsafe { bpf(RAW_TRACEPOINT_OPEN, &request) };
    // The link holds the program.
    link.map(owned).map_err(|error| format!("cannot attach the program: {error}"))
}

fn load(instructions: &[u64], to: u32) -> Result<OwnedFd, String> {
    let mut request = ProgramRequest {
        program_type: PROG_TYPE_TRACING,
        instructions: u32::try_from(instructions.len()).expect("programs are short"),
        first_instruction: instructions.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        name: *b"forebay_batching",
        expected_attach_type: TRACE_RAW_TRACEPOINT,
        attach_to: to,
        ..ProgramRequest::default()
    };
    // The last byte of a name is zero.
    request.name[15] = 0;
    // SAFETY: instructions and license are where the request says, and live until the call returns.
    let refused = match unsafe { bpf(PROG_LOAD, &request) } {
        Ok(program) => return Ok(owned(program)),
        Err(error) => error,
    };
    // Once more, for the log.
    let mut log = vec![0_u8; LOG_BYTES];
    request.log_level = 1;
    request.log_bytes = LOG_BYTES as u32;
    request.log = log.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: as above, and the log is as long as said.
    if let Ok(program) = unsafe { bpf(PROG_LOAD, &request) } {
        return Ok(owned(program));
    }
    let said = String::from_utf8_lossy(&log);
    let said = said.trim_matches('\0').trim();
    // The last lines are statistics of the verifier.
    let reason = said.lines().rfind(|line| !line.starts_with("processed") && !line.is_empty());
    Err(reason.map_or_else(|| refused.to_string(), |reason| format!("{refused}: {reason}")))
}

/// # Safety
/// All memory that the request names must be as long as the kernel takes it to be, and must live
/// until this function returns.
unsafe fn bpf<T>(command: libc::c_long, request: &T) -> io::Result<libc::c_long> {
    // SAFETY: the request lives and has this length; the caller vouches for the memory it names.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *request, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(descriptor: libc::c_long) -> OwnedFd {
    let descriptor = libc::c_int::try_from(descriptor).expect("descriptors are small");
    // SAFETY: the kernel has just opened it for this call alone.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Returns the number of processors with values in a map: all that can ever be online.
fn possible_processors() -> io::Result<usize> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(PATH)?;
    highest(&text).map(|last| last + 1).ok_or_else(|| {
        io::Error::other(format!("{PATH}: {} is not a list of processors", text.trim()))
    })
}

/// Returns the highest number of a list such as `0-3,8`.
fn highest(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(std::mem::offset_of!(ProgramRequest, name), 48);
        assert_eq!(std::mem::offset_of!(ProgramRequest, expected_attach_type), 68);
        assert_eq!(std::mem::offset_of!(ProgramRequest, attach_to), 108);
        assert_eq!(std::mem::offset_of!(LookupRequest, key), 8);
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(highest("0-1\n"), Some(1));
        assert_eq!(highest("0\n"), Some(0));
        assert_eq!(highest("0-3,8-11\n"), Some(11));
        assert_eq!(highest(""), None);
        assert!(possible_processors().unwrap() >= 1);
    }
}

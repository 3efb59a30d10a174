#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // In memory: a flush takes no time.
    let scratch = tempfile::tempdir_in("/dev/shm").expect("a new directory");
    forebay_mount::fuzzed::requests(data, scratch.path());
});

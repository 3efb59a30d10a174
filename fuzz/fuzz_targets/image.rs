#![no_main]

#[path = "../../crates/forebay/tests/engine/arenas.rs"]
mod arenas;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // In memory: a flush takes no time.
    let scratch = tempfile::tempdir_in("/dev/shm").expect("a new directory");
    arenas::recovery(data, scratch.path());
});

//! Heap memory, threads and descriptors of an engine that does nothing, and of each open file. The
//! cache itself, a mapping of a fixed size, does not count: a page of it takes memory once it is
//! used.
//!
//! ```text
//! ulimit -n 20000; cargo run --release -p forebay --example idle_cost -- DIRECTORY 4000
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::{Engine, File, OpenOptions, Options};

/// The allocator of the system, which counts the bytes asked for.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `dealloc`, and the memory is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone, Copy)]
struct Taken {
    heap: usize,
    threads: usize,
    descriptors: usize,
}

fn main() -> forebay::Result<()> {
    let usage = "idle_cost DIRECTORY FILES";
    let mut arguments = std::env::args().skip(1);
    let directory = Path::new(&arguments.next().expect(usage)).join("idle_cost");
    let count: usize = arguments.next().expect(usage).parse().expect(usage);
    std::fs::create_dir_all(&directory).expect("a directory to write to");
    println!("{:28} {:>12} {:>8} {:>12}", "", "heap", "threads", "descriptors");
    let alone = taken();
    let engine = Engine::start(Options { cache_bytes: Some(256 << 20), ..Options::default() })?;
    show("an engine", taken(), alone, 1);
    let open = |number| {
        engine.open(
            directory.join(format!("{number}")),
            OpenOptions::new().read(true).write(true).create(true),
        )
    };
    let first = open(0)?;
    first.write_at(&[7; 4096], 0)?;
    first.sync_data()?;
    show("with a file that was synced", taken(), alone, 1);
    let used = taken();
    let mut files = Vec::with_capacity(count);
    for number in 1..=count {
        files.push(open(number)?);
    }
    show("each other open file", taken(), used, count);
    files.iter().try_for_each(|file| file.write_at(&[7; 4096], 0))?;
    show("with a dirty page of 4 KiB", taken(), used, count);
    files.iter().try_for_each(File::sync_data)?;
    // Threads that the kernel has started for the syncs have gone by then.
    std::thread::sleep(Duration::from_secs(6));
    show("and synced", taken(), used, count);
    files.into_iter().chain([first]).try_for_each(File::close)?;
    drop(engine);
    std::fs::remove_dir_all(&directory).expect("its own files go");
    Ok(())
}

fn show(what: &str, now: Taken, before: Taken, count: usize) {
    println!(
        "{what:28} {:>10} B {:>8} {:>12}",
        now.heap.saturating_sub(before.heap) / count,
        now.threads.saturating_sub(before.threads) / count,
        now.descriptors.saturating_sub(before.descriptors) / count,
    );
}

fn taken() -> Taken {
    let count = |path| std::fs::read_dir(path).expect("proc is mounted").count();
    Taken {
        heap: BYTES.load(Ordering::Relaxed),
        threads: count("/proc/self/task"),
        descriptors: count("/proc/self/fd"),
    }
}

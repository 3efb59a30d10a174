//! What the pool alone can be seen to do; what it has in common with the ring is tried on both.

use std::fs;

use forebay_block::{Class, Segments, Source};

use super::*;
use crate::{Access, Create, How, Truncate};

fn bio(operation: Operation, offset: u64, length: u64) -> Bio {
    let (target, segments, class, source) = (Target(0), Segments::new(), Class::Waited, Source(0));
    Bio { operation, target, offset, length, segments, class, source, owner: 0 }
}

/// Processor time of this process's threads of that name, in clock ticks, and how many there are.
fn threads_named(prefix: &str) -> (usize, u64) {
    let mut found = (0, 0);
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(text) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((head, rest)) = text.rsplit_once(')') else { continue };
        if head.split_once('(').is_some_and(|(_, name)| name.starts_with(prefix)) {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            found.0 += 1;
            found.1 += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    found
}

/// One test, for others of the same process would start threads of the same name.
#[test]
fn contract_16_an_idle_pool_uses_no_processor_and_leaves_no_thread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let how = How { access: Access::ReadWrite, create: Create::New, truncate: Truncate::Keep, mode: 0o600 };
    let file = Arc::new(File::open(&path, &how).unwrap().file);
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut threads = Threads::new(Arc::clone(&arena), 4).unwrap();
    assert_eq!(threads.describe(), "thread pool: asked for");
    threads.attach(Target(0), Arc::clone(&file));
    let (count, before) = threads_named("forebay-io-");
    assert_eq!(count, WORKERS);
    let start = Instant::now();
    threads.doorbell(Wait::Something(Some(Duration::from_millis(300)))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
    let (_, after) = threads_named("forebay-io-");
    // One that looked again and again would use thirty; one may still have been on its way to sleep.
    assert!(after - before <= 2, "{} clock ticks for nothing", after - before);

    // They are of use all the same.
    threads.prepare(Tag(0), &bio(Operation::SetLength, 77, 0)).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        threads.doorbell(Wait::Something(None)).unwrap();
        threads.reap(&mut done);
    }
    assert_eq!(done, [Completion { tag: Tag(0), result: Ok(0) }]);
    assert_eq!(file.length().unwrap(), 77);

    drop(threads);
    assert_eq!(threads_named("forebay-io-").0, 0);
    assert_eq!((Arc::strong_count(&arena), Arc::strong_count(&file)), (1, 1));
}

#[test]
fn a_pool_says_why_it_is_there() {
    let arena = Arc::new(Arena::new(1).unwrap());
    let refused = SetupError::Forbidden("no entry".into());
    let (push, ended) = fifo();
    // Without threads, for another test counts them.
    let threads = Threads {
        pool: Arc::new(Pool::new(arena, push).unwrap()),
        workers: Vec::new(),
        home: Home::here(),
        why: refused.to_string(),
        targets: Targets::default(),
        slots: Vec::new(),
        staged: Vec::new(),
        entries: 1,
        in_flight: 0,
        ended,
        arrived: VecDeque::new(),
        waker: Waker::new().unwrap(),
    };
    assert_eq!(threads.describe(), "thread pool: io_uring is forbidden here: no entry");
}

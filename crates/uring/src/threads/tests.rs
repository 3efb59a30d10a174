//! Behaviour of the pool alone; `tests/backend.rs` has what it shares with the ring.

use std::fs;

use forebay_block::{Class, Segments, Source};

use super::*;
use crate::{Access, Create, How, Truncate};

fn bio(operation: Operation, offset: u64, length: u64) -> Bio {
    let (target, segments, class, source) = (Target(0), Segments::new(), Class::Waited, Source(0));
    Bio { operation, target, offset, length, segments, class, source, owner: 0 }
}

/// How often each of this pool's threads went to sleep; `None` where one does not sleep now.
fn sleeps() -> Vec<Option<u64>> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(text) = fs::read_to_string(task.path().join("status")) else { continue };
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
        if field("Name:").starts_with("forebay-io-") {
            let asleep = field("State:").starts_with('S');
            found.push(asleep.then(|| field("voluntary_ctxt_switches:").parse().unwrap()));
        }
    }
    found
}

/// One test, for others of the same process would start threads of the same name.
#[test]
fn contract_16_an_idle_pool_uses_no_processor_and_leaves_no_thread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let how = How {
        access: Access::ReadWrite,
        create: Create::New,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    let file = Arc::new(OpenFile::open(&path, &how).unwrap().file);
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut threads = Threads::new(Arc::clone(&arena), 4).unwrap();
    assert_eq!(threads.describe(), "thread pool: asked for");
    threads.attach(Target(0), Arc::clone(&file));
    let patience = Instant::now() + Duration::from_secs(20);
    // Until all have started and found nothing to do.
    let idle = loop {
        let first = sleeps();
        thread::sleep(Duration::from_millis(20));
        if first.len() == WORKERS && first.iter().all(Option::is_some) && first == sleeps() {
            break first;
        }
        assert!(Instant::now() < patience, "{first:?}");
    };
    let start = Instant::now();
    threads.doorbell(Wait::Something(Some(Duration::from_millis(200)))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert_eq!(sleeps(), idle, "who has nothing to do is not woken");

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
    // A joined thread is seen until the kernel has taken it off the list.
    let patience = Instant::now() + Duration::from_secs(20);
    while !sleeps().is_empty() {
        assert!(Instant::now() < patience, "{:?}", sleeps());
        thread::sleep(Duration::from_millis(1));
    }
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
        lent: Lent::new(),
        staged: Vec::new(),
        entries: 1,
        in_flight: 0,
        ended,
        arrived: VecDeque::new(),
        waker: Waker::new().unwrap(),
    };
    assert_eq!(threads.describe(), "thread pool: io_uring is forbidden here: no entry");
}

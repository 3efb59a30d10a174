//! Writers near the dirty limit: all go on, with any number of files, even if idle files hold room.

mod support;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, Options};
use support::how;

/// A small cache whose pages are never written for their age, so only another cause of writeback
/// can help a waiting writer.
fn tight_engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_bytes: Some(4 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    })
    .unwrap()
}

/// Files that went quiet after having been granted room must not keep it from those that write.
#[test]
fn contract_12_quiet_files_give_their_room_back() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let engine = tight_engine();
    let files: Vec<_> = (0..64)
        .map(|number| {
            engine.open(directory.path().join(format!("{number}")), &how::create_new()).unwrap()
        })
        .collect();
    let block = vec![7; 64 << 10];
    for round in 0..8u64 {
        std::thread::scope(|scope| {
            for chunk in files.chunks(8) {
                let block = &block;
                scope.spawn(move || {
                    for file in chunk {
                        file.write_at(block, round * block.len() as u64).unwrap();
                    }
                });
            }
        });
    }
    assert!(engine.stats().throttle_waits > 0, "the limit was never reached: nothing was tested");
    assert!(engine.stats().peak_dirty_bytes <= 8 << 20);
    files.into_iter().for_each(|file| file.close().unwrap());
    engine.shutdown(Duration::from_secs(10)).unwrap();
    assert_eq!(engine.stats().dirty_bytes, 0);
}

/// Tasks that are not polled again have places in the queue, or room that they do not take.
#[test]
fn contract_12_a_shutdown_ends_beside_writes_that_are_not_polled_again() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let engine = tight_engine();
    let file = engine.open(directory.path().join("file"), &how::create_new()).unwrap();
    let (block, mut kept, mut number) = (vec![7; 64 << 10], Vec::new(), 0);
    let context = &mut Context::from_waker(Waker::noop());
    while kept.len() < 8 {
        let at = number * block.len() as u64;
        let mut write = Box::pin(file.asynchronous().write_at(&block, at));
        if write.as_mut().poll(context).is_pending() {
            kept.push(write);
        }
        number += 1;
    }
    // Some get room.
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    engine.shutdown(Duration::from_secs(60)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(engine.stats().dirty_bytes, 0);
    for write in &mut kept {
        let Poll::Ready(Err(error)) = write.as_mut().poll(context) else {
            panic!("no context makes room for it");
        };
        assert_eq!(error.kind(), ErrorKind::Shutdown);
    }
}

/// All that is dirty are the ends of files: nobody may have to wait for their age.
#[test]
fn contract_12_many_small_files_at_the_limit_go_on() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let engine = tight_engine();
    let open = |number: usize| {
        let file =
            engine.open(directory.path().join(format!("{number}")), &how::create_new()).unwrap();
        file.write_at(b"a little", 0).unwrap();
        file
    };
    let small: Vec<_> = (0..2100).map(open).collect();
    small.into_iter().for_each(|file| file.close().unwrap());
    engine.shutdown(Duration::from_secs(10)).unwrap();
}

/// Writers of one file pass its limit of dirty pages by turns. Their executor prefers the first,
/// which gain a write where nothing is in flight for a moment: then nobody has to wait.
#[test]
fn contract_15_uncached_writers_of_a_file_take_turns() {
    const WRITERS: usize = 64;
    const BLOCK: usize = 128 << 10;
    const ROUNDS: usize = 60;
    let directory = tempfile::tempdir_in(".").unwrap();
    let options = Options { cache_bytes: Some(64 << 20), uncached: true, ..Options::default() };
    let engine = Engine::start(options).unwrap();
    let file = engine.open(directory.path().join("file"), &how::create_new()).unwrap();
    let (block, written) = (vec![7; BLOCK], [const { Cell::new(0usize) }; WRITERS]);
    let largest_lead = Cell::new(0);
    let writer = |number: usize| {
        let (file, block, written, largest_lead) = (&file, &block, &written, &largest_lead);
        Box::pin(async move {
            for round in 0..ROUNDS {
                let at = (round * WRITERS + number) * BLOCK;
                file.asynchronous().write_at(block, at as u64).await.unwrap();
                written[number].set(round + 1);
                let least = written.iter().map(Cell::get).min().unwrap();
                largest_lead.set(largest_lead.get().max(round + 1 - least));
                // Others have their turn before the next write.
                let mut has_yielded = false;
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::replace(&mut has_yielded, true) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            }
        })
    };
    let mut writers: Vec<Pin<Box<dyn Future<Output = ()>>>> =
        (0..WRITERS).map(|number| writer(number) as _).collect();
    support::block_on(poll_fn(|context| {
        writers.retain_mut(|writer| writer.as_mut().poll(context).is_pending());
        if writers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    println!("a writer was at most {} writes ahead of another", largest_lead.get());
    assert!(largest_lead.get() < ROUNDS / 2, "{}", largest_lead.get());
    drop(writers);
    file.close().unwrap();
}

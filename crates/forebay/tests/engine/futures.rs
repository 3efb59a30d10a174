//! The asynchronous calls, on the smallest executors there are: one that polls many on a thread,
//! and one that polls once and drops.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support::{self, MIB, how, pattern, within};
use forebay::{AsyncFile, Engine, ErrorKind, File, Options};
use forebay_block::random::Random;

const SOON: Duration = Duration::from_secs(10);

/// A waker that does nothing, and an executor that polls once.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

struct Flag(std::thread::Thread);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: polls several futures on one thread until all have ended.
fn run_all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let waker = Waker::from(Arc::new(Flag(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut done = Vec::new();
    loop {
        for slot in &mut futures {
            if let Some(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(&mut context)
            {
                done.push(result);
                *slot = None;
            }
        }
        if futures.iter().all(Option::is_none) {
            return done;
        }
        std::thread::park();
    }
}

#[test]
fn contract_13_many_futures_on_one_thread() {
    within(Duration::from_secs(30), "one executor", || {
        let directory = support::directory();
        let engine =
            Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
        let files: Vec<File> = (0..6)
            .map(|at| engine.open(directory.path().join(format!("{at}")), &how::create()).unwrap())
            .collect();
        let work = |at: usize| {
            let file = &files[at];
            async move {
                let data = pattern(at as u64, 3 << 20);
                for (part, chunk) in data.chunks(100_000).enumerate() {
                    file.asynchronous().write_at(chunk, part as u64 * 100_000).await?;
                }
                file.asynchronous().sync_data().await?;
                let mut buffer = vec![0; 3 << 20];
                assert_eq!(file.asynchronous().read_at(&mut buffer, 0).await?, 3 << 20);
                assert!(buffer == data);
                file.asynchronous().append(b"end").await?;
                file.asynchronous().set_len((3 << 20) + 2).await
            }
        };
        let futures = (0..6)
            .map(|at| Box::pin(work(at)) as Pin<Box<dyn Future<Output = forebay::Result<()>>>>);
        for result in run_all(futures.collect()) {
            result.unwrap();
        }
        for file in files {
            file.close().unwrap();
        }
        for at in 0..6 {
            let found = std::fs::read(directory.path().join(format!("{at}"))).unwrap();
            assert!(found[..3 << 20] == pattern(at, 3 << 20) && &found[3 << 20..] == b"en");
        }
    });
}

#[test]
fn contract_13_dropped_futures_leave_a_prefix_and_the_engine_works_on() {
    within(Duration::from_secs(30), "dropped futures", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine = Engine::start(Options {
            cache_bytes: Some(8 << 20),
            close_timeout: SOON,
            ..Options::default()
        })
        .unwrap();
        let file = engine.open(&path, &how::create()).unwrap();
        let (mut random, mut model) = (Random::new(11), vec![0u8; 0]);
        let mut pending = 0;
        for round in 0..400u64 {
            let data = pattern(round, 1 + random.below(400_000) as usize);
            let offset = random.below(12 * MIB) as usize;
            model.resize(model.len().max(offset + data.len()), 0);
            match random.below(4) {
                0 => pending += usize::from(poll_once(file.asynchronous().sync_data()).is_none()),
                1 => {
                    let mut buffer = vec![0; 50_000];
                    pending += usize::from(
                        poll_once(file.asynchronous().read_at(&mut buffer, offset as u64))
                            .is_none(),
                    );
                }
                2 => pending += usize::from(poll_once(file.asynchronous().append(&[])).is_none()),
                _ => match poll_once(file.asynchronous().write_at(&data, offset as u64)) {
                    Some(result) => {
                        result.unwrap();
                        model[offset..offset + data.len()].copy_from_slice(&data);
                    }
                    None => {
                        pending += 1;
                        // Some prefix was accepted; what that was is what is there now.
                        let mut now = vec![0; data.len()];
                        let read = file.read_at(&mut now, offset as u64).unwrap();
                        let prefix =
                            now.iter().zip(&data).take_while(|(now, data)| now == data).count();
                        let old = &model[offset..offset + data.len()];
                        let rest = now[prefix..read] == old[prefix..read];
                        assert!(rest, "round {round}: no prefix of {} at {offset}", data.len());
                        model[offset..offset + prefix].copy_from_slice(&data[..prefix]);
                    }
                },
            }
        }
        println!("{pending} futures dropped half-way");
        assert!(pending > 10, "{pending} futures dropped half-way");
        file.sync_data().unwrap();
        let mut found = std::fs::read(&path).unwrap();
        found.resize(model.len(), 0);
        assert!(found == model);
        // Nothing that was dropped holds anything: appends, changes of length, all of the memory.
        file.append(b"end").unwrap();
        file.set_len(1).unwrap();
        file.write_at(&vec![1; 24 << 20], 0).unwrap();
        file.close().unwrap();
        engine.shutdown(SOON).unwrap();
        assert_eq!(engine.stats().dirty_bytes, 0, "what was charged is charged for ever");
    });
}

/// A dropped change of length, and a dropped append in the middle of its wait, hold nobody up.
#[test]
fn contract_13_a_dropped_append_gives_its_turn_back() {
    within(SOON, "appending after a dropped append", || {
        let directory = support::directory();
        let engine =
            Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
        let file = engine.open(directory.path().join("file"), &how::append()).unwrap();
        let mut dropped = 0;
        for _ in 0..20 {
            let before = file.len().unwrap();
            match poll_once(file.asynchronous().append(&vec![1; 9 << 20])) {
                Some(result) => drop(result.unwrap()),
                None => dropped += 1,
            }
            let at = file.append(b"next").unwrap();
            assert!(at >= before && at == file.len().unwrap() - 4);
            // It goes on unheard, before what comes after it.
            let _ = poll_once(file.asynchronous().set_len(100));
            file.set_len(100).unwrap();
        }
        assert!(dropped > 0);
        file.close().unwrap();
    });
}

/// An executor's thread goes on while opens wait for a file system or for each other.
#[test]
fn contract_12_opens_and_a_shutdown_do_not_block_the_executor() {
    within(Duration::from_secs(30), "one executor", || {
        let directory = support::directory();
        let engine =
            Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
        let open = |at: usize| {
            let path = directory.path().join(format!("{}", at % 20));
            let engine = engine.clone();
            async move {
                let file = engine.asynchronous().open(&path, &how::create()).await?;
                file.asynchronous().append(&[at as u8; 1000]).await?;
                AsyncFile::close(file).await
            }
        };
        let futures = (0..100)
            .map(|at| Box::pin(open(at)) as Pin<Box<dyn Future<Output = forebay::Result<()>>>>);
        let results = run_all(futures.collect());
        assert!(results.into_iter().all(|result| result.is_ok()));
        for at in 0..20 {
            let length = std::fs::metadata(directory.path().join(at.to_string())).unwrap().len();
            assert_eq!(length, 5000);
        }
        let missing = directory.path().join("no/such");
        let refused = run_all(vec![Box::pin(engine.asynchronous().open(&missing, &how::read()))]);
        assert_eq!(refused[0].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
        let file = engine.open(directory.path().join("last"), &how::create()).unwrap();
        file.write_at(b"last", 0).unwrap();
        let ended = run_all(vec![Box::pin(engine.asynchronous().shutdown(SOON))]);
        assert!(ended[0].is_ok());
        assert_eq!(std::fs::read(directory.path().join("last")).unwrap(), b"last");
        let late = run_all(vec![Box::pin(engine.asynchronous().open(&missing, &how::read()))]);
        assert_eq!(late[0].as_ref().unwrap_err().kind(), ErrorKind::Shutdown);
    });
}

/// A task that is polled by a thread of the engine may open a file, because that does not block.
#[test]
fn contract_12_an_open_from_the_callback_of_the_engine_is_served() {
    within(Duration::from_secs(30), "an open from a waker", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine =
            Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
        let file = engine.open(&path, &how::create()).unwrap();
        file.write_at(&pattern(1, 100_000), 0).unwrap();
        // The executor of this task is the thread that wakes it, which is a context.
        let (reported, report) = std::sync::mpsc::channel();
        let other = directory.path().join("other");
        let task = async move {
            file.asynchronous().sync_data().await?;
            let opened = engine.asynchronous().open(&other, &how::create()).await?;
            AsyncFile::close(opened).await?;
            AsyncFile::close(file).await
        };
        Task::start(async move { reported.send(task.await).unwrap() });
        report.recv().unwrap().unwrap();
    });
}

/// A task that runs on the thread that wakes it.
struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>, AtomicBool);

impl Task {
    fn start(future: impl Future<Output = ()> + Send + 'static) {
        Arc::new(Self(Mutex::new(Some(Box::pin(future))), AtomicBool::new(false))).wake();
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        while self.1.load(Ordering::SeqCst) {
            // Another thread polls, and looks at the flag afterwards.
            let Ok(mut slot) = self.0.try_lock() else { return };
            self.1.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&self));
            if let Some(future) = slot.as_mut()
                && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *slot = None;
            }
        }
    }
}

//! The program's own code on the engine's threads and beside its locks: wakers that call the
//! engine, callbacks and wakers that panic, and engines that end where nobody would expect it.

mod support;

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use forebay::options::Prealloc;
use forebay::{AsyncFile, Engine, ErrorKind, File, Options};
use support::mount::{FileSystem, Frozen, Mount};
use support::{MIB, PAGE, assert_on_disk, eventually, how, kind_of, knobs, pattern, within};

/// The longest a step may take before it counts as hanging.
const SOON: Duration = Duration::from_secs(20);

/// Tests count the engine's threads in the whole process, so they run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the engine's threads that run now.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end between the listing and the look.
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("forebay")).collect()
}

fn assert_all_threads_end() {
    assert!(eventually(SOON, || threads().is_empty()), "still there: {:?}", threads());
}

/// A waker that runs a closure when it is woken.
struct Hook<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Hook<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(run: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Hook(run)))
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>, waker: &Waker) -> Poll<T> {
    future.poll(&mut Context::from_waker(waker))
}

/// A value that another thread may take and drop.
type Slot<T> = Arc<Mutex<Option<T>>>;

fn slot<T>(value: T) -> Slot<T> {
    Arc::new(Mutex::new(Some(value)))
}

fn drop_from<T>(slot: &Mutex<Option<T>>) {
    let value = slot.lock().unwrap().take();
    drop(value);
}

fn small_ext4(test: &str) -> Option<Mount> {
    Mount::new(test, FileSystem::Ext4, 64 * MIB)
}

/// Pages that are dirty or promised to a writer.
fn dirty_pages(engine: &Engine) -> u64 {
    engine.stats().dirty_bytes / PAGE
}

/// Thaws a file system even if the test that froze it hangs.
#[derive(Default)]
struct Thaws(Slot<Frozen>);

impl Drop for Thaws {
    fn drop(&mut self) {
        drop_from(&self.0);
    }
}

/// Dropping a handle gives its unused room to the next writer, whose waker drops another handle:
/// both need the table of open files.
#[test]
fn contract_11_a_waker_may_drop_a_file() {
    let _alone = alone();
    // With plenty of room for all that is written, or a write would allocate, and wait for the
    // thaw.
    let mount = Mount::new("a_waker_may_drop_a_file", FileSystem::Ext4, 512 * MIB);
    let Some(mount) = mount else { return };
    let frozen = Thaws::default();
    let freezes = Arc::clone(&frozen.0);
    within(SOON, "a waker that drops a file", move || {
        let engine = Engine::start(Options {
            cache_bytes: Some(32 << 20),
            dirty_bytes: Some(8 << 20),
            dirty_age: Duration::from_secs(600),
            close_timeout: SOON,
            prealloc: Prealloc::Off,
            ..Options::default()
        })
        .unwrap();
        let open = |name: &str| engine.open(mount.path().join(name), &how::create()).unwrap();
        let (first, second, bulk) = (open("first"), open("second"), open("bulk"));
        let dropped = slot(open("dropped"));
        // More than what a file may have dirty without waiting for others.
        first.write_at(&vec![1; 256 << 10], 0).unwrap();
        second.write_at(&vec![2; 256 << 10], 0).unwrap();
        // Nothing is written out, so no room comes back by itself.
        *freezes.lock().unwrap() = Some(mount.freeze());
        {
            let data = vec![3; 12 << 20];
            let mut fills = pin!(bulk.asynchronous().write_at(&data, 0));
            assert!(poll(fills.as_mut(), Waker::noop()).is_pending());
        }
        let page = [4; PAGE as usize];
        {
            let mut writes = pin!(first.asynchronous().write_at(&page, 256 << 10));
            assert!(poll(writes.as_mut(), Waker::noop()).is_pending());
            // Room for one grant of 16 pages, and for half of another one.
            let limit = (dirty_pages(&engine) + 24) * PAGE;
            knobs::set(&engine, "dirty_bytes", &limit.to_string()).unwrap();
            assert!(poll(writes.as_mut(), Waker::noop()).is_ready());
        }
        let woken = Arc::new(AtomicUsize::new(0));
        let drops = {
            let (dropped, woken) = (Arc::clone(&dropped), Arc::clone(&woken));
            waker(move || {
                drop_from(&dropped);
                woken.fetch_add(1, Ordering::SeqCst);
            })
        };
        let mut waits = pin!(second.asynchronous().write_at(&page, 256 << 10));
        assert!(poll(waits.as_mut(), &drops).is_pending());
        drop(first);
        assert!(woken.load(Ordering::SeqCst) > 0, "the room was not given on");
        assert!(dropped.lock().unwrap().is_none());
        assert!(poll(waits.as_mut(), &drops).is_ready());
        drop_from(&freezes);
        second.sync_data().unwrap();
        bulk.close().unwrap();
    });
}

/// Calls that take every lock of the engine and of a file, and drop a handle.
struct Nosy {
    engine: Engine,
    file: Arc<File>,
    handles: Mutex<Vec<File>>,
    inner: Waker,
}

impl Nosy {
    fn look(&self) {
        assert!(self.file.len().unwrap() <= 64 * MIB);
        let _ = self.file.describe();
        // A writer that is not polled again gives its place up.
        knobs::set(&self.engine, "dirty_bytes", "4m").unwrap();
        let _ = self.engine.stats();
        let handle = self.handles.lock().unwrap().pop();
        drop(handle);
    }

    fn waker(self: Arc<Self>) -> Waker {
        let data = Arc::into_raw(self).cast();
        // SAFETY: the functions of the table take what `Arc::into_raw` made, and each of them keeps
        // the count of references that the contract of a waker asks for.
        unsafe { Waker::from_raw(RawWaker::new(data, &NOSY)) }
    }
}

/// A waker that looks around when it is cloned, woken and dropped.
static NOSY: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the waker that is cloned holds a reference, which stays its own.
        let nosy = unsafe { std::mem::ManuallyDrop::new(Arc::<Nosy>::from_raw(data.cast())) };
        nosy.look();
        let cloned = Arc::clone(&nosy);
        RawWaker::new(Arc::into_raw(cloned).cast(), &NOSY)
    },
    |data| {
        // SAFETY: the waker is consumed, and its reference with it.
        let nosy = unsafe { Arc::<Nosy>::from_raw(data.cast()) };
        nosy.look();
        nosy.inner.wake_by_ref();
    },
    |data| {
        // SAFETY: the waker that wakes holds a reference, which stays its own.
        let nosy = unsafe { std::mem::ManuallyDrop::new(Arc::<Nosy>::from_raw(data.cast())) };
        nosy.look();
        nosy.inner.wake_by_ref();
    },
    |data| {
        // SAFETY: the waker goes, and its reference with it.
        let nosy = unsafe { Arc::<Nosy>::from_raw(data.cast()) };
        nosy.look();
    },
);

/// Returns an engine whose writers soon wait for room.
fn throttled_soon() -> Engine {
    let options = Options {
        cache_bytes: Some(8 << 20),
        dirty_bytes: Some(4 << 20),
        close_timeout: SOON,
        ..Options::default()
    };
    Engine::start(options).unwrap()
}

/// The engine holds no lock when it clones, wakes or drops a waker.
#[test]
fn contract_11_wakers_that_call_the_engine_meet_no_lock() {
    let _alone = alone();
    within(2 * SOON, "wakers that call the engine", || {
        let directory = support::directory();
        let engine = throttled_soon();
        let path = directory.path().join("file");
        let file = Arc::new(engine.open(&path, &how::create()).unwrap());
        let direct = engine.open_direct(directory.path().join("direct"), &how::create()).unwrap();
        let spare = engine.open(directory.path().join("spare"), &how::create()).unwrap();
        let others = || engine.open(directory.path().join("spare"), &how::write()).unwrap();
        let nosy = Arc::new(Nosy {
            engine: engine.clone(),
            file: Arc::clone(&file),
            handles: Mutex::new((0..200).map(|_| others()).collect()),
            inner: {
                let thread = std::thread::current();
                waker(move || thread.unpark())
            },
        });
        let waker = Arc::clone(&nosy).waker();
        let data = pattern(5, 6 << 20);
        let work = async {
            for round in 0..4 {
                file.asynchronous().write_at(&data, round * 1000).await?;
                file.asynchronous().append(&data[..10_000]).await?;
                file.asynchronous().sync_data().await?;
                let mut buffer = vec![0; 6 << 20];
                file.asynchronous().read_at(&mut buffer, round * 1000).await?;
                assert!(buffer == data);
            }
            file.asynchronous().set_len(6 << 20).await?;
            file.asynchronous().write_at(&data, 0).await?;
            file.asynchronous().abandon_unwritten().await?;
            for round in 0..20 {
                direct.write_at(vec![1; 8192], round * 8192).await.0?;
                drop(direct.read_at(vec![0; 5000], round * 4096));
                direct.sync_data().await?;
            }
            direct.close().await?;
            AsyncFile::close(spare).await
        };
        let mut work = pin!(work);
        let result = loop {
            match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => break result,
                // Polled twice before each wait, so that a registered waker is replaced.
                Poll::Pending => match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => break result,
                    Poll::Pending => std::thread::park_timeout(Duration::from_secs(1)),
                },
            }
        };
        result.unwrap();
        nosy.handles.lock().unwrap().clear();
    });
}

/// An append that gives up its turn wakes the next one, which looks at the file at once.
#[test]
fn contract_11_an_append_is_woken_without_a_lock() {
    let _alone = alone();
    within(SOON, "a waker of an append", || {
        let directory = support::directory();
        let engine = throttled_soon();
        let file = Arc::new(engine.open(directory.path().join("file"), &how::create()).unwrap());
        let woken = Arc::new(AtomicUsize::new(0));
        let looks = {
            let (file, woken) = (Arc::clone(&file), Arc::clone(&woken));
            waker(move || {
                assert!(file.len().unwrap() > 0);
                woken.fetch_add(1, Ordering::SeqCst);
            })
        };
        let mut second = pin!(file.asynchronous().append(b"second"));
        {
            // It waits for the dirty limit, and keeps the turn.
            let data = pattern(6, 12 << 20);
            let mut first = pin!(file.asynchronous().append(&data));
            assert!(poll(first.as_mut(), Waker::noop()).is_pending());
            assert!(poll(second.as_mut(), &looks).is_pending());
        }
        assert!(woken.load(Ordering::SeqCst) > 0, "the turn was not given on");
    });
}

/// Makes a context call `on_error`: drops the last handle of a dirty file after its file system was
/// shut down.
fn fail_unheard(engine: &Engine, mount: &Mount) {
    let file = engine.open(mount.path().join("lost"), &how::create()).unwrap();
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    mount.cut_off();
    drop(file);
}

#[test]
fn contract_02_a_panic_in_on_error_loses_no_data() {
    let _alone = alone();
    let Some(mount) = small_ext4("a_panic_in_on_error") else { return };
    within(SOON, "an engine whose callback panics", move || {
        let called = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&called);
        let engine = Engine::builder(Options {
            cache_bytes: Some(8 << 20),
            close_timeout: SOON,
            ..Options::default()
        })
        .on_error(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            panic!("the callback of a test panics");
        });
        let engine = engine.build().unwrap();
        let directory = support::directory();
        let path = directory.path().join("file");
        let file = engine.open(&path, &how::create()).unwrap();
        let data = pattern(7, 1 << 20);
        file.write_at(&data, 0).unwrap();
        fail_unheard(&engine, &mount);
        assert!(eventually(SOON, || called.load(Ordering::SeqCst) > 0), "the error was not told");
        file.append(&data).unwrap();
        file.sync_data().unwrap();
        file.close().unwrap();
        engine.shutdown(SOON).unwrap();
        assert_on_disk(
            &path,
            &[data.clone(), data].concat(),
            "accepted before and after the panic",
        );
    });
}

#[test]
fn contract_02_a_panic_in_a_waker_loses_no_data_and_no_wake() {
    let _alone = alone();
    within(SOON, "an engine beside wakers that panic", || {
        let directory = support::directory();
        let engine = Engine::start(Options {
            cache_bytes: Some(8 << 20),
            close_timeout: SOON,
            ..Options::default()
        })
        .unwrap();
        let path = directory.path().join("file");
        let file = engine.open(&path, &how::create()).unwrap();
        let direct = engine.open_direct(directory.path().join("direct"), &how::create()).unwrap();
        let data = pattern(7, 1 << 20);
        file.write_at(&data, 0).unwrap();
        let panics = waker(|| panic!("the waker of a test panics"));
        let woken = Arc::new(AtomicUsize::new(0));
        let counts = {
            let woken = Arc::clone(&woken);
            waker(move || {
                woken.fetch_add(1, Ordering::SeqCst);
            })
        };
        // The one that panics is woken first.
        let (mut first, mut second) =
            (pin!(file.asynchronous().sync_data()), pin!(file.asynchronous().sync_data()));
        let (mut third, mut fourth) =
            (direct.write_at(vec![1; 4096], 0), direct.write_at(vec![1; 4096], 4096));
        let before = poll(first.as_mut(), &panics).is_pending();
        let after = poll(second.as_mut(), &counts).is_pending();
        let _ = poll(Pin::new(&mut third), &panics);
        let waits = poll(Pin::new(&mut fourth), &counts).is_pending();
        let expected = usize::from(before && after) + usize::from(waits);
        assert!(
            eventually(SOON, || woken.load(Ordering::SeqCst) >= expected),
            "{} of {expected} were woken",
            woken.load(Ordering::SeqCst)
        );
        file.append(&data).unwrap();
        file.sync_data().unwrap();
        assert_on_disk(
            &path,
            &[data.clone(), data].concat(),
            "accepted before and after the panic",
        );
        engine.shutdown(SOON).unwrap();
    });
}

/// Destructors of thread-local values run last in, first out. The engine's own value for a thread
/// is made later than the one that holds the engine, so it is destroyed earlier.
#[test]
fn contract_05_an_engine_in_a_thread_local_ends_with_its_thread() {
    thread_local! {
        static ENGINE: RefCell<Option<(File, Engine)>> = const { RefCell::new(None) };
    }
    let _alone = alone();
    let directory = support::directory();
    let path = directory.path().join("file");
    let data = pattern(3, 1 << 20);
    let (in_thread, content) = (path.clone(), data.clone());
    let run = move || {
        ENGINE.with_borrow_mut(|here| {
            let engine = Engine::start(Options {
                cache_bytes: Some(8 << 20),
                dirty_age: SOON,
                close_timeout: SOON,
                ..Options::default()
            })
            .unwrap();
            let file = engine.open(&in_thread, &how::create()).unwrap();
            *here = Some((file, engine));
        });
        ENGINE.with_borrow(|here| {
            let (file, _) = here.as_ref().unwrap();
            file.write_at(&content[..1000], 0).unwrap();
            file.sync_data().unwrap();
            file.write_at(&content, 0).unwrap();
        });
    };
    within(SOON, "a thread with an engine of its own", move || {
        std::thread::spawn(run).join().unwrap();
    });
    assert_on_disk(&path, &data, "accepted by the engine of a thread that has ended");
    assert_all_threads_end();
}

/// A blocking call in the destructor of a thread-local value waits as anywhere else.
#[test]
fn contract_12_a_thread_that_ends_can_still_wait() {
    struct Syncs(Option<(File, Engine, Slot<()>)>);
    impl Drop for Syncs {
        fn drop(&mut self) {
            let (file, engine, synced) = self.0.take().unwrap();
            file.sync_data().unwrap();
            file.close().unwrap();
            engine.shutdown(SOON).unwrap();
            drop_from(&synced);
        }
    }
    thread_local! {
        static SYNCS: RefCell<Syncs> = const { RefCell::new(Syncs(None)) };
    }
    let _alone = alone();
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    let synced = slot(());
    let reported = Arc::clone(&synced);
    within(SOON, "a destructor that syncs", move || {
        let run = move || {
            SYNCS.with_borrow_mut(|syncs| syncs.0 = Some((file, engine, reported)));
            SYNCS.with_borrow(|syncs| {
                let (file, _, _) = syncs.0.as_ref().unwrap();
                file.write_at(&[1; 5000], 0).unwrap();
                file.sync_data().unwrap();
                file.write_at(&[2; 5000], 0).unwrap();
            });
        };
        std::thread::spawn(run).join().unwrap();
    });
    assert!(synced.lock().unwrap().is_none());
}

#[test]
fn contract_12_the_last_engine_dropped_in_on_error_ends() {
    let _alone = alone();
    let Some(mount) = small_ext4("the_last_engine_in_on_error") else { return };
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Arc::new(Mutex::new(None));
    let drops = Arc::clone(&engine);
    let build = Engine::builder(Options {
        cache_bytes: Some(8 << 20),
        dirty_age: Duration::from_secs(600),
        close_timeout: SOON,
        ..Options::default()
    });
    let build = build.on_error(move |error| {
        println!("told: {error}");
        drop_from(&drops);
    });
    let data = pattern(5, 1 << 20);
    let built = build.build().unwrap();
    let file = built.open(&path, &how::create()).unwrap();
    file.write_at(&data, 0).unwrap();
    // Held while the only engine is put there: the callback waits for that.
    let mut here = engine.lock().unwrap();
    fail_unheard(&built, &mount);
    *here = Some(built);
    drop(here);
    assert!(eventually(SOON, || engine.lock().unwrap().is_none()), "the error was not told");
    assert_all_threads_end();
    assert_on_disk(&path, &data, "accepted by an engine that ended in its own callback");
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Shutdown);
}

#[test]
fn contract_12_the_last_engine_dropped_by_a_waker_ends() {
    let _alone = alone();
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_age: Duration::from_secs(600),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let data = pattern(5, 1 << 20);
    file.write_at(&data, 0).unwrap();
    let engine = slot(engine);
    let drops = {
        let engine = Arc::clone(&engine);
        waker(move || drop_from(&engine))
    };
    let here = engine.lock().unwrap();
    let mut syncs = pin!(file.asynchronous().sync_data());
    // A sync that has ended before it is polled wakes nobody.
    let is_pending = poll(syncs.as_mut(), &drops).is_pending();
    drop(here);
    if !is_pending {
        drop_from(&engine);
    }
    assert!(eventually(SOON, || engine.lock().unwrap().is_none()), "nobody was woken");
    assert_all_threads_end();
    assert_on_disk(&path, &data, "accepted by an engine that ended in a waker");
}

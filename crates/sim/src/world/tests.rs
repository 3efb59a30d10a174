use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_block::Moment;

use super::*;
use crate::PerMille;
use crate::platform::sync::{Condvar, Mutex};
use crate::platform::{clock, thread};
use crate::trace::Tracing;

/// Rates of preemption that each test runs with.
const RATES: [u16; 5] = [0, 1, 50, 500, 1000];

fn settings(seed: u64, preemption: u16) -> Settings {
    Settings {
        preemption: PerMille(preemption),
        spurious: PerMille(0),
        processors: 0,
        tracing: Tracing::Kept,
        steps: 1_000_000,
        ..Settings::swarm(seed)
    }
}

/// Runs a test with each rate and some seeds.
fn under_all_rates(main: impl Fn() + Copy + 'static) {
    for rate in RATES {
        for seed in 0..20 {
            run(settings(seed, rate), main).unwrap_or_else(|failure| panic!("{rate}: {failure}"));
        }
    }
}

fn failure_of(seed: u64, preemption: u16, main: impl FnOnce() + 'static) -> Failure {
    run(settings(seed, preemption), main).expect_err("the run fails")
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Waits until a count is reached.
fn wait_for(count: &AtomicU64, wanted: u64) {
    while count.load(Ordering::Relaxed) < wanted {
        yield_now();
    }
}

#[test]
fn one_task_at_a_time_has_a_mutex_and_each_gets_it() {
    under_all_rates(|| {
        let shared = Arc::new((Mutex::new((0_u64, [0_u64; 4])), AtomicU64::new(0)));
        for number in 0..4 {
            let shared = Arc::clone(&shared);
            thread::spawn("worker", move || {
                for _ in 0..50 {
                    let mut guard = shared.0.lock();
                    let seen = guard.0;
                    preempt();
                    guard.0 = seen + 1;
                    guard.1[number] += 1;
                }
                shared.1.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        wait_for(&shared.1, 4);
        assert_eq!(*shared.0.lock(), (200, [50; 4]));
    });
}

#[test]
fn no_task_is_kept_from_a_mutex_by_others_that_never_stop() {
    under_all_rates(|| {
        let shared = Arc::new((Mutex::new(()), AtomicU64::new(0)));
        for _ in 0..2 {
            let shared = Arc::clone(&shared);
            thread::spawn("greedy", move || {
                while shared.1.load(Ordering::Relaxed) == 0 {
                    let _guard = shared.0.lock();
                    yield_now();
                }
            })
            .unwrap();
        }
        for _ in 0..10 {
            drop(shared.0.lock());
        }
        shared.1.store(1, Ordering::Relaxed);
    });
}

#[test]
fn a_wake_that_is_lost_fails_with_the_list_of_tasks() {
    // The flag is looked at before the lock, so the wake can come between the look and the wait.
    let main = || {
        let shared = Arc::new((AtomicU64::new(0), Mutex::new(()), Condvar::new()));
        let waiter = Arc::clone(&shared);
        let done = Arc::new(Mutex::new(false));
        let set_done = Arc::clone(&done);
        thread::spawn("waiter", move || {
            if waiter.0.load(Ordering::Relaxed) == 0 {
                let guard = waiter.1.lock();
                drop(waiter.2.wait(guard));
            }
            *set_done.lock() = true;
        })
        .unwrap();
        shared.0.store(1, Ordering::Relaxed);
        shared.2.notify_all();
        while !*done.lock() {
            block(Reason { what: "end of the waiter", number: 1 }, None);
        }
    };
    let failures: Vec<_> =
        (0..50).filter_map(|seed| run(settings(seed, 500), main).err()).collect();
    let report = failures
        .iter()
        .map(ToString::to_string)
        .find(|report| report.contains("waits for condition"))
        .expect("some order of the tasks loses the wake");
    assert!(report.contains("no task can run, and nothing is due"), "{report}");
    assert!(report.contains("waiter"), "{report}");
    assert!(report.contains("waits for end of the waiter 1"), "{report}");
}

#[test]
fn a_condition_is_met_by_all_who_wait_for_it() {
    under_all_rates(|| {
        let shared = Arc::new((Mutex::new(0_u64), Condvar::new(), AtomicU64::new(0)));
        for _ in 0..3 {
            let shared = Arc::clone(&shared);
            thread::spawn("waiter", move || {
                let mut guard = shared.0.lock();
                while *guard < 10 {
                    guard = shared.1.wait(guard);
                }
                shared.2.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        for _ in 0..10 {
            *shared.0.lock() += 1;
            shared.1.notify_all();
        }
        wait_for(&shared.2, 3);
    });
}

#[test]
fn a_deadline_passes_in_virtual_time() {
    under_all_rates(|| {
        let (mutex, condition) = (Mutex::new(()), Condvar::new());
        let start = now();
        let deadline = clock::instant() + millis(3_600_000);
        let (guard, timed_out) = condition.wait_until(mutex.lock(), Some(deadline));
        drop(guard);
        assert!(timed_out);
        assert!(clock::instant() >= deadline);
        assert!(now().since(start) < millis(3_600_001), "time stops at the deadline");
        sleep(millis(5));
        thread::park_until(clock::instant() + millis(5));
        assert!(now().since(start) >= millis(3_600_010));
    });
}

#[test]
fn a_task_that_wakes_itself_without_end_fails_the_run() {
    let spin = |wakes: u32| {
        thread::with_waker(|waker| {
            for _ in 0..wakes {
                waker.wake_by_ref();
                thread::park();
            }
        });
    };
    for rate in RATES {
        run(settings(1, rate), move || spin(10)).unwrap();
        let failure = failure_of(1, rate, move || spin(1000));
        assert!(failure.to_string().contains("wakes itself again and again"), "{failure}");
    }
}

#[test]
fn a_park_returns_at_once_after_a_wake_and_waits_else() {
    under_all_rates(|| {
        let waker = thread::with_waker(Clone::clone);
        waker.wake_by_ref();
        thread::park();
        let start = now();
        thread::spawn("waker", move || {
            thread::sleep(millis(1));
            waker.wake();
        })
        .unwrap();
        thread::park();
        assert!(now().since(start) >= millis(1));
    });
}

#[test]
fn the_same_seed_has_the_same_trace_and_another_seed_has_another() {
    let trace = |seed, rate| {
        let main = || {
            let shared = Arc::new((Mutex::new(0_u64), AtomicU64::new(0)));
            for number in 0..3_u64 {
                let shared = Arc::clone(&shared);
                thread::spawn(&format!("worker {number}"), move || {
                    for _ in 0..20 {
                        let mut guard = shared.0.lock();
                        *guard += draw(|random| random.below(10));
                        trace(format_args!("worker {number} has {}", *guard));
                    }
                    shared.1.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            }
            wait_for(&shared.1, 3);
        };
        run(settings(seed, rate), main).unwrap().1
    };
    for rate in RATES {
        let first = trace(1, rate);
        assert_eq!(first.trace.len(), 60);
        assert_eq!(first, trace(1, rate));
        assert_ne!(first.fingerprint, trace(2, rate).fingerprint);
    }
}

#[test]
fn two_mutexes_locked_in_both_orders_are_reported_with_both_tasks() {
    let main = || {
        let mutexes = Arc::new((Mutex::new(()), Mutex::new(()), AtomicU64::new(0)));
        let (one, other) = (Arc::clone(&mutexes), Arc::clone(&mutexes));
        thread::spawn("forward", move || {
            let first = one.0.lock();
            let _second = one.1.lock();
            drop(first);
            one.2.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        thread::spawn("backward", move || {
            let first = other.1.lock();
            let _second = other.0.lock();
            drop(first);
            other.2.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        while mutexes.2.load(Ordering::Relaxed) < 2 {
            block(Reason { what: "both workers", number: 0 }, None);
        }
    };
    let report = (0..100)
        .filter_map(|seed| run(settings(seed, 500), main).err())
        .map(|failure| failure.to_string())
        .find(|report| report.contains("(forward)") && report.contains("(backward)"))
        .expect("some order of the tasks is a deadlock");
    assert!(report.contains("forward            process test       waits for mutex"), "{report}");
    assert!(report.contains("backward           process test       waits for mutex"), "{report}");
}

#[test]
fn a_killed_process_runs_on_until_it_holds_no_mutex_and_is_unwound() {
    struct Count(Arc<AtomicU64>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    under_all_rates(|| {
        let dropped = Arc::new(AtomicU64::new(0));
        let mutex = Arc::new(Mutex::new(0_u64));
        let engine = new_process("engine");
        for number in 0..3_u64 {
            let (count, mutex) = (Count(Arc::clone(&dropped)), Arc::clone(&mutex));
            spawn(engine, &format!("context {number}"), move || {
                let _count = count;
                loop {
                    let mut guard = mutex.lock();
                    *guard += 1;
                    sleep(millis(1));
                    *guard -= 1;
                }
            });
        }
        sleep(millis(draw(|random| random.below(5))));
        kill(engine);
        assert!(is_killed(engine) && !is_dead());
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
        assert_eq!(*mutex.lock(), 0, "the mutex is free, and its data is whole");
        assert!(spawn(engine, "late", || unreachable!("it never runs")).is_none());
    });
}

#[test]
fn a_killed_task_that_unwinds_and_waits_for_a_mutex_is_let_past_the_others() {
    struct LocksAtItsEnd(Arc<Mutex<()>>);
    impl Drop for LocksAtItsEnd {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }
    under_all_rates(|| {
        let [first, second] = [0; 2].map(|_| Arc::new(Mutex::new(())));
        let engine = new_process("engine");
        for (own, others) in [(&first, &second), (&second, &first)] {
            let (own, others) = (Arc::clone(own), LocksAtItsEnd(Arc::clone(others)));
            spawn(engine, "context", move || {
                let _others = others;
                loop {
                    let guard = own.lock();
                    sleep(millis(1));
                    drop(guard);
                    sleep(millis(draw(|random| random.below(2))));
                }
            });
        }
        sleep(millis(draw(|random| random.below(5))));
        kill(engine);
        drop((first.lock(), second.lock()));
    });
}

#[test]
fn a_task_that_kills_its_own_process_does_not_return() {
    under_all_rates(|| {
        let engine = new_process("engine");
        spawn(engine, "abort", || {
            kill(process());
            unreachable!("a killed task goes on");
        });
        while !is_killed(engine) {
            yield_now();
        }
        sleep(millis(1));
    });
}

#[test]
fn a_destructor_of_a_killed_task_sees_its_deadlines_pass() {
    struct Waits(Arc<Mutex<bool>>, Arc<AtomicU64>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let (condition, deadline) = (Condvar::new(), clock::instant() + millis(30_000));
            let mut guard = self.0.lock();
            while !*guard && clock::instant() < deadline {
                guard = condition.wait_until(guard, Some(deadline)).0;
            }
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    under_all_rates(|| {
        let ended = Arc::new(AtomicU64::new(0));
        let engine = new_process("engine");
        let waits = Waits(Arc::default(), Arc::clone(&ended));
        spawn(engine, "owner", move || {
            let _waits = waits;
            thread::park();
        });
        sleep(millis(1));
        kill(engine);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        assert!(now().nanoseconds() < 1_000_000_000, "the others see no time pass");
    });
}

#[test]
fn a_panic_of_a_task_is_reported_with_its_name() {
    let failure = failure_of(1, 0, || {
        thread::spawn("broken", || panic!("it breaks")).unwrap();
        sleep(millis(1));
    });
    assert!(failure.message.contains("(broken) panicked at "), "{failure}");
    assert!(failure.message.ends_with(": it breaks"), "{failure}");
}

#[test]
fn a_panic_that_is_caught_fails_the_run_unless_it_is_expected() {
    let main = |is_expected| {
        move || {
            expect_panics(is_expected);
            std::panic::catch_unwind(|| panic!("it breaks")).unwrap_err();
            preempt();
        }
    };
    assert!(failure_of(1, 1000, main(false)).message.ends_with("it breaks"));
    run(settings(1, 1000), main(true)).unwrap();
}

/// Notes what a destructor sees.
struct Sees(Arc<Mutex<Vec<bool>>>);

impl Drop for Sees {
    fn drop(&mut self) {
        thread::sleep(millis(10));
        self.0.lock().push(thread::panicking());
    }
}

#[test]
fn a_thread_panics_alone_and_one_that_is_killed_does_not() {
    under_all_rates(|| {
        expect_panics(true);
        let [broken, killed] = [0; 2].map(|_| Arc::default());
        let sees = Sees(Arc::clone(&broken));
        thread::spawn("broken", move || {
            let unwinds = std::panic::AssertUnwindSafe(|| {
                let _sees = sees;
                panic!("a test panics");
            });
            std::panic::catch_unwind(unwinds).unwrap_err();
        })
        .unwrap();
        let (sees, process) = (Sees(Arc::clone(&killed)), new_process("engine"));
        spawn(process, "killed", move || {
            let _sees = sees;
            park(None);
        });
        sleep(millis(5));
        assert!(!thread::panicking(), "another task unwinds now");
        kill(process);
        sleep(millis(50));
        assert_eq!([broken, killed].map(|seen| seen.lock().clone()).concat(), [true, false]);
    });
}

#[test]
fn a_run_that_never_ends_is_reported() {
    let failure = failure_of(1, 1000, || {
        loop {
            preempt();
        }
    });
    assert_eq!(failure.message, "the run does not end");
}

/// Wakes at fixed times.
struct Ticks {
    next: Cell<u64>,
    rest: Cell<u64>,
}

const TICK: Reason = Reason { what: "tick", number: 0 };

impl Events for Ticks {
    fn next(&self) -> Option<Moment> {
        (self.rest.get() > 0).then(|| Moment::from_nanoseconds(self.next.get()))
    }

    fn happen(&self) {
        assert!(now().nanoseconds() >= self.next.get(), "an event is never early");
        self.next.set(self.next.get() + 1_000_000);
        self.rest.set(self.rest.get() - 1);
        wake(TICK);
    }
}

#[test]
fn events_happen_when_they_are_due_and_wake_tasks() {
    under_all_rates(|| {
        let ticks = Rc::new(Ticks { next: Cell::new(1_000_000), rest: Cell::new(10) });
        let events: Rc<dyn Events> = Rc::<Ticks>::clone(&ticks);
        set_events(events);
        while ticks.rest.get() > 0 {
            block(TICK, None);
        }
        assert!(now().nanoseconds() >= 10_000_000);
    });
}

#[test]
fn values_of_a_task_are_its_own_and_are_dropped_with_it() {
    crate::task_local! {
        static COUNT: Cell<u64> = Cell::new(0)
    }
    struct Ends(Arc<AtomicU64>);
    impl Drop for Ends {
        fn drop(&mut self) {
            COUNT.try_with(|_| ()).expect("a value without a destructor stays");
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(OWNED.try_with(|_| ()).is_err(), "the value is gone while it is dropped");
        }
    }
    crate::task_local! {
        static OWNED: Cell<Option<Ends>> = Cell::new(None)
    }
    under_all_rates(|| {
        let ended = Arc::new(AtomicU64::new(0));
        for number in 0..3 {
            let ends = Ends(Arc::clone(&ended));
            thread::spawn("worker", move || {
                OWNED.try_with(|owned| owned.set(Some(ends))).unwrap();
                for _ in 0..=number {
                    COUNT.try_with(|count| count.set(count.get() + 1)).unwrap();
                    yield_now();
                }
                assert_eq!(COUNT.try_with(Cell::get), Ok(number + 1));
            })
            .unwrap();
        }
        wait_for(&ended, 3);
    });
}

#[test]
fn a_mutex_works_outside_all_tasks_and_in_several_worlds() {
    static COUNT: Mutex<u64> = Mutex::new(0);
    under_all_rates(|| *COUNT.lock() += 1);
    assert_eq!(*COUNT.lock(), RATES.len() as u64 * 20);
}

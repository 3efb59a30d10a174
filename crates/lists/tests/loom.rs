//! The lists under a model checker: every interleaving, and every value the memory model allows, of
//! a few pushes and pops. `RUSTFLAGS="--cfg loom" cargo test -p forebay-lists --release --test
//! loom`
#![cfg(loom)]

use forebay_lists::{Pop, WasEmpty, fifo, stack};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::{model, thread};

/// As `std`'s: not seen by the checker, and need not be.
type Counted = std::sync::Arc<()>;

#[test]
fn contract_15_the_order_of_each_pusher_is_kept() {
    model(|| {
        let (sender, mut receiver) = fifo();
        let pushers = [(0, 2), (1, 1)].map(|(pusher, count)| {
            let sender = sender.clone();
            thread::spawn(move || {
                for number in 0..count {
                    let _ = sender.push((pusher, number));
                }
            })
        });
        let mut next = [0, 0];
        let mut take = |(pusher, number): (usize, usize)| {
            assert_eq!(number, next[pusher]);
            next[pusher] += 1;
        };
        for _ in 0..2 {
            if let Pop::Node(value) = receiver.pop() {
                take(value);
            }
        }
        for pusher in pushers {
            pusher.join().unwrap();
        }
        while let Pop::Node(value) = receiver.pop() {
            take(value);
        }
        assert_eq!(receiver.pop(), Pop::Empty, "nothing is busy when nobody pushes");
        assert_eq!(next, [2, 1]);
    });
}

/// The consumer of the documented protocol, once: whenever it goes to wait and something is left, a
/// wake is there.
macro_rules! no_wake_is_lost {
    ($list:ident) => {
        model(|| {
            let (sender, mut receiver) = $list();
            let wakes = loom::sync::Arc::new(AtomicUsize::new(0));
            // The push that woke the consumer, which now begins its pass.
            assert_eq!(sender.push(()), WasEmpty::Yes);
            let pushers = [(); 2].map(|()| {
                let (sender, wakes) = (sender.clone(), wakes.clone());
                thread::spawn(move || {
                    if sender.push(()) == WasEmpty::Yes {
                        wakes.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
            wakes.swap(0, Ordering::AcqRel);
            let mut popped = 0;
            let waits = loop {
                match receiver.pop() {
                    Pop::Node(()) => popped += 1,
                    Pop::Empty => break true,
                    Pop::Busy => break false,
                }
            };
            for pusher in pushers {
                pusher.join().unwrap();
            }
            let is_woken = wakes.load(Ordering::Acquire) > 0;
            assert!(
                !waits || is_woken || popped == 3,
                "{popped} popped, and nobody wakes the consumer"
            );
            while let Pop::Node(()) = receiver.pop() {
                popped += 1;
            }
            assert_eq!(popped, 3);
        });
    };
}

#[test]
fn no_wake_of_a_fifo_is_lost() {
    no_wake_is_lost!(fifo);
}

#[test]
fn no_wake_of_a_stack_is_lost() {
    no_wake_is_lost!(stack);
}

/// While nobody pops, one push of many is told that the list was empty.
macro_rules! one_push_is_first {
    ($list:ident) => {
        model(|| {
            let (sender, mut receiver) = $list();
            // Once round, so that it is the state after an `Empty`, not the first one.
            let _ = sender.push(());
            assert_eq!((receiver.pop(), receiver.pop()), (Pop::Node(()), Pop::Empty));
            let pushers = [(); 2].map(|()| {
                let sender = sender.clone();
                thread::spawn(move || sender.push(()))
            });
            let told = pushers.map(|pusher| pusher.join().unwrap());
            assert_eq!(told.iter().filter(|&&told| told == WasEmpty::Yes).count(), 1);
        });
    };
}

#[test]
fn one_push_into_an_empty_fifo_is_first() {
    one_push_is_first!(fifo);
}

#[test]
fn one_push_into_an_empty_stack_is_first() {
    one_push_is_first!(stack);
}

#[test]
fn a_fifo_with_a_finished_push_is_never_called_empty() {
    model(|| {
        let (sender, mut receiver) = fifo();
        let other = sender.clone();
        let slow = thread::spawn(move || other.push(1));
        let _ = sender.push(2);
        // The other push may have cut the list before this one, so it may be busy.
        assert_ne!(receiver.pop(), Pop::Empty);
        let _ = slow.join().unwrap();
    });
}

/// The receiver goes while pushes are under way: each value is freed once.
macro_rules! nothing_is_leaked {
    ($list:ident) => {
        model(|| {
            let value = Counted::default();
            let (sender, mut receiver) = $list();
            let pushers = [(); 2].map(|()| {
                let (sender, value) = (sender.clone(), Counted::clone(&value));
                thread::spawn(move || {
                    let _ = sender.push(value);
                })
            });
            drop(sender);
            drop(receiver.pop());
            drop(receiver);
            for pusher in pushers {
                pusher.join().unwrap();
            }
            assert_eq!(Counted::strong_count(&value), 1);
        });
    };
}

#[test]
fn nothing_of_a_fifo_is_leaked() {
    nothing_is_leaked!(fifo);
}

#[test]
fn nothing_of_a_stack_is_leaked() {
    nothing_is_leaked!(stack);
}

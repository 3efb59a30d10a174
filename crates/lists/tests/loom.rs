//! The list under a model checker: every interleaving of a few pushes and pops, and every value
//! that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-lists --release --test loom`
#![cfg(loom)]

use forebay_lists::{Pop, Quiet, Until, WasEmpty, fifo};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::{model, thread};

/// The checker does not track this counter and need not: only its final value counts.
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
        assert_eq!(receiver.pop(), Pop::Empty, "without a push the list is not busy");
        assert_eq!(next, [2, 1]);
    });
}

/// One pass of a consumer that follows the documented protocol. If it goes to wait while a value is
/// left, a wake has been sent.
#[test]
fn no_wake_of_a_fifo_is_lost() {
    model(|| {
        let (sender, mut receiver) = fifo();
        let wakes = loom::sync::Arc::new(AtomicUsize::new(0));
        // This push woke the consumer, which now begins its pass.
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
            "{popped} of 3 values popped, and the consumer waits without a wake"
        );
        while let Pop::Node(()) = receiver.pop() {
            popped += 1;
        }
        assert_eq!(popped, 3);
    });
}

/// Without a pop, exactly one of many pushes finds the list empty.
#[test]
fn one_push_into_an_empty_fifo_is_first() {
    model(|| {
        let (sender, mut receiver) = fifo();
        // One push and pop first, so that the state is the one after `Empty`, not the initial
        // one.
        let _ = sender.push(());
        assert_eq!((receiver.pop(), receiver.pop()), (Pop::Node(()), Pop::Empty));
        let pushers = [(); 2].map(|()| {
            let sender = sender.clone();
            thread::spawn(move || sender.push(()))
        });
        let reported = pushers.map(|pusher| pusher.join().unwrap());
        assert_eq!(reported.iter().filter(|&&reported| reported == WasEmpty::Yes).count(), 1);
    });
}

#[test]
fn a_fifo_with_a_finished_push_is_never_called_empty() {
    model(|| {
        let (sender, mut receiver) = fifo();
        let other = sender.clone();
        let slow = thread::spawn(move || other.push(1));
        let _ = sender.push(2);
        // The other push may have cut the list before this one, so the result may be `Busy`.
        assert_ne!(receiver.pop(), Pop::Empty);
        let _ = slow.join().unwrap();
    });
}

/// The receiver is dropped during pushes: each value is freed once.
#[test]
fn nothing_of_a_fifo_is_leaked() {
    model(|| {
        let value = Counted::default();
        let (sender, mut receiver) = fifo();
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
}

/// A receiver with a timer, which it stops in between. A message that it leaves in the list has
/// woken it.
#[test]
fn no_wake_of_a_quiet_message_is_lost() {
    model(|| {
        let (sender, mut receiver) = fifo();
        let quiet = loom::sync::Arc::new(Quiet::new());
        assert!(!quiet.set_ticking(true));
        let pusher = {
            let quiet = quiet.clone();
            thread::spawn(move || quiet.send_quietly(&sender, (), Until::Tick))
        };
        // The timer stops, and the messages are taken once more. A push in progress is waited for.
        assert!(quiet.set_ticking(false));
        let taken = receiver.pop();
        let wakes = pusher.join().unwrap();
        assert!(wakes || taken != Pop::Empty, "a message is left, and nobody looks");
        while let Pop::Node(()) = receiver.pop() {}
    });
}

/// A receiver that begins to want hints looks once more. It sees the change, or the hint is sent.
#[test]
fn no_change_is_missed_for_want_of_a_hint() {
    model(|| {
        let quiet = loom::sync::Arc::new(Quiet::new());
        let change = loom::sync::Arc::new(AtomicUsize::new(0));
        let changer = {
            let (quiet, change) = (quiet.clone(), change.clone());
            thread::spawn(move || {
                change.store(1, Ordering::Release);
                quiet.wants_hint()
            })
        };
        assert!(quiet.set_wanting(true));
        let is_seen = change.load(Ordering::Acquire) == 1;
        let is_sent = changer.join().unwrap();
        assert!(is_sent || is_seen, "nobody looks at the change");
    });
}

/// A loud message is never left behind a quiet one that woke nobody.
#[test]
fn a_loud_message_wakes_behind_quiet_ones() {
    model(|| {
        let (sender, mut receiver) = fifo();
        let quiet = loom::sync::Arc::new(Quiet::new());
        let wakes = loom::sync::Arc::new(AtomicUsize::new(0));
        assert_eq!(receiver.pop(), Pop::Empty);
        let pushers = [true, false].map(|is_quiet| {
            let (sender, quiet, wakes) = (sender.clone(), quiet.clone(), wakes.clone());
            thread::spawn(move || {
                let must_wake = if is_quiet {
                    quiet.send_quietly(&sender, "quiet", Until::Message)
                } else {
                    quiet.send(&sender, "loud")
                };
                if must_wake {
                    wakes.fetch_add(1, Ordering::AcqRel);
                }
            })
        });
        for pusher in pushers {
            pusher.join().unwrap();
        }
        assert!(wakes.load(Ordering::Acquire) > 0, "the receiver sleeps for ever");
        while let Pop::Node(_) = receiver.pop() {}
    });
}

//! The list under real threads: order per pusher, no lost wake, no leak.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;

use forebay_lists::{Pop, Rest, WasEmpty, fifo};

const PUSHERS: usize = 4;
const EACH: usize = if cfg!(miri) { 60 } else { 100_000 };
/// Values a pass may take before the consumer does something else.
const PASS: usize = 20;

#[test]
fn contract_15_a_fifo_keeps_the_order_of_each_pusher_and_loses_no_wake() {
    let (sender, mut receiver) = fifo();
    let consumer = thread::current();
    let pushers: Vec<_> = (0..PUSHERS)
        .map(|pusher| {
            let (sender, consumer) = (sender.clone(), consumer.clone());
            thread::spawn(move || {
                for number in 0..EACH {
                    if sender.push((pusher, number)) == WasEmpty::Yes {
                        consumer.unpark();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; PUSHERS];
    while next.iter().sum::<usize>() < PUSHERS * EACH {
        let rest = receiver.drain(PASS, |(pusher, number): (usize, usize)| {
            assert_eq!(number, next[pusher], "a value of pusher {pusher} overtook another");
            next[pusher] += 1;
        });
        match rest {
            Rest::Bounded => {}
            Rest::Busy => thread::yield_now(),
            // A lost wake would hang the test here.
            Rest::Empty if next.iter().sum::<usize>() < PUSHERS * EACH => thread::park(),
            Rest::Empty => {}
        }
    }
    for pusher in pushers {
        pusher.join().unwrap();
    }
    assert_eq!(receiver.pop(), Pop::Empty);
}

#[test]
fn contract_15_a_bounded_pass_leaves_the_rest_in_order() {
    let (sender, mut receiver) = fifo();
    for number in 0..7 {
        let _ = sender.push(number);
    }
    let mut taken = Vec::new();
    assert_eq!(receiver.drain(3, |number| taken.push(number)), Rest::Bounded);
    let _ = sender.push(7);
    assert_eq!(receiver.drain(100, |number| taken.push(number)), Rest::Empty);
    assert_eq!(taken, (0..8).collect::<Vec<_>>());
}

#[test]
fn only_a_push_into_an_empty_list_returns_yes() {
    let (sender, mut receiver) = fifo();
    for _ in 0..3 {
        assert_eq!(sender.push(1), WasEmpty::Yes);
        assert_eq!(sender.push(2), WasEmpty::No);
        assert_eq!(receiver.pop(), Pop::Node(1));
        assert_eq!(sender.push(3), WasEmpty::No);
        assert_eq!(receiver.drain(9, drop), Rest::Empty);
    }
}

#[test]
fn remaining_values_are_freed_with_the_last_end() {
    let value = Arc::new(());
    let (sender, mut receiver) = fifo();
    for _ in 0..3 {
        let _ = sender.push(Arc::clone(&value));
    }
    assert!(matches!(receiver.pop(), Pop::Node(_)));
    drop(receiver);
    let _ = sender.push(Arc::clone(&value));
    drop(sender);
    assert_eq!(Arc::strong_count(&value), 1);
}

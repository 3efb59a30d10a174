//! The lists under real threads: order per pusher, no lost wake, no leak.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;

use forebay_lists::{Pop, Rest, WasEmpty, fifo, stack};

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
fn a_stack_loses_neither_values_nor_wakes() {
    let (sender, mut receiver) = stack();
    let consumer = thread::current();
    let pushers: Vec<_> = (0..PUSHERS)
        .map(|_| {
            let (sender, consumer) = (sender.clone(), consumer.clone());
            thread::spawn(move || {
                for number in 0..EACH {
                    if sender.push(number) == WasEmpty::Yes {
                        consumer.unpark();
                    }
                }
            })
        })
        .collect();
    let (mut count, mut sum) = (0, 0);
    while count < PUSHERS * EACH {
        match receiver.pop() {
            Pop::Node(number) => (count, sum) = (count + 1, sum + number),
            Pop::Empty => thread::park(),
            Pop::Busy => unreachable!("a stack is never busy"),
        }
    }
    assert_eq!(sum, PUSHERS * (EACH * (EACH - 1) / 2));
    for pusher in pushers {
        pusher.join().unwrap();
    }
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
fn a_stack_returns_the_newest_first() {
    let (sender, mut receiver) = stack();
    for number in 0..4 {
        let _ = sender.push(number);
    }
    let mut taken = Vec::new();
    assert_eq!(receiver.drain(2, |number| taken.push(number)), Rest::Bounded);
    let _ = sender.push(4);
    assert_eq!(receiver.drain(9, |number| taken.push(number)), Rest::Empty);
    assert_eq!(taken, [3, 2, 1, 0, 4]);
}

#[test]
fn only_a_push_into_an_empty_list_returns_yes() {
    let (fifo_sender, mut fifo_receiver) = fifo();
    let (stack_sender, mut stack_receiver) = stack();
    for _ in 0..3 {
        assert_eq!(fifo_sender.push(1), WasEmpty::Yes);
        assert_eq!(fifo_sender.push(2), WasEmpty::No);
        assert_eq!(fifo_receiver.pop(), Pop::Node(1));
        assert_eq!(fifo_sender.push(3), WasEmpty::No);
        assert_eq!(fifo_receiver.drain(9, drop), Rest::Empty);
        assert_eq!(stack_sender.push(1), WasEmpty::Yes);
        assert_eq!(stack_sender.push(2), WasEmpty::No);
        assert_eq!(stack_receiver.drain(9, drop), Rest::Empty);
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

    let (sender, mut receiver) = stack();
    for _ in 0..3 {
        let _ = sender.push(Arc::clone(&value));
    }
    assert!(matches!(receiver.pop(), Pop::Node(_)));
    let _ = sender.push(Arc::clone(&value));
    drop(receiver);
    drop(sender);
    assert_eq!(Arc::strong_count(&value), 1);
}

//! Panics in changes of a direct file.

use std::sync::atomic::Ordering;

use super::*;

/// Panics at the first change of a file, then at the second, and so on.
#[test]
fn contract_21_a_panic_in_any_change_of_a_direct_file_ends_that_file_alone() {
    for nth in 1.. {
        let mut bench = Bench::new();
        let (inode, other, handle) = (bench.open(), bench.open(), bench.handle());
        let end = 1 << 20;
        inode.trap.store(nth, Ordering::SeqCst);
        let (mut tickets, mut of_other) = (Vec::new(), Vec::new());
        for round in 0..2 {
            for (inode, tickets) in [(&inode, &mut tickets), (&other, &mut of_other)] {
                let verbs = [
                    Verb::Write(span(100, 2000)),
                    Verb::Read(span(200, 1000)),
                    Verb::Write(span(end + round * 4096, 4096)),
                    Verb::Write(span(512, 1024)),
                    Verb::FlushData,
                    Verb::SetLength(end),
                    Verb::FlushAll,
                    Verb::Settle,
                ];
                for verb in verbs {
                    let length = match verb {
                        Verb::Read(span) | Verb::Write(span) => span.length,
                        _ => 0,
                    };
                    tickets.push(bench.submit(operation(inode, &handle, verb, length)));
                }
            }
            loop {
                let bios = bench.bios();
                if bios.is_empty() {
                    break;
                }
                bios.into_iter().rev().for_each(|bio| {
                    let length = bio.length;
                    bench.end(bio, Ok(length));
                });
            }
        }
        let is_sprung = inode.trap.load(Ordering::SeqCst) == 0;
        let outcomes: Vec<_> =
            tickets.iter().map(|ticket| outcome(ticket).expect("it ends")).collect();
        for (result, memory) in outcomes {
            assert!(memory.is_some(), "the memory comes back");
            if let Err(error) = result {
                assert!(is_sprung && error.kind() == ErrorKind::Poisoned, "{error}");
            }
        }
        for ticket in of_other {
            assert!(outcome(&ticket).expect("it ends").0.is_ok(), "another file, change {nth}");
        }
        assert_eq!(bench.flow.started(), 0);
        assert!(!inode.has_operations() && !other.has_operations() && bench.flow.is_idle());
        if is_sprung {
            let late = bench.ask(&inode, Verb::Settle);
            assert_eq!(kind(&late), Some(ErrorKind::Poisoned));
            bench.take(Message::Leave(Arc::clone(&inode), Arc::clone(&handle)));
        } else {
            assert!(nth > 50, "a file changes more often");
            break;
        }
    }
}

/// A file takes all places of started operations. A panic interrupts it while another file waits.
#[test]
fn contract_21_an_interrupted_file_gives_its_places_to_others() {
    let mut bench = Bench::new();
    let (many, few, handle) = (bench.open(), bench.open(), bench.handle());
    let read =
        |inode, number| operation(inode, &handle, Verb::Read(span(number * BLOCK, BLOCK)), BLOCK);
    let mut tickets = Vec::new();
    for number in 0..DIRECT_OPERATIONS as u64 {
        tickets.push(bench.submit(read(&many, number)));
    }
    let waiting = bench.submit(read(&few, 0));
    let bios = bench.bios();
    many.trap.store(1, Ordering::SeqCst);
    bios.into_iter().for_each(|bio| bench.end(bio, Ok(BLOCK)));
    for ticket in &tickets {
        assert_eq!(kind(ticket), Some(ErrorKind::Poisoned));
    }
    let mut bios = bench.bios();
    assert_eq!(bios.len(), 1, "the other file's read has started");
    bench.end(bios.remove(0), Ok(BLOCK));
    assert!(outcome(&waiting).unwrap().0.is_ok());
    bench.take(Message::Leave(Arc::clone(&many), Arc::clone(&handle)));
    bench.shared.table().drop_handle(many.identity);
    assert!(!many.has_operations() && bench.flow.started() == 0);
}

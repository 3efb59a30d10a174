//! Answers about the size in the file system may come late, and in another order than asked.

use forebay_block::{Errno, Operation, Target};
use forebay_cache::file::Origin;
use forebay_cache::limits::PAGE;
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{CachedFile, Failure, Liberties, Reason, Settled, TicketKind};

fn file(liberties: Liberties) -> CachedFile {
    CachedFile::new(Target(0), Origin::Existing(10 * PAGE), liberties)
}

#[test]
fn contract_06_an_answer_after_that_of_a_later_look_is_ignored() {
    for (late, first) in [(10, 20), (20, 5)] {
        let (mut file, mut settled) = (file(Liberties::Shared), Settled::default());
        let (old, new) = (file.look(), file.look());
        file.observe_disk_size(first * PAGE, new, &mut settled);
        file.observe_disk_size(late * PAGE, old, &mut settled);
        assert_eq!(file.size(), first * PAGE);
        let next = file.look();
        file.observe_disk_size(late * PAGE, next, &mut settled);
        assert_eq!(file.size(), late * PAGE);
    }
}

/// Another program was let at the file between the request for the lease and its use.
#[test]
fn contract_06_a_lease_that_was_given_up_meanwhile_does_not_count() {
    let (mut file, mut settled) = (file(Liberties::Shared), Settled::default());
    let breaks = file.breaks();
    file.begin_break(&mut settled);
    while let Some(bio) = file.next_bio(Reason::Sync) {
        file.settle(&bio, Ok(0), Keep::Clean, &mut settled);
    }
    assert!(file.break_is_over());
    file.end_break();
    let look = file.look();
    assert!(!file.own(10 * PAGE, (look, breaks), &mut settled), "that lease has ended");
    let (look, breaks) = (file.look(), file.breaks());
    assert!(file.own(10 * PAGE, (look, breaks), &mut settled));
}

/// The size that is read under the lease is right, also if a later look has found another one.
#[test]
fn contract_06_the_size_under_the_lease_counts() {
    let (mut file, mut settled) = (file(Liberties::Shared), Settled::default());
    let under_the_lease = (file.look(), file.breaks());
    let late = file.look();
    file.observe_disk_size(10 * PAGE, late, &mut settled);
    assert!(file.own(20 * PAGE, under_the_lease, &mut settled));
    assert_eq!(file.size(), 20 * PAGE);
}

/// An extension never cuts: a write may have gone further since it was asked for.
#[test]
fn contract_06_an_extension_makes_no_file_shorter() {
    let (mut longer, mut settled) = (file(Liberties::Exclusive), Settled::default());
    let done = longer.ask(TicketKind::Extend(5 * PAGE));
    assert_eq!(longer.next_bio(Reason::Sync), None);
    assert_eq!(longer.fetch(done), Some(Ok(())));
    let sent = longer.ask(TicketKind::Extend(12 * PAGE));
    let bio = longer.next_bio(Reason::Sync).expect("it is shorter");
    assert_eq!((bio.operation, bio.offset), (Operation::SetLength, 12 * PAGE));
    longer.settle(&bio, Ok(0), Keep::Clean, &mut settled);
    assert_eq!((longer.fetch(sent), longer.size()), (Some(Ok(())), 12 * PAGE));
    let mut shared = file(Liberties::Shared);
    let refused = shared.ask(TicketKind::Extend(12 * PAGE));
    assert_eq!(shared.next_bio(Reason::Sync), None);
    assert_eq!(shared.fetch(refused), Some(Err(Failure::SetLength(Errno::WOULD_BLOCK))));
}

//! Answers about the size in the file system may come late, and in another order than asked.

use forebay_block::Target;
use forebay_cache::file::Origin;
use forebay_cache::limits::PAGE;
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{CachedFile, Liberties, Reason, Settled};

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
    let look = file.look();
    file.begin_break(&mut settled);
    while let Some(bio) = file.next_bio(Reason::Sync) {
        file.settle(&bio, Ok(0), Keep::Clean, &mut settled);
    }
    assert!(file.break_is_over());
    file.end_break();
    assert!(!file.own(10 * PAGE, look, &mut settled), "that lease has ended");
    let look = file.look();
    assert!(file.own(10 * PAGE, look, &mut settled));
}

use super::*;

#[test]
fn each_kind_of_synchronous_write_is_recognized() {
    let others = libc::O_WRONLY | libc::O_APPEND | libc::O_LARGEFILE;
    assert_eq!(Sync::of_flags(others), None);
    assert_eq!(Sync::of_flags(others | libc::O_DSYNC), Some(Sync::Data));
    assert_eq!(Sync::of_flags(others | libc::O_SYNC), Some(Sync::All));
}

//! The only system calls of Forebay.

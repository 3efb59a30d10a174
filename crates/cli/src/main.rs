//! The program `forebay`.
fn main() {}

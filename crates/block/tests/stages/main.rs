//! Each stage of the path of a request, tested from outside: a queue above, a recording device
//! below, and all knobs drawn at random and changed meanwhile.

mod again;
mod dispatch;
mod merge;
mod recorder;
mod tags;

//! Each stage of the way of a request against what anybody may expect of it, seen from outside: a
//! queue above, a device that records below, all knobs drawn at random and changed on the way.

mod again;
mod dispatch;
mod merge;
mod recorder;
mod tags;

//! A part of a file that most files never need, or only for a while: it takes memory from its first
//! change on, until it is emptied.

use std::ops::{Deref, DerefMut};

/// A part that is mostly empty. It reads as an empty one without memory of its own.
#[derive(Debug)]
pub struct Rare<T>(Option<Box<T>>);

/// A part that can be empty.
pub trait Empty: Default + 'static {
    /// The empty part.
    const EMPTY: &'static Self;

    /// Returns whether it is as a new one.
    fn is_empty(&self) -> bool;
}

impl<T: 'static> Empty for Vec<T> {
    const EMPTY: &'static Self = &Vec::new();

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Empty> Rare<T> {
    /// Gives the memory of an empty part back.
    pub fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|part| part.is_empty()) {
            self.0 = None;
        }
    }

    /// Removes and returns the part.
    pub fn take(&mut self) -> T {
        self.0.take().map_or_else(T::default, |part| *part)
    }
}

impl<T: Empty> Deref for Rare<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Empty> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

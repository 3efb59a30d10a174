//! The future of a direct read or write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::direct::buffer::DirectBuffer;
use crate::direct::operation::{Outcome, Ticket};
use crate::direct::plug;
use crate::error::{Error, ErrorKind, Result};
use crate::shared::Shared;
use crate::wait;

/// A direct read or write, submitted already: resolves to the bytes moved, or what went wrong, and
/// the buffer.
///
/// Dropping it stops nothing: the device goes on, the buffer goes with it, and an error of a write
/// is told by the next sync (or close) of the handle. Where the engine ends first, with the device
/// still at it, the buffer comes back empty.
#[derive(Debug)]
#[must_use = "the buffer and the result come with it"]
pub struct Transfer<B: DirectBuffer>(Stage<B>);

#[derive(Debug)]
enum Stage<B> {
    Told(Result<usize>, B),
    Asked(Asked, Option<Aside<B>>),
    Over,
}

/// The caller's buffer, where a copy of it is at the device.
#[derive(Debug)]
pub(crate) struct Aside<B> {
    pub(crate) buffer: B,
    pub(crate) manner: Copying,
}

/// What is copied back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copying {
    /// What was read, after so many bytes of the copy.
    After(usize),
    Nothing,
}

impl<B: DirectBuffer> Transfer<B> {
    /// One that nobody has to be asked for.
    pub(crate) fn told(result: Result<usize>, buffer: B) -> Self {
        Self(Stage::Told(result, buffer))
    }

    /// Waits for the end on this thread: for programs without an executor. Blocks.
    ///
    /// On one of the engine's own threads it is refused with `WouldDeadlock`, and as if dropped:
    /// the buffer that is on its way is lost to the caller.
    pub fn wait(self) -> (Result<usize>, B) {
        match (wait::may_block(), self.0) {
            (Ok(()), stage) => wait::drive(Self(stage)),
            (_, Stage::Told(result, buffer)) => (result, buffer),
            (Err(error), Stage::Asked(_, Some(aside))) => (Err(error), aside.buffer),
            (Err(error), _) => (Err(error), B::nothing()),
        }
    }

    pub(crate) fn asked(asked: Asked, aside: Option<Aside<B>>) -> Self {
        Self(Stage::Asked(asked, aside))
    }
}

// No part of it is pinned: it hands out no address of its own.
impl<B: DirectBuffer> Unpin for Transfer<B> {}

impl<B: DirectBuffer> Future for Transfer<B> {
    type Output = (Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.0, Stage::Over) {
            Stage::Told(result, buffer) => Poll::Ready((result, buffer)),
            Stage::Asked(mut asked, aside) => match Pin::new(&mut asked).poll(context) {
                Poll::Ready((result, memory)) => Poll::Ready(match aside {
                    Some(aside) => {
                        let copy =
                            memory.as_ref().map(forebay_uring::Memory::bytes).unwrap_or_default();
                        aside.give_back(result, copy)
                    }
                    None => (result, memory.map_or_else(B::nothing, B::from_memory)),
                }),
                Poll::Pending => {
                    self.0 = Stage::Asked(asked, aside);
                    Poll::Pending
                }
            },
            Stage::Over => panic!("a future is not polled after its end"),
        }
    }
}

impl<B: DirectBuffer> Aside<B> {
    fn give_back(mut self, result: Result<usize>, copy: &[u8]) -> (Result<usize>, B) {
        if let (Ok(bytes), Copying::After(skew)) = (&result, self.manner) {
            self.buffer.bytes_mut()[..*bytes].copy_from_slice(&copy[skew..skew + bytes]);
        }
        (result, self.buffer)
    }
}

/// An operation submitted, to be waited for; dropped, it goes on.
#[derive(Debug)]
pub(crate) struct Asked {
    ticket: Arc<Ticket>,
    shared: Arc<Shared>,
}

impl Asked {
    pub(crate) fn new(shared: &Arc<Shared>, ticket: Arc<Ticket>) -> Self {
        Self { ticket, shared: Arc::clone(shared) }
    }
}

impl Future for Asked {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if !self.shared.is_parent() {
            return Poll::Ready((
                Err(Error::new(ErrorKind::Forked, "the engine belongs to the parent process")),
                None,
            ));
        }
        let polled = self.ticket.poll(context);
        if polled.is_pending() {
            plug::release_here();
            // What was submitted when the context had gone is looked at by nobody.
            if self.shared.is_orphaned() {
                let ended = Error::new(ErrorKind::Shutdown, "the engine ended before this did");
                return Poll::Ready((Err(ended), None));
            }
        }
        polled
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Another thread of the parent may have held its lock when the child was forked.
        if self.shared.is_parent() {
            self.ticket.abandon();
        }
    }
}

//! Threads that set themselves up, each for itself, and start together.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::error::CellError;

/// Where the threads wait, from before they are started. They start with a `G`.
pub(crate) struct StartLine<G> {
    ready: Sender<Result<(), CellError>>,
    all_ready: Receiver<Result<(), CellError>>,
    gates: Vec<Sender<G>>,
}

/// One thread's place.
pub(crate) struct Runner<G> {
    ready: Sender<Result<(), CellError>>,
    go: Receiver<G>,
}

impl<G: Clone> StartLine<G> {
    pub(crate) fn new() -> Self {
        let (ready, all_ready) = channel();
        Self { ready, all_ready, gates: Vec::new() }
    }

    /// Makes a place for one more thread.
    pub(crate) fn runner(&mut self) -> Runner<G> {
        let (gate, go) = channel();
        self.gates.push(gate);
        Runner { ready: self.ready.clone(), go }
    }

    /// Waits until all threads are ready. Returns a closure that starts them, or the error of the
    /// first that is not. If the closure is dropped and not called, all threads return.
    pub(crate) fn all_ready(self) -> Result<impl FnOnce(&G), CellError> {
        let Self { ready, all_ready, gates } = self;
        drop(ready);
        let set_up = all_ready.iter().collect::<Result<Vec<()>, CellError>>()?;
        assert_eq!(set_up.len(), gates.len(), "a thread of the load died before the start");
        // A thread that is gone has its error, and is joined.
        Ok(move |go: &G| gates.into_iter().for_each(|gate| drop(gate.send(go.clone()))))
    }
}

impl<G> Runner<G> {
    /// Reports how the set-up of this thread went, and waits for the start.
    pub(crate) fn wait<T>(self, set_up: Result<T, CellError>) -> Result<(T, G), CellError> {
        let aborted = || CellError::Process { what: "another job failed before the start".into() };
        let Self { ready, go } = self;
        let sent = ready.send(set_up.as_ref().map(drop).map_err(Clone::clone));
        // The thread that waits for all must not wait for this one.
        drop(ready);
        let set_up = set_up?;
        sent.map_err(|_| aborted())?;
        let go = go.recv().map_err(|_| aborted())?;
        Ok((set_up, go))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_starts_if_one_fails() {
        let mut line = StartLine::<u32>::new();
        let (good, bad) = (line.runner(), line.runner());
        std::thread::scope(|scope| {
            let good = scope.spawn(move || good.wait(Ok(())));
            let bad = scope.spawn(move || bad.wait::<()>(Err(CellError::invalid("no"))));
            assert!(line.all_ready().is_err_and(|error| error == CellError::invalid("no")));
            assert!(good.join().unwrap().is_err() && bad.join().unwrap().is_err());
        });
    }
}

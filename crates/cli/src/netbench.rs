//! `forebay netbench`: its lines as they come, and what the client saw in all.

use forebay_lab::load::CellError;
use forebay_lab::netbench::{Ended, Netbench, run};
use forebay_lab::scratch::Stop;

use crate::failure::Failure;
use crate::output::print;

/// Runs it to its end, or until the user ends it.
pub(crate) fn netbench(bench: &Netbench) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    // Where nobody reads any more there is nothing to go on for.
    let flag = stop.flag();
    let mut unprinted = None;
    let mut tell = |line: &str| {
        if let Err(failure) = print(&format!("{line}\n")) {
            unprinted.get_or_insert(failure);
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let ended = run(bench, &stop.flag(), &mut tell);
    if let Some(failure) = unprinted {
        return Err(failure);
    }
    match ended {
        Ok(Ended::Done(summary)) => print(&summary.unwrap_or_default()),
        Ok(Ended::Interrupted) => Err(Failure::Interrupted("nothing was left behind")),
        Err(error @ CellError::Unavailable { .. }) => Err(Failure::usage(error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

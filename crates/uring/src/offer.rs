//! Features of io_uring on the running kernel: available, missing and since which kernel, or
//! refused and why. For reports, and for the description of a ring.
//!
//! Nothing here makes decisions: a ring uses what is available. A ring lists the features that it
//! asked for; [`Offers::of_this_kernel`] asks for all of them, which takes some milliseconds.

use std::fmt;
use std::io;

use crate::min_wait::{self, MinWait};
use crate::probe::KernelVersion;
use crate::setup::{Setup, SetupError};

/// Feature of io_uring that not every kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Feature {
    /// Wait with a timeout in the call that submits.
    TimedWait,
    /// An invalid request does not stop the submission of later ones.
    SubmitAll,
    /// Completions do not interrupt the thread.
    CooperativeTaskWork,
    /// Only one thread submits, which saves locking.
    SingleIssuer,
    /// Completions are processed on the thread of the ring, when it asks.
    DeferredTaskWork,
    /// The submission queue has no index array.
    NoIndexArray,
    /// Registered descriptor of the ring, which saves a lookup per call.
    RingDescriptor,
    /// Registered files, which save a lookup per request.
    RegisteredFiles,
    /// Table of registered files that starts empty.
    SparseFiles,
    /// Setting the size of a file through the ring.
    SetLength,
    /// Discarding a range of a block device through the ring.
    DiscardCommand,
    /// Wait for many completions for a minimum time, and then for one (`min_wait`).
    MinimalWait,
    /// A completion after the minimum time ends the wait. Some kernels have a bug here.
    MinimalWaitEnds,
    /// Wait that is not accounted as waiting for I/O.
    UnbookedWait,
}

/// Availability of a feature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Available.
    Had,
    /// Missing in this kernel; see [`Feature::since`].
    Lost,
    /// Refused by this kernel, for this reason.
    Refused(String),
}

/// A feature and its availability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The feature.
    pub feature: Feature,
    /// Its availability.
    pub state: State,
}

/// List of features with their availability. Displayed as one line: "io_uring: full", or the
/// missing ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offers(pub Vec<Offer>);

impl Feature {
    /// Returns its name for a sentence: "without ...".
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the first kernel version that has it.
    #[must_use]
    pub fn since(self) -> KernelVersion {
        let (_, (major, minor)) = self.row();
        KernelVersion { major, minor }
    }

    fn row(self) -> (&'static str, (u32, u32)) {
        match self {
            Feature::TimedWait => ("a wait with a time limit", (5, 11)),
            Feature::SubmitAll => ("submission past a bad request", (5, 18)),
            Feature::CooperativeTaskWork => ("cooperative task work", (5, 19)),
            Feature::SingleIssuer => ("a single issuer", (6, 0)),
            Feature::DeferredTaskWork => ("deferred task work", (6, 1)),
            Feature::NoIndexArray => ("a submission queue without an index array", (6, 6)),
            Feature::RingDescriptor => ("a registered ring descriptor", (5, 18)),
            Feature::RegisteredFiles => ("registered files", (5, 1)),
            Feature::SparseFiles => ("a sparse table of files", (5, 19)),
            Feature::SetLength => ("setting a file's length", (6, 9)),
            Feature::DiscardCommand => ("discarding through the ring", (6, 12)),
            Feature::MinimalWait => ("a minimal wait", (6, 12)),
            Feature::MinimalWaitEnds => ("a minimal wait that a late event ends", (6, 19)),
            Feature::UnbookedWait => ("waiting unbooked", (6, 15)),
        }
    }

    /// The offer of something a kernel either has or lacks.
    pub(crate) fn when(self, had: bool) -> Offer {
        Offer { feature: self, state: if had { State::Had } else { State::Lost } }
    }

    /// The offer of something that was asked for, with the answer.
    pub(crate) fn asked(self, answer: Result<(), String>) -> Offer {
        let state = answer.map_or_else(State::Refused, |()| State::Had);
        Offer { feature: self, state }
    }
}

impl Offers {
    /// Tests all features on the running kernel with temporary rings. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`SetupError`] if no ring can be set up at all.
    pub fn of_this_kernel() -> Result<Self, SetupError> {
        let mut setup = Setup::best(4)?;
        let mut offers = setup.offers();
        offers.push(Feature::RingDescriptor.when(setup.registers_its_descriptor()));
        let files = setup.uring.submitter().register_files_sparse(1);
        let lacks = |result: &io::Result<()>| matches!(result, Err(error) if error.raw_os_error() == Some(libc::EINVAL));
        offers.push(Feature::SparseFiles.when(!lacks(&files)));
        let files = files.or_else(|_| setup.uring.submitter().register_files(&[-1]));
        offers.push(Feature::RegisteredFiles.asked(files.map_err(|error| error.to_string())));
        let ends = setup.has.min_wait && min_wait::behaviour(setup.level) == MinWait::Ends;
        offers.push(Feature::MinimalWaitEnds.when(ends));
        Ok(Self(offers))
    }

    /// Returns whether a feature is available; `false` if it is not in the list.
    #[must_use]
    pub fn had(&self, feature: Feature) -> bool {
        self.0.iter().any(|offer| offer.feature == feature && offer.state == State::Had)
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, since) = (self.feature.name(), self.feature.since());
        match &self.state {
            State::Had => formatter.write_str(name),
            State::Lost => write!(formatter, "{name} ({since})"),
            State::Refused(reason) => write!(formatter, "{name} ({reason})"),
        }
    }
}

impl fmt::Display for Offers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut missing = self.0.iter().filter(|offer| offer.state != State::Had);
        let Some(first) = missing.next() else { return formatter.write_str("io_uring: full") };
        write!(formatter, "io_uring: without {first}")?;
        missing.try_for_each(|offer| write!(formatter, ", {offer}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_missing_and_who_has_it() {
        let full = Offers(vec![Feature::SubmitAll.when(true)]);
        assert_eq!(full.to_string(), "io_uring: full");
        let some = Offers(vec![
            Feature::SubmitAll.when(true),
            Feature::SetLength.when(false),
            Feature::RegisteredFiles.asked(Err("no memory".into())),
        ]);
        let line = "io_uring: without setting a file's length (6.9), registered files (no memory)";
        assert_eq!(some.to_string(), line);
        assert!(some.had(Feature::SubmitAll) && !some.had(Feature::SetLength));
    }

    #[test]
    fn everything_is_asked_for_and_agrees_with_the_version() {
        let offers = Offers::of_this_kernel().unwrap();
        let version = crate::probe::kernel_version();
        for offer in &offers.0 {
            println!("{:?} {}: {:?}", offer.feature, offer.feature.since(), offer.state);
            // The minimal wait's repair went to older kernels too.
            let is_repair = offer.feature == Feature::MinimalWaitEnds;
            if offer.state == State::Lost && !is_repair {
                assert!(version < offer.feature.since(), "{offer}");
            }
        }
        assert!(offers.had(Feature::TimedWait));
        let again = Offers::of_this_kernel().unwrap();
        assert_eq!(offers, again, "asking changes nothing");
    }
}

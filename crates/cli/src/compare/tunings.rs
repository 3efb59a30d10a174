//! Settings of the machine that arms change: checked and claimed before the first run, and restored
//! after a run that was killed.
//!
//! A refused setting of the user's ends the comparison before it starts. If one of the suite's or
//! the job's is refused, its arm is left out, with the reason, when its turn comes.

use std::path::Path;

use forebay_lab::plan::Plan;
use forebay_lab::tuning::{Claim, Journal, Knob, Places, Recovered, Tuning, TuningError, recover};

use crate::failure::Failure;
use crate::meaning::{CompareRequest, TargetAsked};
use crate::output::say;

/// Refuses settings that do not exist or may not be written, as far as that is known before a file
/// system is made.
pub(super) fn check_before<'a>(
    request: &CompareRequest,
    plans: impl Iterator<Item = &'a Plan>,
) -> Result<(), Failure> {
    for plan in plans {
        let places = places(request, plan, None);
        for arm in plan.jobs.iter().flat_map(|job| &job.arms) {
            let checked = places.check(&known(request, plan, &arm.tunings, None));
            checked.map_err(|error| refused(&arm.name, error))?;
        }
    }
    Ok(())
}

/// Locks the settings of all arms for the whole comparison and tries each value once. `made_on` is
/// the device of the file system that was made.
pub(super) fn claim(
    request: &CompareRequest,
    plans: &[&Plan],
    made_on: Option<&Path>,
    scratch: &Path,
) -> Result<Claim, Failure> {
    let mut claim = Claim::none();
    let journal = Journal::of(scratch);
    for plan in plans {
        let places = places(request, plan, made_on);
        let mut add = |tunings: &[Tuning]| match known(request, plan, tunings, made_on) {
            known if known.is_empty() => Ok(()),
            known => claim.add(&known, &places, &journal),
        };
        for arm in plan.jobs.iter().flat_map(|job| &job.arms) {
            add(&arm.tunings).map_err(|error| refused(&arm.name, error))?;
            if let Err(error @ TuningError::NotRestored(_)) = add(&arm.needs) {
                return Err(refused(&arm.name, error));
            }
        }
    }
    Ok(claim)
}

fn places(request: &CompareRequest, plan: &Plan, made_on: Option<&Path>) -> Places {
    let device = request.scratch.as_ref().and_then(|spec| spec.device.as_deref());
    let target = plan.target.as_ref().map(forebay_lab::target::Target::path);
    Places::under(target.or(made_on).or(device).unwrap_or(&request.directory))
}

/// Those whose device is known: a queue is not if a file system is made later, or if the arms work
/// on several devices. These are checked when the turn of their arm comes.
fn known(
    request: &CompareRequest,
    plan: &Plan,
    tunings: &[Tuning],
    made_on: Option<&Path>,
) -> Vec<Tuning> {
    let by_image = request.scratch.as_ref().is_some_and(|spec| spec.device.is_none());
    let made_later = by_image && made_on.is_none();
    let mut arms = plan.jobs.iter().flat_map(|job| &job.arms);
    let outside = plan.target.is_none() && arms.any(|arm| arm.work.outside.is_some());
    let several = outside || matches!(request.target, TargetAsked::Write(_));
    let is_known =
        |tuning: &&Tuning| matches!(tuning.knob, Knob::Sysctl(_)) || !(made_later || several);
    tunings.iter().filter(is_known).cloned().collect()
}

fn refused(arm: &str, error: TuningError) -> Failure {
    match error {
        TuningError::NotRestored(_) => Failure::failed(format!("{arm}: {error}")),
        error => Failure::usage(format!("--arm {arm}: {error}")),
    }
}

/// Restores the settings that a killed run had changed, and reports it.
pub(super) fn put_back(directory: &Path) -> Result<(), String> {
    for recovered in recover(directory)? {
        match recovered {
            Recovered::PutBack { file, value } => {
                say(&format!(
                    "Restored {} to {value}, which a killed run had changed.",
                    file.display()
                ));
            }
            Recovered::SetSince { file, before } => {
                let file = file.display();
                say(&format!(
                    "{file} was {before} before a killed run; it was changed since and stays as it is."
                ));
            }
        }
    }
    Ok(())
}

//! Settings of the machine that arms want: looked at before anything runs, and put back where a
//! killed run has left them.

use std::path::Path;

use forebay_lab::plan::Plan;
use forebay_lab::tuning::{Knob, Places, Recovered, Tuning, recover};

use crate::failure::Failure;
use crate::meaning::{CompareRequest, TargetAsked};
use crate::output::say;

/// Refuses what could not be set, as far as that can be known before a file system is made.
pub(super) fn check_before<'a>(
    request: &CompareRequest,
    plans: impl Iterator<Item = &'a Plan>,
) -> Result<(), Failure> {
    let made_later = request.scratch.as_ref().is_some_and(|spec| spec.device.is_none());
    for plan in plans {
        let device = request.scratch.as_ref().and_then(|spec| spec.device.as_deref());
        let target = plan.target.as_ref().map(forebay_lab::target::Target::path);
        let places = Places::under(target.or(device).unwrap_or(&request.directory));
        // Some arms then work on one device, some on another: each is looked at when it comes.
        let mut works = plan.jobs.iter().flat_map(|job| &job.arms).map(|arm| &arm.work);
        let outside = plan.target.is_none() && works.any(forebay_lab::plan::Work::works_outside);
        let several = outside || matches!(request.target, TargetAsked::Write(_));
        let known =
            |tuning: &Tuning| matches!(tuning.knob, Knob::Sysctl(_)) || !(made_later || several);
        check(&places, plan, known)?;
    }
    Ok(())
}

/// The same of the queue of a device that is there now.
pub(super) fn check_made<'a>(
    device: &Path,
    plans: impl Iterator<Item = &'a Plan>,
) -> Result<(), Failure> {
    let places = Places::under(device);
    plans.into_iter().try_for_each(|plan| check(&places, plan, |_| true))
}

fn check(places: &Places, plan: &Plan, known: impl Fn(&Tuning) -> bool) -> Result<(), Failure> {
    for arm in plan.jobs.iter().flat_map(|job| &job.arms) {
        let tunings: Vec<Tuning> =
            arm.tunings.iter().filter(|tuning| known(tuning)).cloned().collect();
        places
            .check(&tunings)
            .map_err(|error| Failure::usage(format!("--arm {}: {error}", arm.name)))?;
    }
    Ok(())
}

/// Puts back what a killed run had set, and says so.
pub(super) fn put_back(directory: &Path) -> Result<(), String> {
    for recovered in recover(directory)? {
        match recovered {
            Recovered::PutBack { file, value } => {
                say(&format!(
                    "Put {} back to {value}, as it was before a run that was killed.",
                    file.display()
                ));
            }
            Recovered::SetSince { file, before } => {
                let file = file.display();
                say(&format!(
                    "{file} was {before} before a run that was killed; set since, so it stays."
                ));
            }
        }
    }
    Ok(())
}

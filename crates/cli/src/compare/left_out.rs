//! Arms without results: their entries in the manifest, and whether a failed one fails the whole
//! comparison.

use forebay_lab::compare::{CompareError, LeftOut};
use forebay_lab::manifest::{ArmLeftOut, Manifest};

use crate::failure::Failure;

/// Adds a note about a part without results. Failed arms are reported as in a part with results.
pub(super) fn report_fruitless(manifest: &mut Manifest, part: &str, error: &CompareError) {
    manifest.notes.push(format!("{part}: {error}"));
    if let CompareError::NoArm { left_out, .. } = error {
        report(manifest, left_out);
    }
}

/// Adds each arm without results and its reason, once for all parts and jobs.
pub(super) fn report(manifest: &mut Manifest, left_out: &[LeftOut]) {
    for LeftOut { arm, reason, failed, .. } in left_out {
        let left_out = ArmLeftOut { arm: arm.clone(), reason: reason.clone(), failed: *failed };
        if !manifest.left_out.contains(&left_out) {
            manifest.left_out.push(left_out);
        }
    }
}

/// Why the whole counts as failed, if an arm of any part did.
pub(super) fn failure(manifest: &Manifest) -> Result<(), Failure> {
    match manifest.left_out.iter().find(|left_out| left_out.failed) {
        Some(failed) => Err(Failure::failed(format!("{} failed: {}", failed.arm, failed.reason))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_in_which_every_arm_failed_fails_the_whole() {
        let left_out = |arm: &str, failed| LeftOut {
            job: "job".into(),
            arm: arm.into(),
            reason: "wrong byte at 4096".into(),
            failed,
        };
        let no_arm = |failed| CompareError::NoArm {
            reason: "wrong byte at 4096".into(),
            left_out: vec![left_out("mine", failed), left_out("mine-again", failed)],
        };
        let mut manifest = Manifest::default();
        report_fruitless(&mut manifest, "copies", &no_arm(false));
        assert!(failure(&manifest).is_ok(), "what cannot run here is no failure");
        assert_eq!(manifest.notes, ["copies: no arm could run: wrong byte at 4096"]);
        report_fruitless(&mut manifest, "copies", &no_arm(true));
        report_fruitless(&mut manifest, "beside", &no_arm(true));
        assert_eq!(manifest.left_out.len(), 4, "each once");
        let Err(Failure::Failed(what)) = failure(&manifest) else {
            panic!("it is told as a success")
        };
        assert_eq!(what, "mine failed: wrong byte at 4096");
    }
}

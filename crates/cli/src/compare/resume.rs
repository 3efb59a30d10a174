//! `--resume FILE`: the rounds in it, and the surroundings that must be unchanged to continue them.

use std::cell::RefCell;

use forebay_lab::compare::record::{Record, RecordError, Surroundings};
use forebay_lab::manifest::Manifest;
use forebay_lab::plan::Plan;
use forebay_lab::text::counted;

use super::Planned;
use crate::build;
use crate::failure::Failure;
use crate::meaning::{CompareRequest, TargetAsked};
use crate::output::say;

/// The rounds in a file, or a new one; none where they are not kept.
pub(super) fn open(
    request: &CompareRequest,
    planned: &[Planned<'_>],
    manifest: &Manifest,
) -> Result<Option<RefCell<Record>>, Failure> {
    let Some(path) = &request.resume else { return Ok(None) };
    let plans: Vec<&Plan> = planned.iter().map(|planned| &planned.plan).collect();
    match Record::open(path, &plans, &surroundings(request, manifest)) {
        Ok(record) => {
            if record.rounds() > 0 {
                let rounds = counted(record.rounds() as u64, "finished round");
                say(&format!("{}: {rounds}.", path.display()));
            }
            Ok(Some(RefCell::new(record)))
        }
        Err(error @ RecordError::File { .. }) => Err(Failure::failed(error)),
        Err(error) => Err(Failure::usage(format!("--resume {error}"))),
    }
}

/// Conditions that a round depends on besides its plan.
fn surroundings(request: &CompareRequest, manifest: &Manifest) -> Surroundings {
    let settings: Vec<String> =
        request.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let processors: Vec<String> = request.processors.iter().map(u32::to_string).collect();
    let storage = &manifest.storage;
    let target = match &request.target {
        TargetAsked::Write(path) => path.display().to_string(),
        // The plan names the target if it is only read.
        TargetAsked::None | TargetAsked::Read(_) => String::new(),
    };
    let all = [
        ("kernel", manifest.machine.release.clone()),
        ("forebay", build::identity()),
        ("disk", format!("{} on {}", storage.file_system, storage.device)),
        ("--set", settings.join(" ")),
        ("--scratch", request.scratch.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("--target", target),
        ("--cpus", processors.join(",")),
    ];
    all.into_iter().map(|(name, what)| (name.to_owned(), what)).collect()
}

#[cfg(test)]
mod tests {
    use forebay_lab::manifest::Storage;

    use super::*;
    use crate::args::parse;
    use crate::meaning::{self, Command};

    fn request(words: &[&str]) -> CompareRequest {
        let typed =
            parse(["forebay", "compare", "layout"].iter().chain(words).map(Into::into)).unwrap();
        let Ok(Command::Compare(request)) = meaning::of(typed) else {
            panic!("no comparison: {words:?}")
        };
        *request
    }

    #[test]
    fn all_that_makes_a_round_another_is_distinguished() {
        let manifest = |device: &str| {
            let storage =
                Storage { file_system: "xfs".into(), device: device.into(), ..Storage::default() };
            Manifest { storage, ..Manifest::default() }
        };
        let (plain, nvme) = (request(&[]), manifest("/dev/nvme0n1"));
        let known = surroundings(&plain, &nvme);
        assert_eq!(known["disk"], "xfs on /dev/nvme0n1");
        assert!(known["forebay"].starts_with(env!("CARGO_PKG_VERSION")), "{known:?}");
        let rounds_and_results = request(&["--rounds", "7", "--json", "result.json"]);
        assert_eq!(surroundings(&rounds_and_results, &nvme), known);
        assert_ne!(surroundings(&plain, &manifest("/dev/sda")), known);
        assert_ne!(surroundings(&request(&["--set", "flight=8"]), &nvme), known);
        assert_ne!(surroundings(&request(&["--cpus", "0"]), &nvme), known);
        let mut other = request(&[]);
        other.scratch = Some("xfs,size=16g".parse().unwrap());
        assert_ne!(surroundings(&other, &nvme), known);
        let mut other = request(&[]);
        other.target = TargetAsked::Write("/dev/some-device".into());
        assert_ne!(surroundings(&other, &nvme), known);
    }
}

//! The bytes that a comparison will write, announced and checked before it starts.

use forebay_lab::file_system::Spec;
use forebay_lab::plan::Plan;

use crate::failure::Failure;
use crate::meaning::{CompareRequest, TargetAsked};

/// Returns the line that announces the bytes to write, if the plans do not show them. Fails if
/// they exceed `--max-writes`.
pub(super) fn check<'a>(
    request: &CompareRequest,
    plans: impl Iterator<Item = &'a Plan> + Clone,
) -> Result<Option<String>, Failure> {
    let image = request.scratch.as_ref().map_or(0, Spec::image_bytes);
    // Where there is no other, one is made of a file.
    let given = request.scratch.is_some() || matches!(request.target, TargetAsked::Write(_));
    let devices: u64 = plans.clone().filter(|_| !given).filter_map(Plan::device_bytes).sum();
    let all = image + devices + plans.clone().map(Plan::most_written_bytes).sum::<u64>();
    let besides =
        if plans.clone().any(Plan::writes_for_a_time) { ", and what timed jobs write" } else { "" };
    let is_announced = plans.count() > 1 || request.max_writes.is_some() || image + devices > 0;
    match request.max_writes {
        Some(most) if all > most => Err(Failure::usage(format!(
            "--max-writes {}: this comparison writes {}; use fewer --rounds, a smaller --scale or --scratch, or \
             raise --max-writes",
            gib(most),
            gib(all)
        ))),
        _ => Ok(is_announced.then(|| format!("Writes at most {}{besides}.", gib(all)))),
    }
}

/// The announcement of a number of bytes.
pub(super) fn at_most(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!("Writes at most {}.", gib(bytes)) }
}

fn gib(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mib @ 0..1024 => format!("{mib} MiB"),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay_lab::plan::{Room, Wish};

    use super::*;
    use crate::args::parse;
    use crate::meaning::{self, Command};

    fn request(words: &[&str]) -> CompareRequest {
        let typed = parse(["forebay", "compare"].iter().chain(words).map(Into::into)).unwrap();
        let Ok(Command::Compare(request)) = meaning::of(typed) else {
            panic!("no comparison: {words:?}")
        };
        *request
    }

    fn checked(request: &CompareRequest) -> Result<Option<String>, Failure> {
        let wish = Wish {
            suite: "",
            form: request.form,
            scale: request.scale,
            rounds: request.rounds,
            time_limit: None,
            seed: 1,
            free_bytes: 1 << 40,
            room: Room::Shared,
            settings: &[],
            engine_settings: &[],
            target: None,
        };
        let parts = request
            .suites
            .iter()
            .flat_map(|suite| suite.parts.iter().map(move |part| (suite, part)));
        let plans: Vec<Plan> =
            parts.filter_map(|(suite, part)| Plan::new(suite, part, &wish).unwrap()).collect();
        check(request, plans.iter())
    }

    fn refused(request: &CompareRequest) -> String {
        match checked(request) {
            Err(Failure::Usage(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_laid_out_to_be_read_is_written_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("reads.fio");
        std::fs::write(&path, "[a]\nrw=randread\nsize=1g\n").unwrap();
        let path = path.to_str().unwrap();
        // Six arms and one of them twice, each once more before the first round.
        let reported = refused(&request(&[path, "--rounds", "2", "--max-writes", "10g"]));
        assert!(
            reported.contains("this comparison writes 20.0 GiB")
                && reported.contains("fewer --rounds"),
            "{reported}"
        );
        let enough =
            checked(&request(&[path, "--rounds", "2", "--max-writes", "30g"])).unwrap().unwrap();
        assert_eq!(enough, "Writes at most 20.0 GiB.");
    }

    #[test]
    fn images_are_counted() {
        let mut image = request(&["layout", "--quick", "--rounds", "1", "--max-writes", "10g"]);
        assert!(checked(&image).is_ok());
        let spec: Spec = "xfs,size=16g".parse().unwrap();
        image.scratch = Some(spec.clone());
        assert!(refused(&image).contains("comparison writes 1"), "{}", refused(&image));
        image.scratch = Some("xfs,size=16g,sparse".parse().unwrap());
        assert!(checked(&image).is_ok());
        let bytes = |request: &CompareRequest| {
            let reported = checked(request).unwrap().unwrap();
            reported.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap()
        };
        let mut device = request(&["completion", "--scale", "1", "--max-writes", "9000g"]);
        let own = bytes(&device);
        device.target = TargetAsked::Write(Path::new("/dev/some-device").to_owned());
        assert!(own >= bytes(&device) + 2.0, "a device of 2 GiB is a file that is written: {own}");
    }
}

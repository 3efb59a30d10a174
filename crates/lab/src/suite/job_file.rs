//! A fio job file as a suite of one part: see [`crate::probes::JobFile`].

use std::io::Write;
use std::path::Path;

use super::model::{Arm, Base, Cut, Form, Part, Suite, Workload};
use crate::fio::Leniency;
use crate::probes::{self, JOB_FILE, JobFile};
use crate::refusal::Refusal;
use crate::run;

/// Its arms, as they are named: the job as it stands, the kernel's ways, fio, Forebay.
const ARMS: [&str; 6] =
    ["kernel", "kernel-buffered", "kernel-uncached", "kernel-direct", "fio", "forebay"];

/// Returns whether a path names a job file.
pub fn is_job_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "fio")
}

/// Returns the suite of a job file. Differences from fio are reported as by `forebay run`.
///
/// # Errors
///
/// A file that cannot be read or is invalid, and jobs that cannot be compared, with a remedy.
pub fn suite(path: &Path, report: &mut dyn Write) -> Result<Suite, Refusal> {
    suite_called(&path.display().to_string(), path, report)
}

/// Returns the same of a file that has another name in messages.
pub fn suite_called(called: &str, path: &Path, report: &mut dyn Write) -> Result<Suite, Refusal> {
    // Each cell gets a directory of its own.
    let parsed = run::read(path, Leniency::Strict, None, report)
        .map_err(|error| Refusal(error.to_string()))?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| Refusal(format!("{}: {error}", path.display())))?;
    let name = Path::new(called).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let groups = parsed.groups.len();
    let text = match (groups, parsed.reaching_out.first()) {
        (1, None) => Ok(text),
        (1, Some(reaching_out)) => {
            Err(format!("{reaching_out} (leave the option out of the file)"))
        }
        _ => Err("the file has several groups, which fio runs in one go (give it a file with one)"
            .to_owned()),
    };
    let workloads: Result<Vec<Workload>, Refusal> = parsed
        .groups
        .into_iter()
        .enumerate()
        .map(|(number, group)| {
            let file = JobFile::new(group, text.clone())
                .map_err(|what| Refusal(format!("{}: {what}", path.display())))?;
            let name = if groups == 1 { name.clone() } else { format!("{name}-{}", number + 1) };
            let jobs = &file.workload.jobs;
            let names = || jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ");
            let title = (groups > 1).then(names);
            let shape = serde_json::to_value(&file).expect("a job file is data");
            Ok(Workload { name, title, probe: JOB_FILE, shape })
        })
        .collect();
    let workloads = workloads?;
    let cut = |form: Form| Cut {
        workloads: workloads.clone(),
        arms: ARMS.into_iter().filter_map(arm).collect(),
        seconds: 1.0,
        scale: 1.0,
        rounds: form.rounds(),
        ..Cut::default()
    };
    let title = format!("The jobs of {called}");
    let part = Part {
        name: name.clone(),
        title: title.clone(),
        metric: "iops",
        base: Base::BestOf(
            ARMS.iter().filter(|arm| **arm != "forebay").map(|arm| (*arm).to_owned()).collect(),
        ),
        again: "forebay".to_owned(),
        own_arms: true,
        figures: Vec::new(),
        forms: [Some(cut(Form::Full)), Some(cut(Form::Quick)), None, None],
    };
    Ok(Suite { name, title, file: None, parts: vec![part] })
}

fn arm(name: &str) -> Option<Arm> {
    Some(Arm::plain(name, probes::by_name(JOB_FILE)?.way(name)?))
}

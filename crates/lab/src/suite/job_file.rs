//! A fio job file as a suite of one: the same jobs through the kernel's ways, through fio itself
//! and through Forebay.
//!
//! Each cell has an empty directory, so a job's new files go there, not to the directory it names.
//! A job that only reads an existing file by its absolute path reads that file, and nothing is ever
//! written to it.

use std::io::Write;
use std::path::{Component, Path};

use super::own::job_file_engines;
use super::{Arm, Base, Cut, Form, Part, Suite, Workload, WorkloadKind};
use crate::fio::Leniency;
use crate::job::{self, Amount, Devices, YesNo};
use crate::refusal::Refusal;
use crate::run;
use crate::target::Target;

/// Memory for data of a bounded arm, Forebay among them: a job file says nothing about that.
pub const MEMORY_BYTES: u64 = 256 << 20;

/// Its arms, as they are named: the job as it stands, the kernel's ways, fio, Forebay.
const ARMS: [&str; 6] =
    ["kernel", "kernel-buffered", "kernel-uncached", "kernel-direct", "fio", "forebay"];

/// A group of a job file: jobs that start together.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFile {
    pub workload: job::Workload,
    /// The text for fio, or why fio cannot do the same.
    pub text: Result<String, String>,
}

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

/// The same of a file that is called something else than it was.
pub fn suite_called(called: &str, path: &Path, report: &mut dyn Write) -> Result<Suite, Refusal> {
    // Each cell gets a directory of its own.
    let parsed = run::read(path, Leniency::Strict, None, report)
        .map_err(|error| Refusal(error.to_string()))?;
    let text = super::text_of(path)?;
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
            let file = JobFile::of(group, text.clone())
                .map_err(|what| Refusal(format!("{}: {what}", path.display())))?;
            let name = if groups == 1 { name.clone() } else { format!("{name}-{}", number + 1) };
            let jobs = &file.workload.jobs;
            let block_bytes = jobs.iter().map(|job| job.blocks.write.max()).max().unwrap_or(0);
            let names = || jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ");
            let title = (groups > 1).then(names);
            Ok(Workload { name, title, block_bytes, kind: WorkloadKind::JobFile(Box::new(file)) })
        })
        .collect();
    let workloads = workloads?;
    let cut = |form| Cut {
        workloads: workloads.clone(),
        arms: ARMS.into_iter().filter_map(arm).collect(),
        seconds: 1.0,
        scale: 1.0,
        rounds: super::rounds_of(form),
        ..Cut::default()
    };
    let title = format!("The jobs of {called}");
    let part = Part {
        name: name.clone(),
        title: title.clone(),
        metric: "iops",
        base: Base::BestOf(
            ARMS.into_iter().filter(|arm| *arm != "forebay").map(str::to_owned).collect(),
        ),
        again: "forebay".to_owned(),
        also: Vec::new(),
        forms: [Some(cut(Form::Full)), Some(cut(Form::Quick)), None],
    };
    Ok(Suite { name, title, file: None, parts: vec![part] })
}

fn arm(name: &'static str) -> Option<Arm> {
    let (_, through) = job_file_engines().find(|(word, _)| *word == name)?;
    Some(Arm::plain(name, through))
}

impl JobFile {
    fn of(mut workload: job::Workload, text: Result<String, String>) -> Result<Self, String> {
        let outside =
            workload.jobs.iter().flat_map(|job| &job.files).find(|path| leads_out(path)).cloned();
        let named = workload.jobs.iter().find_map(|job| job.directory.clone());
        let Some(outside) = outside.or(named) else { return Ok(Self { workload, text }) };
        let all = workload.jobs.iter().flat_map(|job| &job.files);
        let there = all.clone().all(|path| path.is_absolute() && path.exists());
        let writes = workload.jobs.iter().any(|job| job.access.direction.writes());
        if !writes && there {
            workload.devices = Devices::ReadOnly;
            // They are the user's, and fio removes them in spite of --readonly.
            let unlinks = workload.jobs.iter().any(|job| job.unlink == YesNo::Yes);
            let text = if unlinks {
                let shown = outside.display();
                Err(format!("it would remove {shown} (leave unlink=1 out of the file)"))
            } else {
                text
            };
            workload.jobs.iter_mut().for_each(|job| job.unlink = YesNo::No);
            return Ok(Self { workload, text });
        }
        if workload.absolute_paths().any(|path| crate::load::is_block_device(path)) {
            let shown = outside.display();
            return Err(format!(
                "{shown}: a comparison writes no device of a job file (use `forebay run`, or --scratch with device=)"
            ));
        }
        let shown = outside.display();
        let text = Err(format!("it would go to {shown}, and not to the directory of its cell"));
        Ok(Self { workload: workload.confined(), text })
    }

    /// The same jobs on something that is only read.
    pub(crate) fn on(&self, target: &Target) -> Result<Self, String> {
        let mut workload = self.workload.clone();
        for job in &mut workload.jobs {
            if job.access.direction.writes() {
                return Err(format!("{}: the job writes, and {target} is only read", job.name));
            }
            let there = target.bytes();
            if let Some(Amount::Bytes(bytes)) = job.size
                && bytes > there
            {
                return Err(format!(
                    "{}: the job reads {bytes} bytes, {target} has {there}",
                    job.name
                ));
            }
            job.files = vec![target.path().to_owned()];
            job.directory = None;
            job.file_size = None;
            job.unlink = YesNo::No;
        }
        workload.devices = Devices::ReadOnly;
        Ok(Self { workload, text: Err("its job file names other files than --target".to_owned()) })
    }
}

/// Whether a path may be of something that is not in the directory of its cell.
fn leads_out(path: &Path) -> bool {
    path.components().any(|part| matches!(part, Component::RootDir | Component::ParentDir))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn read(text: &str) -> Result<(tempfile::TempDir, Suite), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.fio");
        let text = text.replace("HERE", directory.path().to_str().unwrap());
        fs::write(directory.path().join("there"), [7; 65_536]).unwrap();
        fs::write(&path, text).unwrap();
        let suite = suite(&path, &mut Vec::new()).map_err(|error| error.to_string())?;
        Ok((directory, suite))
    }

    fn files(suite: &Suite) -> Vec<JobFile> {
        let of = |workload: &Workload| match &workload.kind {
            WorkloadKind::JobFile(file) => (**file).clone(),
            other => panic!("{other:?}"),
        };
        suite.parts[0].cut(Form::Full).unwrap().workloads.iter().map(of).collect()
    }

    #[test]
    fn a_job_file_is_a_suite_of_one() {
        let (_directory, suite) = read("[a]\nrw=randwrite\nsize=1m\nloops=3\n").unwrap();
        let cut = suite.parts[0].cut(Form::Full).unwrap();
        assert_eq!((suite.name.as_str(), cut.rounds), ("jobs", 10));
        assert_eq!(suite.parts[0].cut(Form::Quick).unwrap().rounds, 5);
        assert_eq!(cut.names(), ARMS);
        let file = &files(&suite)[0];
        assert_eq!(
            (file.workload.file_bytes(), file.workload.written_bytes(), file.workload.seconds()),
            (1 << 20, 3 << 20, None)
        );
        assert!(file.text.is_ok());
    }

    #[test]
    fn each_group_is_a_job_and_fio_has_files_of_one_alone() {
        let text =
            "[a]\nrw=write\nsize=1m\n[b]\nstonewall\nrw=read\nsize=1m\ntime_based\nruntime=3\n";
        let (_directory, suite) = read(text).unwrap();
        let files = files(&suite);
        assert_eq!((files.len(), files[1].workload.seconds()), (2, Some(3.0)));
        assert!(files[0].text.as_ref().unwrap_err().contains("several groups"));
        let titles = suite.parts[0]
            .cut(Form::Full)
            .unwrap()
            .workloads
            .iter()
            .map(|one| one.title.as_deref());
        assert!(titles.eq([Some("a"), Some("b")]));
    }

    #[test]
    fn what_is_there_is_only_read_and_all_else_is_in_the_cell_s_directory() {
        let (_directory, suite) = read("[a]\nrw=read\nfilename=HERE/there\nunlink=1\n").unwrap();
        let file = &files(&suite)[0];
        assert_eq!(file.workload.devices, Devices::ReadOnly);
        assert_eq!(file.workload.jobs[0].unlink, YesNo::No);
        let refused = file.text.as_ref().unwrap_err();
        assert!(
            refused.contains("would remove") && refused.contains("leave unlink=1 out"),
            "{refused}"
        );
        let (_directory, suite) = read("[a]\nrw=read\nfilename=HERE/there\n").unwrap();
        assert!(files(&suite)[0].text.is_ok());
        let (_directory, suite) = read("[a]\nrw=write\nfilename=HERE/there\nsize=64k\n").unwrap();
        let file = &files(&suite)[0];
        assert!(file.workload.absolute_paths().next().is_none());
        assert!(file.text.as_ref().unwrap_err().contains("directory of its cell"));
    }

    #[test]
    fn a_path_upwards_stays_in_the_cell_s_directory() {
        for there in
            ["filename=../../there", "filename=a/../../there", "directory=..\nfilename=there"]
        {
            let (_directory, suite) = read(&format!("[a]\nrw=write\nsize=64k\n{there}\n")).unwrap();
            let file = &files(&suite)[0];
            let path = &file.workload.jobs[0].files[0];
            assert!(path.is_relative() && !leads_out(path), "{there}: {}", path.display());
            assert!(file.text.as_ref().unwrap_err().contains("directory of its cell"), "{there}");
        }
    }

    #[test]
    fn fio_is_left_out_where_it_would_reach_out_of_its_directory() {
        for option in [
            "ioscheduler=none",
            "exec_prerun=true",
            "exec_postrun=true",
            "cgroup=one",
            "unlink_each_loop=1",
            "write_bw_log=/var/log/bw",
            "write_iolog=../iolog",
            "iomem=mmap:/data/file",
        ] {
            let (_directory, suite) = read(&format!("[a]\nrw=read\nsize=64k\n{option}\n")).unwrap();
            let why = files(&suite)[0].text.clone().unwrap_err();
            let name = option.split_once('=').unwrap().0;
            assert!(why.contains(&format!("jobs.fio:4: {name}: fio would")), "{why}");
            assert!(why.contains("leave the option out"), "{why}");
        }
        let harmless = "write_bw_log=bw\niomem=mmap:file\nunlink_each_loop=0\nunlink=1\nnice=3";
        let (_directory, suite) = read(&format!("[a]\nrw=read\nsize=64k\n{harmless}\n")).unwrap();
        assert!(files(&suite)[0].text.is_ok());
    }

    #[test]
    fn on_a_target_nothing_is_written() {
        let (directory, suite) =
            read("[a]\nrw=randread\nsize=64k\n[b]\nrw=read\nsize=32k\nunlink=1\n").unwrap();
        let target = Target::look(&directory.path().join("there")).unwrap();
        let on = files(&suite)[0].on(&target).unwrap();
        let expected: PathBuf = fs::canonicalize(directory.path().join("there")).unwrap();
        assert!(
            on.workload
                .jobs
                .iter()
                .all(|job| job.files == [expected.clone()] && job.unlink == YesNo::No)
        );
        assert_eq!((on.workload.devices, on.workload.file_bytes()), (Devices::ReadOnly, 0));
        let (directory, suite) = read("[a]\nrw=randread\nsize=128k\n").unwrap();
        let target = Target::look(&directory.path().join("there")).unwrap();
        assert!(files(&suite)[0].on(&target).unwrap_err().contains("has 65536"));
        let (_directory, suite) = read("[a]\nrw=randwrite\nsize=4k\n").unwrap();
        assert!(files(&suite)[0].on(&target).unwrap_err().contains("only read"));
    }

    #[test]
    fn what_is_filled_beforehand_is_counted_once_for_each_file() {
        let laid_out = |text: &str| {
            let (_directory, suite) = read(text).unwrap();
            let file = files(&suite).remove(0);
            (
                file.workload.laid_out_bytes(),
                file.workload.written_bytes(),
                file.workload.writes_for_a_time(),
            )
        };
        assert_eq!(laid_out("[a]\nrw=randread\nsize=1m\nnumjobs=3\n"), (3 << 20, 0, false));
        assert_eq!(
            laid_out("[a]\nrw=randread\nsize=1m\nnumjobs=3\nfilename=one\n"),
            (1 << 20, 0, false)
        );
        assert_eq!(laid_out("[a]\nrw=write\nsize=1m\n"), (0, 1 << 20, false));
        assert_eq!(laid_out("[a]\nrw=write\nsize=1m\noverwrite=1\n"), (1 << 20, 1 << 20, false));
        assert_eq!(laid_out("[a]\nrw=read\nsize=1m\noffset=1m\nnrfiles=2\n"), (3 << 20, 0, false));
        assert_eq!(laid_out("[a]\nrw=read\nfilename=HERE/there\n"), (0, 0, false));
        let beside = "[a]\nrw=write\nsize=1m\n[b]\nrw=write\nsize=1m\ntime_based\nruntime=3\n";
        assert_eq!(laid_out(beside), (0, 1 << 20, true), "one for a time beside one that is not");
    }

    #[test]
    fn what_makes_no_sense_is_reported_with_its_line() {
        let refused = read("[a]\nrw=read\nsizee=1m\n").unwrap_err();
        assert!(
            refused.contains("jobs.fio:3: sizee: no such option; did you mean size?"),
            "{refused}"
        );
    }
}

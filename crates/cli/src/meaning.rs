//! From the command line to a request. Invalid arguments are refused here, before anything is done:
//! a comparison of ten minutes must not end with "no such directory".

mod repeat;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::keeper::image::Run;
use forebay_lab::arm::Arm;
use forebay_lab::batching::Batching;
use forebay_lab::check::ROUNDS;
use forebay_lab::disk::NAMED;
use forebay_lab::file_system::Spec;
use forebay_lab::fio::Leniency;
use forebay_lab::job::Devices;
use forebay_lab::manifest::JobFile;
use forebay_lab::plan::fresh_seed;
use forebay_lab::processors;
use forebay_lab::progress::Verbosity;
use forebay_lab::refusal::Refusal;
use forebay_lab::run::RunOptions;
use forebay_lab::suite::own::{self, Choice, OwnArm};
use forebay_lab::suite::{self, BARE, Form, SHIPPED, Suite, job_file};
use forebay_lab::target::Target;
use forebay_mount::{Data, LogUse, Options};

pub(crate) use repeat::{Repeated, check_size};

use crate::args::{
    self, Ask, CompareArgs, CtlArgs, DoctorArgs, KeeperArgs, LogWhen, MountArgs, Parsed,
    RecoverArgs, RunArgs, UnmountArgs, Verb, WalkArgs, Way,
};
use crate::doctor;
use crate::failure::Failure;
use crate::mount;
use crate::output::Beside;
use crate::outputs::{self, Outputs};
use crate::recover;
use crate::report::{self, ReportRequest};

/// Stands for every suite that is shipped.
const ALL: &str = "all";

/// A command with its checked arguments.
#[derive(Debug)]
pub(crate) enum Command {
    /// Compare.
    Compare(Box<CompareRequest>),
    /// Compare what is known.
    Check(CheckRequest),
    /// Run a job file.
    Run(RunRequest),
    /// Show a result, or two.
    Report(Box<ReportRequest>),
    /// Ask an engine that runs.
    Control {
        /// Where it serves its control socket.
        socket: PathBuf,
        ask: Ask,
    },
    /// Look at a place and the machine it is on.
    Doctor { path: PathBuf, form: doctor::Form },
    /// Walk the way of a request, or of a page.
    Walk {
        way: Way,
        /// Where its file is for the time.
        directory: PathBuf,
    },
    /// Write the data of a log, or of a keeper.
    Recover(recover::Request),
    /// Mount a directory.
    Mount(mount::Request),
    /// End a mount.
    Unmount(PathBuf),
    /// Print a completion script.
    Completions(clap_complete::Shell),
    /// Write the manual pages to a directory.
    Manual(PathBuf),
    /// Be a keeper.
    Keeper {
        /// The descriptor that the keeper receives messages on.
        channel: i32,
    },
    /// Help or version.
    Show(String),
}

/// A comparison.
#[derive(Debug)]
pub(crate) struct CompareRequest {
    pub(crate) suites: Vec<Suite>,
    pub(crate) form: Form,
    pub(crate) scale: Option<f64>,
    pub(crate) target: TargetAsked,
    pub(crate) processors: Vec<u32>,
    pub(crate) resume: Option<PathBuf>,
    pub(crate) max_writes: Option<u64>,
    pub(crate) scratch: Option<Spec>,
    pub(crate) directory: PathBuf,
    pub(crate) rounds: Option<u32>,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) seed: Option<u64>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) outputs: Outputs,
    pub(crate) verbosity: Verbosity,
    pub(crate) batching: Batching,
    /// The files of the suites, as they were read.
    pub(crate) job_files: Vec<JobFile>,
    /// The recorded comparison that this one repeats, if there is one.
    pub(crate) repeated: Option<Box<Repeated>>,
}

/// Target named by `--target`.
#[derive(Debug)]
pub(crate) enum TargetAsked {
    /// Nothing.
    None,
    /// A target that is only read.
    Read(Target),
    /// A device that is written over.
    Write(PathBuf),
}

/// A check of the lab itself.
#[derive(Debug)]
pub(crate) struct CheckRequest {
    pub(crate) scale: f64,
    pub(crate) directory: PathBuf,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    pub(crate) json: Option<PathBuf>,
}

/// A job file to run.
#[derive(Debug)]
pub(crate) struct RunRequest {
    pub(crate) options: RunOptions,
    /// That of the options, or the one we are in.
    pub(crate) directory: PathBuf,
    pub(crate) json: Option<PathBuf>,
    pub(crate) batching: Batching,
}

/// Converts a parsed command line to a command.
pub(crate) fn of(parsed: Parsed) -> Result<Command, Failure> {
    match parsed {
        Parsed::Show(text) => Ok(Command::Show(text)),
        Parsed::Typed(typed) => match typed.verb {
            Verb::Compare(typed) if typed.list => Ok(Command::Show(suite::list())),
            Verb::Compare(typed) if typed.check_against_itself => check(*typed),
            Verb::Compare(typed) => {
                compare(*typed).map(|request| Command::Compare(Box::new(request)))
            }
            Verb::Run(typed) => run(typed).map(Command::Run),
            Verb::Report(typed) => {
                report::meant(typed).map(|request| Command::Report(Box::new(request)))
            }
            Verb::Ctl(CtlArgs { socket, ask }) => Ok(Command::Control { socket, ask }),
            Verb::Doctor(DoctorArgs { path, json, verbose }) => {
                let form = match (json, verbose) {
                    (true, _) => doctor::Form::Json,
                    (false, true) => doctor::Form::Verbose,
                    (false, false) => doctor::Form::Text,
                };
                Ok(Command::Doctor { path, form })
            }
            Verb::Completions(typed) => Ok(Command::Completions(typed.shell)),
            Verb::Man(typed) => directory("DIR", typed.directory).map(Command::Manual),
            Verb::Walk(WalkArgs { way, dir }) => {
                let directory = directory("--dir", dir.unwrap_or_else(std::env::temp_dir))?;
                Ok(Command::Walk { way, directory })
            }
            Verb::Mount(typed) => mount(typed).map(Command::Mount),
            Verb::Unmount(UnmountArgs { mount_point }) => Ok(Command::Unmount(mount_point)),
            Verb::Recover(RecoverArgs { path, dry_run, save }) => {
                let run = if dry_run { Run::Dry } else { Run::Real };
                Ok(Command::Recover(recover::Request { path, run, save }))
            }
            Verb::Keeper(KeeperArgs { channel }) => Ok(Command::Keeper { channel }),
        },
    }
}

fn compare(typed: CompareArgs) -> Result<CompareRequest, Failure> {
    let (typed, repeated) = match typed.from.clone() {
        Some(directory) => {
            let (typed, repeated) = repeat::from_bundle(typed, &directory)?;
            (typed, Some(Box::new(repeated)))
        }
        None => (typed, None),
    };
    let refused = |error: Refusal| Failure::usage(error);
    let shipped = |names: &[&str]| -> Result<Vec<Suite>, Failure> {
        names.iter().map(|name| suite::find(Path::new(name)).map_err(refused)).collect()
    };
    let named = match typed.as_published.as_ref().map(PathBuf::from).or(typed.suite.clone()) {
        Some(name) if name.as_os_str() == ALL => Some(shipped(&SHIPPED.map(|(name, _)| name))?),
        Some(path) if job_file::is_job_file(&path) => {
            Some(vec![job_file::suite(&path, &mut Beside).map_err(refused)?])
        }
        Some(name) => Some(vec![suite::find(&name).map_err(refused)?]),
        None => None,
    };
    let form = match (&named, typed.quick) {
        _ if typed.as_published.is_some() => Form::Published,
        (None, _) => Form::Bare,
        (Some(_), true) => Form::Quick,
        (Some(_), false) => Form::Full,
    };
    if typed.scale.is_some()
        && typed.suite.as_deref().map(Path::new).is_some_and(job_file::is_job_file)
    {
        return Err(Failure::usage(
            "--scale: a job file has sizes and times of its own; change them in the file",
        ));
    }
    let suites = match named {
        Some(suites) => suites,
        None => shipped(&BARE)?,
    };
    let suites = match &repeated {
        Some(repeated) => repeat::suites(repeated)?,
        None => suites,
    };
    let job_files = match &repeated {
        Some(repeated) => repeated.job_files()?,
        None => repeat::job_files(&typed, &suites)?,
    };
    let suites = match (&typed.part, suites.len()) {
        (None, _) => suites,
        (Some(part), 1) => suites
            .into_iter()
            .map(|suite| suite.only(part).map_err(refused))
            .collect::<Result<_, _>>()?,
        (Some(_), _) => {
            return Err(Failure::usage(
                "--part: no suite is named; use `forebay compare SUITE --part NAME`",
            ));
        }
    };
    let own: Result<Vec<OwnArm>, _> = typed.own_arms.iter().map(|text| text.parse()).collect();
    let own = own.map_err(|error| Failure::usage(format!("--arm {error}")))?;
    let choice = Choice {
        own: &own,
        kept: typed.kept_arms.as_deref(),
        jobs: typed.jobs.as_deref(),
        cell_bytes: typed.cell_bytes,
    };
    let suites = own::choose(suites, form, choice).map_err(Failure::usage)?;
    if suites.is_empty() {
        return Err(Failure::usage(
            "--arms: no arm is left; name one of the suite, or add one with --arm",
        ));
    }
    // The thread of the plug ran on one processor.
    let of_thread = typed.as_published.as_deref().filter(|name| *name == "plug").map(|_| "0");
    let cpus = typed.cpus.as_deref().or(of_thread);
    let processors = cpus.map(processors::parse).transpose();
    Ok(CompareRequest {
        outputs: Outputs::meant(typed.html, typed.bundle.as_deref())?,
        job_files,
        repeated,
        suites,
        processors: processors
            .map_err(|error| Failure::usage(format!("--cpus: {error}")))?
            .unwrap_or_default(),
        resume: typed.resume.map(|path| file_to_write("--resume", path)).transpose()?,
        max_writes: typed.max_writes,
        form,
        scale: typed.scale,
        scratch: scratch(
            typed.disk.as_deref(),
            typed.scratch.as_deref(),
            typed.allow_write_device,
        )?,
        target: typed
            .target
            .map_or(Ok(TargetAsked::None), |path| target(path, typed.allow_write_device))?,
        directory: directory("--dir", typed.dir)?,
        rounds: typed.rounds,
        time_limit: typed.seconds.map(Duration::from_secs),
        seed: typed.seed.as_deref().map(seed).transpose()?,
        settings: settings(&typed.settings)?,
        json: typed.json.map(json).transpose()?,
        verbosity: if typed.verbose { Verbosity::Verbose } else { Verbosity::Brief },
        batching: batching(typed.batching)?,
    })
}

fn check(typed: CompareArgs) -> Result<Command, Failure> {
    Ok(Command::Check(CheckRequest {
        scale: typed.scale.unwrap_or(1.0),
        directory: directory("--dir", typed.dir)?,
        rounds: typed.rounds.unwrap_or(ROUNDS),
        seed: typed.seed.as_deref().map(seed).transpose()?.unwrap_or_else(fresh_seed),
        json: typed.json.map(json).transpose()?,
    }))
}

fn mount(typed: MountArgs) -> Result<mount::Request, Failure> {
    let data = if typed.plain {
        Data::Plain
    } else {
        Data::Engine {
            settings: settings(&typed.settings)?,
            survives: !typed.no_survive,
            log: match typed.intent_log {
                None => LogUse::Never,
                Some(LogWhen::Price) => LogUse::ByPrice,
                Some(LogWhen::Always) => LogUse::Always,
            },
            control: typed.control,
        }
    };
    let MountArgs { source, mount_point, allow_other, allow_suid, allow_dev, rings, .. } = typed;
    let options = Options { source, mount_point, data, allow_other, allow_suid, allow_dev, rings };
    Ok(mount::Request { options, background: typed.background, log: typed.log })
}

fn run(typed: RunArgs) -> Result<RunRequest, Failure> {
    if let Err(error) = fs::metadata(&typed.job) {
        return Err(refused("job file", &typed.job, error, "give the path of a fio job file"));
    }
    if typed.engine != args::Engine::Forebay && typed.survive {
        return Err(Failure::usage(
            "--survive: only forebay has a keeper; leave it out, or use --engine forebay",
        ));
    }
    let arm = match typed.engine {
        args::Engine::Forebay if typed.survive => Arm::ForebaySurvive,
        args::Engine::Forebay => Arm::Forebay,
        args::Engine::Kernel => Arm::Kernel,
        args::Engine::Null => Arm::Null,
    };
    if !arm.is_forebay() && !typed.settings.is_empty() {
        return Err(Failure::usage(
            "--set: only forebay has knobs; leave it out, or use --engine forebay",
        ));
    }
    if !arm.is_forebay() && typed.control.is_some() {
        return Err(Failure::usage(
            "--control: only forebay has knobs; leave it out, or use --engine forebay",
        ));
    }
    let directory = directory("--dir", typed.dir)?;
    Ok(RunRequest {
        options: RunOptions {
            job_file: typed.job,
            arm,
            settings: settings(&typed.settings)?,
            control: typed.control,
            leniency: if typed.lenient { Leniency::Lenient } else { Leniency::Strict },
            devices: if typed.allow_write_device { Devices::Write } else { Devices::Refuse },
            directory: Some(directory.clone()),
            seed: typed.seed.as_deref().map(seed).transpose()?.unwrap_or_else(fresh_seed),
        },
        directory,
        json: typed.json.map(json).transpose()?,
        batching: batching(typed.batching)?,
    })
}

/// The file system of a disk that is imitated, if no other is asked for.
const OF_A_DISK: &str = "ext4,size=4g,keep";

/// A file system that could be made here, on a disk that charges as asked.
fn scratch(
    disk: Option<&str>,
    text: Option<&str>,
    may_write_device: bool,
) -> Result<Option<Spec>, Failure> {
    let Some(asked) = text.or(disk.map(|_| OF_A_DISK)) else { return Ok(None) };
    let refused = |what: String| {
        Failure::usage(match (disk, text) {
            (Some(name), None) => format!("--disk {name}: {what}"),
            _ => format!("--scratch {asked}: {what}"),
        })
    };
    let mut spec: Spec = asked.parse().map_err(|error| refused(format!("{error}")))?;
    if let Some(disk) = NAMED.iter().find(|known| Some(known.name) == disk) {
        if spec.device.is_some() {
            return Err(refused(format!("a device is not {}; leave one of them out", disk.name)));
        }
        spec.charges = spec.charges.or(disk.charges);
    }
    if spec.device.is_some() && !may_write_device {
        return Err(refused("this erases the device; add --allow-write-device to confirm".into()));
    }
    spec.looked_at().map(Some).map_err(|error| refused(error.to_string()))
}

/// To be read; or to be written over, if nobody else uses it.
fn target(path: PathBuf, may_be_written: bool) -> Result<TargetAsked, Failure> {
    if !may_be_written {
        let target =
            Target::look(&path).map_err(|why| Failure::usage(format!("--target {why}")))?;
        return Ok(TargetAsked::Read(target));
    }
    match forebay_lab::load::check_target(&path) {
        Ok(()) => Ok(TargetAsked::Write(path)),
        Err(error) => Err(Failure::usage(format!("--target {error}"))),
    }
}

fn directory(option: &str, path: PathBuf) -> Result<PathBuf, Failure> {
    match fs::metadata(&path) {
        Ok(data) if data.is_dir() => Ok(path),
        Ok(_) => Err(refused(option, &path, "not a directory", "give an existing directory")),
        Err(error) => Err(refused(option, &path, error, "give an existing directory")),
    }
}

/// Returns whether the kernel's batching is counted.
fn batching(asked: bool) -> Result<Batching, Failure> {
    match asked {
        true if cfg!(feature = "batching") => Ok(Batching::Counted),
        true => Err(Failure::usage(
            "--batching: this program was built without the feature `batching`; build it with the \
             default features"
                .to_owned(),
        )),
        false => Ok(Batching::Off),
    }
}

/// A path that can be written to when the result is there.
fn json(path: PathBuf) -> Result<PathBuf, Failure> {
    file_to_write("--json", path)
}

fn file_to_write(option: &str, path: PathBuf) -> Result<PathBuf, Failure> {
    match outputs::file(&path) {
        Ok(()) => Ok(path),
        Err(why) => Err(Failure::usage(format!("{option} {}: {why}", path.display()))),
    }
}

fn seed(text: &str) -> Result<u64, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| {
        Failure::usage(format!("--seed {text}: not a seed; give 1 to 16 hexadecimal digits"))
    })
}

fn settings(typed: &[String]) -> Result<Vec<(String, String)>, Failure> {
    typed
        .iter()
        .map(|text| match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(Failure::usage(format!(
                "--set {text}: not KEY=VALUE; use a form like --set flight=32"
            ))),
        })
        .collect()
}

fn refused(what: &str, path: &Path, why: impl std::fmt::Display, remedy: &str) -> Failure {
    Failure::usage(format!("{what} {}: {why}; {remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;

    fn meant(words: &[&str]) -> Result<Command, Failure> {
        parse(["forebay"].iter().chain(words).map(Into::into)).and_then(of)
    }

    fn comparison(words: &[&str]) -> CompareRequest {
        match meant(words) {
            Ok(Command::Compare(request)) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_forms_of_compare() {
        let bare = comparison(&["compare"]);
        assert_eq!((bare.form, bare.rounds), (Form::Bare, None));
        let names = |request: &CompareRequest| -> Vec<String> {
            request.suites.iter().map(|suite| suite.name.clone()).collect()
        };
        assert_eq!(names(&bare), ["layout", "plug", "completion"]);
        assert_eq!(names(&comparison(&["compare", "plug"])), ["plug"]);
        assert_eq!(bare.directory, Path::new("."));
        let published = comparison(&["compare", "--as-published", "plug"]);
        assert_eq!((published.form, names(&published)), (Form::Published, vec!["plug".to_owned()]));
        assert_eq!(published.processors, processors::parse("0").unwrap());
        assert!(meant(&["compare", "--as-published", "layout"]).is_err());
        assert!(meant(&["compare", "plug", "--as-published", "plug"]).is_err());
        assert_eq!(comparison(&["compare", "layout"]).form, Form::Full);
        assert_eq!(comparison(&["compare", "layout", "--quick"]).form, Form::Quick);
        let all = comparison(&[
            "compare",
            "--rounds",
            "7",
            "--seconds",
            "60",
            "--seed",
            "7f3a",
            "--set",
            "flight=8",
            "--set",
            "a = b=c",
        ]);
        assert_eq!((all.rounds, all.seed), (Some(7), Some(0x7f3a)));
        assert_eq!(all.time_limit, Some(Duration::from_secs(60)));
        assert_eq!(all.settings[1], ("a".to_owned(), "b=c".to_owned()));
    }

    #[test]
    fn the_check_takes_few_options() {
        let check = |words: &[&str]| match meant(words) {
            Ok(Command::Check(request)) => (request.rounds, request.scale),
            other => panic!("{other:?}"),
        };
        assert_eq!(check(&["compare", "--check-against-itself"]), (ROUNDS, 1.0));
        let small = ["compare", "--check-against-itself", "--rounds", "2", "--scale", "0.1"];
        assert_eq!(check(&small), (2, 0.1));
        for other in ["plug", "--quick", "--list", "--max-writes=1g", "--cpus=0", "--resume=rounds"]
        {
            let refused = meant(&["compare", "--check-against-itself", other]);
            assert!(matches!(refused, Err(Failure::Usage(_))), "{other}");
        }
    }

    #[test]
    fn run_is_understood() {
        let Ok(Command::Run(request)) =
            meant(&["run", "Cargo.toml", "--engine", "null", "--lenient", "--seed", "7f"])
        else {
            panic!("not understood");
        };
        let options = request.options;
        assert_eq!((options.arm, options.leniency), (Arm::Null, Leniency::Lenient));
        assert_eq!((options.devices, options.seed), (Devices::Refuse, 0x7f));
        let refused =
            meant(&["run", "Cargo.toml", "--engine", "kernel", "--set", "flight=8"]).unwrap_err();
        assert!(matches!(refused, Failure::Usage(what) if what.contains("only forebay has knobs")));
    }

    #[test]
    fn batching_is_counted_only_on_request() {
        assert_eq!(comparison(&["compare"]).batching, Batching::Off);
        assert_eq!(comparison(&["compare", "--batching"]).batching, Batching::Counted);
    }

    #[test]
    fn help_and_version_are_shown() {
        for words in [&["--version"][..], &["--help"], &["compare", "--help"]] {
            assert!(matches!(meant(words), Ok(Command::Show(_))), "{words:?}");
        }
    }
}

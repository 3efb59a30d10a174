//! The program `forebay`.
//!
//! `args` parses the command line, `meaning` checks it, and a module for each subcommand does it.
//! Exit codes: 0 success, 1 failure, 2 invalid arguments or not supported here, 130 interrupted.
//! `doctor` uses 0 for full strength, 1 for degraded, 2 for not working.

mod args;
mod build;
mod check;
mod compare;
mod ctl;
mod doctor;
mod failure;
mod generated;
mod kept;
mod meaning;
mod mount;
mod output;
mod outputs;
mod recover;
mod report;
mod run;
mod walk;
mod wiring;

use std::process::ExitCode;

use failure::Failure;
use forebay_lab::disk;
use meaning::Command;

fn main() -> ExitCode {
    // A comparison starts this program again for each cell.
    if wiring::is_cell() {
        return wiring::cell_main();
    }
    // And for the disk below a file system of its own.
    if disk::is_server(std::env::args_os()) {
        return disk::server_main();
    }
    match args::parse(std::env::args_os()).and_then(meaning::of).and_then(perform) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn perform(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Doctor { path, form } => return doctor::doctor(&path, form),
        Command::Completions(shell) => generated::completions(shell),
        Command::Manual(directory) => generated::manual(&directory),
        Command::Compare(request) => compare::compare(&request),
        Command::Check(request) => check::check(&request),
        Command::Run(request) => run::run(&request),
        Command::Report(request) => report::report(&request),
        Command::Control { socket, ask } => ctl::ctl(&socket, &ask),
        Command::Walk { way: args::Way::Request, directory } => walk::request(&directory),
        Command::Walk { way: args::Way::Page, directory } => walk::page(&directory),
        Command::Recover(request) => recover::recover(&request),
        Command::Mount(request) => mount::mount(&request),
        Command::Unmount(mount_point) => mount::unmount(&mount_point),
        Command::Keeper { channel } => std::process::exit(forebay::keeper::run(channel)),
        Command::Show(text) => output::print(&text),
    };
    done.map(|()| ExitCode::SUCCESS)
}

//! The program `forebay`.
//!
//! What was typed (`args`) becomes what is meant (`meaning`), which is then done. Exit codes: 0
//! done, 1 it failed, 2 what was typed cannot be meant, 130 the user ended it; of `doctor` 0, 1 and
//! 2 say how well Forebay does.

mod args;
mod build;
mod check;
mod compare;
mod ctl;
mod doctor;
mod failure;
mod meaning;
mod netbench;
mod output;
mod outputs;
mod recover;
mod report;
mod run;
mod simulate;
mod walk;
mod wiring;

use std::process::ExitCode;

use failure::Failure;
use meaning::Command;

fn main() -> ExitCode {
    // A comparison starts this program again for each cell.
    if wiring::is_cell() {
        return wiring::cell_main();
    }
    match args::parse(std::env::args_os()).and_then(meaning::of).and_then(perform) {
        Ok(code) => code,
        Err(failure) => failure.tell(),
    }
}

fn perform(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        Command::Doctor { path, form } => return doctor::doctor(&path, form),
        Command::Compare(request) => compare::compare(&request),
        Command::Check(request) => check::check(&request),
        Command::Run(request) => run::run(&request),
        Command::Report(request) => report::report(&request),
        Command::Control { socket, ask } => ctl::ctl(&socket, &ask),
        Command::Walk { way: args::Way::Request, directory } => walk::request(&directory),
        Command::Walk { way: args::Way::Page, directory } => walk::page(&directory),
        Command::Simulate(request) => simulate::simulate(&request),
        Command::Netbench(bench) => netbench::netbench(&bench),
        Command::Recover { image, run } => recover::recover(&image, run),
        Command::Keeper { channel } => std::process::exit(forebay::keeper::run(channel)),
        Command::Show(text) => output::print(&text),
    };
    done.map(|()| ExitCode::SUCCESS)
}

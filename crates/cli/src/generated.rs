//! Completion scripts and manual pages, made from the table of options in [`crate::args`].

use std::fs;
use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::args;
use crate::failure::Failure;
use crate::output::print;

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "forebay", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes `forebay.1` and a page for each subcommand.
pub(crate) fn manual(directory: &Path) -> Result<(), Failure> {
    let command = args::command();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let pages = verbs.map(|verb| {
        let name = verb.get_name();
        verb.clone().display_name(format!("forebay-{name}")).bin_name(format!("forebay {name}"))
    });
    for page in std::iter::once(command.clone()).chain(pages) {
        let name = page.get_display_name().unwrap_or("forebay").to_owned();
        let path = directory.join(format!("{name}.1"));
        write(&page, &name, &path).map_err(|error| {
            let path = path.display();
            Failure::failed(format!("cannot write {path}: {error}; give a writable directory"))
        })?;
    }
    Ok(())
}

fn write(page: &clap::Command, name: &str, path: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(page.clone()).title(name).render(&mut text)?;
    // The examples and tables keep their lines.
    let text = String::from_utf8_lossy(&text);
    fs::write(path, text.replace(".SH EXTRA\n", ".SH \"EXAMPLES AND NOTES\"\n.nf\n"))
}

//! The commands, one file each; what they share is in [`crate::target`] and [`crate::output`].

pub(crate) mod check;
mod create;
mod destroy;
mod doctor;
mod generated;
mod grow;
mod install;
mod list;
pub(crate) mod mount;
mod property;
mod quickstart;
mod quota;
mod snapshot;
mod status;
mod sync;
pub(crate) mod unmount;

use crate::arguments::Command;
use crate::control::protocol::{Answer, VERSION};
use crate::daemon;
use crate::error::{Error, Result};
use crate::output::Output;
use serde::Serialize;

/// Runs a command; returns its exit status.
///
/// # Errors
/// Whatever kept it from doing what was asked.
pub(crate) fn run(command: Command, output: &Output) -> Result<u8> {
    match command {
        Command::Create(arguments) => create::run(&arguments, output),
        Command::Mount(arguments) => mount::run(&arguments, output),
        Command::Unmount(arguments) => unmount::run(&arguments, output),
        Command::Status(arguments) => return status::run(&arguments, output),
        Command::List(arguments) => list::run(&arguments, output),
        Command::Snapshot(arguments) => snapshot::run(&arguments, output),
        Command::Clone(arguments) => snapshot::run_clone(&arguments, output),
        Command::Destroy(arguments) => destroy::run(&arguments.kind, output),
        Command::Get(arguments) => property::get(&arguments, output),
        Command::Set(arguments) => property::set(&arguments, output),
        Command::Quota(arguments) => quota::run(&arguments, output),
        Command::Check(arguments) => return check::run(&arguments, output),
        Command::Grow(arguments) => grow::run(&arguments, output),
        Command::Sync(arguments) => sync::run(&arguments, output),
        Command::Quickstart(arguments) => quickstart::run(&arguments, output),
        Command::Doctor => return doctor::run(output),
        Command::Completions { shell } => generated::completions(shell, output),
        Command::Manual { folder } => generated::manual(&folder, output),
        Command::Install(arguments) => install::run(&arguments, output),
        Command::Version => version(output),
        Command::Daemon => daemon::launch::serve(),
    }?;
    Ok(0)
}

fn version(output: &Output) -> Result<()> {
    #[derive(Serialize)]
    struct Version {
        marram: &'static str,
    }
    output.print(&Version { marram: VERSION }, || format!("marram {VERSION}\n"));
    Ok(())
}

/// The error for an answer that does not fit the question: a daemon of ours never gives one.
fn unexpected(answer: &Answer) -> Error {
    Error::failed(format!("the daemon answered something else: {answer:?}"))
}

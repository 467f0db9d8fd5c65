//! Completion in a shell: of commands and options, and of the datasets, snapshots, forks and pools
//! that there are at that moment.
//!
//! The script of a shell calls this program with the words so far. Nothing is changed by it, and
//! where something cannot be read, it offers less.

mod bash;
mod names;

use crate::arguments::definition;
use crate::output::PROGRAM;
use bash::Bash;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{CompleteEnv, Elvish, Fish, Powershell, Shells, Zsh};
use names::Sought;

/// The variable by which a script asks for completion.
const VARIABLE: &str = "MARRAM_COMPLETE";

const SHELLS: Shells<'static> = Shells(&[&Bash, &Elvish, &Fish, &Powershell, &Zsh]);

/// Answers a shell that asks for completion, and ends the process then.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(completed).var(VARIABLE).shells(SHELLS).complete();
}

/// The script that has a shell ask.
pub(super) fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    if let Some(shell) = SHELLS.completer(&shell.to_string()) {
        let written = shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script);
        written.expect("memory takes all that is written");
    }
    String::from_utf8_lossy(&script).into_owned()
}

/// The definition of the command line, with the names that arguments stand for.
fn completed() -> Command {
    with_names(definition(), "")
}

fn with_names(command: Command, above: &str) -> Command {
    let name = format!("{above}{}", command.get_name());
    let below = if above.is_empty() { " ".to_owned() } else { format!("{name} ") };
    let command = command.mut_subcommands(|one| with_names(one, &below));
    let verb = name.trim_start().to_owned();
    command.mut_args(|argument| match sought(&verb, &argument) {
        Some(sought) => argument.add(ArgValueCompleter::new(move |word: &std::ffi::OsStr| {
            names::candidates(sought, word)
        })),
        None => argument,
    })
}

/// What an argument of a command stands for; none for new names, and for what is no name.
fn sought(verb: &str, argument: &Arg) -> Option<Sought> {
    match (verb, argument.get_id().as_str()) {
        ("create", "dataset") | ("mount", "directory") => None,
        ("destroy snapshot", "names") => Some(Sought::Snapshot),
        ("destroy fork", "names") => Some(Sought::Fork),
        ("destroy dataset", "names") => Some(Sought::Dataset),
        ("promote", "name") | ("rollback", "to") => Some(Sought::Clone),
        ("release", "tag") => Some(Sought::Hold),
        ("get", "properties") | ("set", "defaults") => Some(Sought::Property),
        ("set", "settings") => Some(Sought::Setting),
        (_, "target" | "targets" | "directory" | "directories" | "pool" | "before" | "after") => {
            Some(Sought::Target)
        }
        (_, "dataset") => Some(Sought::Dataset),
        (_, "fork") => Some(Sought::Fork),
        (_, "snapshot" | "from") => Some(Sought::Snapshot),
        _ => None,
    }
}

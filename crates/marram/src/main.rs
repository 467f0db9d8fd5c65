//! The `marram` command, its daemon and its mount helpers: one program that wires the engines
//! together.
//!
//! Under its own name it is the command line ([`arguments`], [`commands`]); under a name like
//! `mount.marram` it behaves as `mount(8)` and `fsck(8)` expect of such a program ([`multicall`]).
//! The [`daemon`] serves mounted pools, and commands speak with it over a [`control`] socket; what
//! nobody has mounted is opened directly by the [`engine`].

mod arguments;
mod commands;
mod control;
mod daemon;
mod dead_mounts;
mod engine;
mod error;
mod identity;

mod mountinfo;
mod multicall;
mod names;
mod options;
mod output;
mod paths;
mod private_view;
mod process;
mod retention;
mod signatures;
mod sizes;
mod target;
mod timestamps;

use error::Kind;
use output::Output;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let name = words.first().and_then(|word| Path::new(word).file_name());
    if let Some(answer) = name.and_then(|name| name.to_str()).and_then(multicall::by_name) {
        return ExitCode::from(answer(&words[1..]));
    }
    commands::completion::answer_shell();
    let arguments = match arguments::parse(words.iter().cloned()) {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(commands::wrong_usage::answer(&error, &words)),
    };
    let output = Output::new(arguments.command.name(), arguments.json, arguments.quiet);
    match commands::run(arguments.command, &output) {
        Ok(0) if output::is_lost() => ExitCode::from(Kind::Partial.exit_status()),
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output.print_error(&error);
            ExitCode::from(error.kind.exit_status())
        }
    }
}

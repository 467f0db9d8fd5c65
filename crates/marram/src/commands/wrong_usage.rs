//! The answer to a command line that the definitions refuse: as text, and as JSON where that was
//! asked for. Words of other systems lead to the command that is meant.

use crate::arguments::{foreign_word, groups};
use crate::error::{Error, Kind};
use crate::names::printable;
use crate::output::{Output, PROGRAM};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Answers `error`, which came of `words`; returns the exit status. Help and version that were
/// asked for come this way too.
pub(crate) fn answer(error: &clap::Error, words: &[OsString]) -> u8 {
    if !error.use_stderr() {
        // A reader that has closed standard output has seen enough.
        let _unread = error.print();
        return 0;
    }
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let json = words.iter().take_while(|word| **word != "--").any(|word| *word == "--json");
    let output = Output::new(command_of(&words), json, false);
    let unknown = unknown_command(error, &words);
    match (unknown, json) {
        (Some(told), _) => output.print_error(&told),
        (None, true) => output.print_error(&plain(error)),
        // The same in the colours of the terminal, with the usage.
        (None, false) => {
            let _unread = error.print();
        }
    }
    Kind::Usage.exit_status()
}

/// The command that the words name, or else the program.
fn command_of(words: &[&str]) -> &'static str {
    let first = words.iter().find(|word| !word.starts_with('-'));
    let names = groups().iter().flat_map(|(_, names)| *names);
    names.copied().find(|name| first == Some(name)).unwrap_or(PROGRAM)
}

/// The answer to a command that is not there, or a kind of thing that cannot be destroyed.
fn unknown_command(error: &clap::Error, words: &[&str]) -> Option<Error> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let word = printable(word.clone());
    let near = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(near)) => near.first(),
        _ => None,
    };
    match command_of(words) {
        "destroy" => {
            let kind = near.map_or("snapshot", String::as_str);
            let told = format!("{word} is no kind of thing to destroy");
            Some(Error::usage(told).hint(format!(
                "the kinds are snapshot, fork and dataset: `marram help destroy {kind}` tells more"
            )))
        }
        PROGRAM => {
            let hint = foreign_word(&word)
                .or_else(|| near.map(|name| format!("did you mean `marram {name}`?")))
                .unwrap_or_else(|| "`marram --help` shows all commands".to_owned());
            let (hint, more) = hint.split_once('\n').unwrap_or((&hint, ""));
            let more = Some(more).filter(|more| !more.is_empty()).map(str::to_owned);
            let told = Error::usage(format!("there is no command {word}"));
            Some(told.details(more.into_iter()).hint(hint))
        }
        _ => None,
    }
}

/// An error of the definitions in the form of this program.
fn plain(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let mut paragraphs = text.trim().split("\n\n");
    let first = paragraphs.next().unwrap_or_default();
    let first: Vec<&str> = first.lines().map(str::trim).collect();
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "what is to be done is missing"
        }
        _ => &first.join(" "),
    };
    let message = message.strip_prefix("error: ").unwrap_or(message).to_owned();
    let tip = paragraphs.find_map(|one| one.trim_start().strip_prefix("tip: "));
    let hint =
        tip.map_or_else(|| "`marram help COMMAND` shows what it takes".into(), printable_tip);
    Error::usage(printable(message)).hint(hint)
}

fn printable_tip(tip: &str) -> String {
    printable(tip.to_owned())
}

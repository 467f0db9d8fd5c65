//! The main help: the verbs of every day with an example each, then the others in groups.
//!
//! Each command that is shown stands in one group, which a test sees to.

use super::examples;
use clap::Command;

/// Columns of the text.
const WIDTH: usize = 80;
/// Columns before what a command does.
const INDENT: usize = 15;

/// The groups, in their order. The verbs of the first one have an example each.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Every day",
        &[
            "mount", "status", "list", "snapshot", "run", "fork", "diff", "merge", "rollback",
            "undo", "unmount",
        ],
    ),
    ("To begin", &["quickstart", "create", "doctor"]),
    (
        "Snapshots, forks and datasets",
        &[
            "tx", "versions", "forks", "enter", "update", "clone", "log", "hold", "release",
            "rename", "promote", "destroy",
        ],
    ),
    (
        "Space, properties and rights",
        &["space", "get", "set", "quota", "allow", "disallow", "grow", "label"],
    ),
    ("To other pools, and backups", &["send", "receive"]),
    ("Single files", &["reflink", "range", "extents"]),
    ("Upkeep", &["check", "sync", "clients", "expel", "dedup", "defragment"]),
    ("This program", &["bench", "completions", "manual", "install", "uninstall", "version"]),
];

/// The groups of commands, each with its title and the names in it.
pub(crate) fn groups() -> &'static [(&'static str, &'static [&'static str])] {
    GROUPS
}

/// The main help of `command`, before `end`.
pub(super) fn text(command: &Command, end: &str) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{}\n\nUsage: marram COMMAND [ARGUMENT]...\n", wrapped(&about, 0));
    for (at, (title, names)) in GROUPS.iter().enumerate() {
        text.push_str(&format!("\n{title}:\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<12} {}\n", wrapped(&about, INDENT)));
            if let (0, Some((example, _))) = (at, examples::of(name).first()) {
                text.push_str(&format!("{:INDENT$}$ {example}\n", ""));
            }
        }
    }
    text.push_str(
        "\nWith every command:\n  --json         Print one JSON object, {\"version\", \"command\", \
         \"result\" or\n                 \"error\"}\n  -h, --help     Print what it takes, with \
         examples: as `marram help COMMAND`\n  -V, --version  Print the version\n\n",
    );
    text.push_str(end);
    text
}

/// A text in lines; all but the first begin with `indent` blanks.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if indent + line.len() + 1 + word.len() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, WIDTH, text};
    use crate::arguments::{AFTER_HELP, Arguments};
    use clap::{Command, CommandFactory};

    #[test]
    fn every_command_that_is_shown_stands_in_one_group() {
        let command = Arguments::command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped, "the table is in arguments/overview.rs");
    }

    #[test]
    fn the_overview_is_narrow_and_has_an_example_of_each_verb_of_every_day() {
        let text = text(&Arguments::command(), AFTER_HELP);
        for line in text.lines() {
            assert!(line.len() <= WIDTH, "{line}");
        }
        let examples = text.lines().filter(|line| line.trim_start().starts_with("$ marram "));
        assert_eq!(examples.count(), GROUPS[0].1.len(), "{text}");
    }
}

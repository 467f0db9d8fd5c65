//! The manual pages: one for each command, made from its definition and its examples, and the
//! overview.

use super::overview_page;
use super::roff::Roff;
use crate::arguments::{Arguments, examples_of, groups};
use crate::error::{Error, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// The name of the program, as its pages begin.
const PROGRAM: &str = "marram";

/// A manual page.
pub(in crate::commands) struct Page {
    /// Its section of the manual: 1 or 7.
    pub(in crate::commands) section: u8,
    /// The name of its file.
    pub(in crate::commands) file: String,
    text: String,
}

impl Page {
    /// Writes it into `folder`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(in crate::commands) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(&self.file);
        std::fs::write(&path, &self.text).map_err(|error| Error::system("write", &path, error))?;
        Ok(path)
    }
}

/// All pages.
pub(in crate::commands) fn pages() -> Vec<Page> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let overview = Page { section: 7, file: format!("{PROGRAM}.7"), text: overview_page::text() };
    let mut pages = vec![overview];
    add(&mut pages, &program);
    pages.sort_by(|one, other| one.file.cmp(&other.file));
    pages
}

/// Adds the pages of `command` and of all below it that are shown.
fn add(pages: &mut Vec<Page>, command: &Command) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push(Page { section: 1, file: format!("{name}.1"), text: text(command) });
    command.get_subcommands().filter(|one| !one.is_hide_set()).for_each(|one| add(pages, one));
}

fn text(command: &Command) -> String {
    let mut roff = Roff::default();
    let typed = command.get_bin_name().unwrap_or(command.get_name());
    let name = command.get_display_name().unwrap_or(command.get_name());
    roff.title(name, 1);
    roff.append(&definition(command));
    let is_program = typed == PROGRAM;
    if is_program {
        add_groups(&mut roff, command);
    }
    let notes = command.get_after_long_help().or(command.get_after_help());
    if let Some(notes) = notes.map(ToString::to_string) {
        roff.section("NOTES");
        notes.split("\n\n").for_each(|one| roff.paragraph(one));
    }
    let verb = typed.strip_prefix(PROGRAM).unwrap_or(typed).trim();
    if is_program {
        roff.section("EXAMPLES");
        let days = groups().first().map_or(&[][..], |(_, names)| names);
        for (line, what) in days.iter().filter_map(|name| examples_of(name).first()) {
            roff.example(line, what);
        }
    } else {
        roff.section("EXAMPLES");
        examples_of(verb).iter().for_each(|(line, what)| roff.example(line, what));
    }
    roff.section("SEE ALSO");
    roff.paragraph(&see_also(command, is_program));
    roff.into_text()
}

/// What the definition alone says.
fn definition(command: &Command) -> Vec<u8> {
    let man = Man::new(command.clone());
    let mut made = Vec::new();
    let written = man
        .render_name_section(&mut made)
        .and_then(|()| man.render_synopsis_section(&mut made))
        .and_then(|()| man.render_description_section(&mut made))
        .and_then(|()| man.render_options_section(&mut made));
    let has_kinds = command.get_bin_name() != Some(PROGRAM) && command.has_subcommands();
    let written = match has_kinds {
        true => written.and_then(|()| man.render_subcommands_section(&mut made)),
        false => written,
    };
    written.expect("memory takes all that is written");
    made
}

/// The commands in their groups.
fn add_groups(roff: &mut Roff, program: &Command) {
    roff.section("COMMANDS");
    for (title, names) in groups() {
        roff.part(title);
        for one in names.iter().filter_map(|name| program.find_subcommand(name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            roff.entry(&format!("{PROGRAM}-{}(1)", one.get_name()), &about);
        }
    }
}

fn see_also(command: &Command, is_program: bool) -> String {
    let kinds = command.get_subcommands().filter(|one| !one.is_hide_set() && !is_program);
    let kinds = kinds.filter_map(|one| one.get_display_name()).map(|name| format!("{name}(1)"));
    let own = [if is_program { "marram(7)" } else { "marram(1), marram(7)" }.to_owned()];
    own.into_iter().chain(kinds).collect::<Vec<_>>().join(", ")
}

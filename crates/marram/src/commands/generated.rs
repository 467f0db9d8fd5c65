//! Completions and manual pages, made from the same definitions as the command line itself.

use crate::arguments::Arguments;
use crate::error::{Error, Result};
use crate::output::{Output, write_out};
use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Completions {
    shell: String,
    script: String,
}

#[derive(Serialize)]
struct Manual {
    pages: Vec<PathBuf>,
}

pub(super) fn completions(shell: Shell, output: &Output) -> Result<()> {
    let script = completion_script(shell);
    if output.json {
        let result = Completions { shell: shell.to_string(), script };
        output.print(&result, String::new);
    } else {
        write_out(&script);
    }
    Ok(())
}

/// The completion script for `shell`.
pub(super) fn completion_script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "marram", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

pub(super) fn manual(folder: &Path, output: &Output) -> Result<()> {
    output.refuse_untold(folder)?;
    let pages = write_manual(folder)?;
    let result = Manual { pages };
    output.print(&result, String::new);
    Ok(())
}

/// Writes all manual pages into `folder`, and tells which they are.
///
/// # Errors
/// When the folder or a page cannot be written.
pub(super) fn write_manual(folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::system("make the folder", folder, error))?;
    let command = Arguments::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder)
        .map_err(|error| Error::system("write manual pages into", folder, error))?;
    let entries =
        std::fs::read_dir(folder).map_err(|error| Error::system("list", folder, error))?;
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("marram") && name.ends_with(".1"))
    };
    let mut pages: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_ours).collect();
    pages.sort();
    Ok(pages)
}

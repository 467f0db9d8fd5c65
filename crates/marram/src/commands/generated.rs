//! Completions and manual pages, made from the same definitions as the command line itself.

mod overview_page;
mod pages;
mod roff;

pub(super) use pages::{Page, pages};

use super::completion;
use crate::error::{Error, Result};
use crate::output::{Output, write_out};
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
    let script = completion::script(shell);
    if output.json {
        let result = Completions { shell: shell.to_string(), script };
        output.print(&result, String::new);
    } else {
        write_out(&script);
    }
    Ok(())
}

pub(super) fn manual(folder: &Path, output: &Output) -> Result<()> {
    output.refuse_untold(folder)?;
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::system("make the folder", folder, error))?;
    let written: Result<Vec<PathBuf>> = pages().iter().map(|page| page.write(folder)).collect();
    output.print(&Manual { pages: written? }, String::new);
    Ok(())
}

//! Chores that are crates of their own beside this one: benchmarks and outside suites.
//!
//! Only a run of theirs builds them, so that the house rules are checked without them. The chore
//! becomes the other program: a signal and the exit status are that program's.

use crate::failure::{Context, Result};
use crate::process::command;
use crate::project;
use std::os::unix::process::CommandExt;

/// Words that the other program understands.
#[derive(clap::Args, Default)]
pub(crate) struct Words {
    /// What the other program is asked for; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Words {
    /// Becomes the program of `package`, built now, in the folder of the caller. It is given
    /// `before`, and then these words. Returns only if it cannot be started.
    pub(crate) fn pass_to(&self, package: &str, before: &[&str]) -> Result<()> {
        let mut program = match project::built() {
            Some(built) => command(&[&built.join(package).to_string_lossy()]),
            None => {
                let mut cargo = command(&["cargo", "run", "--quiet", "--package", package]);
                cargo.arg("--manifest-path").arg(project::root().join("Cargo.toml")).arg("--");
                cargo
            }
        };
        program.args(before).args(&self.words);
        Err(program.exec()).context(|| format!("cannot start {package}"))
    }
}

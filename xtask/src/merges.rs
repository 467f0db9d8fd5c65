//! `cargo xtask merges`: merges of files and trees, here and by git, side by side.
//!
//! Without `--repository` the trees are generated; with it they are those of the merges in a real
//! repository, which is only read. The comparison is `suites/examples/merges`, built with the
//! profile `sim` (optimised, every assertion and overflow check on). It ends with failure if git
//! says anything else.

use crate::failure::Result;
use crate::process::{require, run_shown};
use crate::project;
use std::path::PathBuf;

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The first seed; the next rounds follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many rounds: each merges a tree of 150 generated texts, and ten generated trees.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Replay merges of this git repository instead.
    #[arg(long)]
    repository: Option<PathBuf>,
    /// How many merges of it, the newest first.
    #[arg(long, default_value_t = 1_000)]
    merges: u64,
    /// Only this merge of it.
    #[arg(long, requires = "repository")]
    commit: Option<String>,
    /// With --repository: whole trees, with what no side has touched.
    #[arg(long, requires = "repository")]
    whole: bool,
}

/// Runs the comparison.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    require(&[("git", "git")])?;
    let mut program = project::example("marram-suites", "merges", "sim");
    for (name, value) in
        [("--seed", arguments.seed), ("--rounds", arguments.rounds), ("--merges", arguments.merges)]
    {
        program.arg(name).arg(value.to_string());
    }
    if let Some(repository) = &arguments.repository {
        program.arg("--repository").arg(repository);
    }
    if let Some(commit) = &arguments.commit {
        program.args(["--commit", commit]);
    }
    if arguments.whole {
        program.arg("--whole");
    }
    run_shown(&mut program)
}

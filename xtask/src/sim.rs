//! `cargo xtask sim`: random histories against the model, on a pool in memory.
//!
//! The histories live in crate `sim`; this chore builds them with the profile `sim` (optimised,
//! every assertion and overflow check on) and passes the seed on. A failure prints the seed
//! and the steps that replay it.

use crate::failure::Result;
use crate::process::run_shown;
use crate::project;

/// What is asked for on the command line. As it stands it runs 100,000 steps.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The seed of the first history; the next ones follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps of each history.
    #[arg(long, default_value_t = 2_000)]
    steps: u64,
    /// How many histories.
    #[arg(long, default_value_t = 50)]
    histories: u64,
    /// What runs beside the model: a pool, the POSIX layer alone, or the model itself.
    #[arg(long, default_value = "pool")]
    home: String,
    /// Histories of a fork that is merged and updated again and again.
    #[arg(long)]
    branches: bool,
    /// Run only these steps of one history, as a failure printed them.
    #[arg(long)]
    keep: Option<String>,
}

/// Runs the histories.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut program = project::example("marram-sim", "history", "sim");
    let histories = if arguments.keep.is_some() { 1 } else { arguments.histories };
    for (name, value) in
        [("--seed", arguments.seed), ("--steps", arguments.steps), ("--histories", histories)]
    {
        program.arg(name).arg(value.to_string());
    }
    program.args(["--home", &arguments.home]);
    if arguments.branches {
        program.arg("--branches");
    }
    if let Some(keep) = &arguments.keep {
        program.args(["--keep", keep]);
    }
    run_shown(&mut program)
}

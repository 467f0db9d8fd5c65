//! `cargo xtask sim`: random histories against the model, on a pool in memory.
//!
//! The histories live in crate `sim`; this chore builds them with the profile `sim` (optimised,
//! every assertion and overflow check on) and passes the seed on. A failure prints the seed
//! and the steps that replay it.
//!
//! With `--two-pools` it is transactions over two pools and of one, which a test of that crate
//! runs: it takes fewer by itself.

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
    /// Histories of transactions over two pools: so many, with so many steps each.
    #[arg(long, conflicts_with_all = ["branches", "home", "keep"])]
    two_pools: bool,
    /// Run only these steps of one history, as a failure printed them.
    #[arg(long)]
    keep: Option<String>,
}

fn run_two_pools(arguments: &Arguments) -> Result<()> {
    let mut cargo = project::tests(&["--profile", "sim", "--package", "marram-sim"]);
    cargo.args(["--test", "suite", "--", "--nocapture"]);
    cargo.arg("histories_over_two_pools_are_those_of_transactions_one_after_the_other");
    for (name, value) in [
        ("MARRAM_TWO_POOLS_SEED", arguments.seed),
        ("MARRAM_TWO_POOLS_HISTORIES", arguments.histories),
        ("MARRAM_TWO_POOLS_STEPS", arguments.steps),
    ] {
        cargo.env(name, value.to_string());
    }
    run_shown(&mut cargo)
}

/// Runs the histories.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.two_pools {
        return run_two_pools(arguments);
    }
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

//! `cargo xtask faults`: a fault at each position at which a fixed run touches its device.
//!
//! The campaign lives in crate `sim` (`tests/faults`); this chore builds it with the profile `sim`
//! (optimised, every assertion and overflow check on). A violation is printed with the id
//! that replays it.

use crate::failure::Result;
use crate::process::run_shown;
use crate::project;

/// What is asked for on the command line. As it stands it makes every run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Chooses bits, and places of stray writes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this pool: small, wide, plain or uncached.
    #[arg(long)]
    setting: Option<String>,
    /// Make one of so many runs.
    #[arg(long, default_value_t = 1)]
    every: u64,
    /// Runs at a time.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Make only this run, as a violation printed it: small/read:17:flip:5023.
    #[arg(long)]
    replay: Option<String>,
}

/// Runs the campaign.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut program = project::example("marram-sim", "faults", "sim");
    for (name, value) in
        [("--seed", arguments.seed), ("--every", arguments.every), ("--jobs", arguments.jobs)]
    {
        program.arg(name).arg(value.to_string());
    }
    for (name, value) in [("--setting", &arguments.setting), ("--replay", &arguments.replay)] {
        if let Some(value) = value {
            program.args([name, value.as_str()]);
        }
    }
    run_shown(&mut program)
}

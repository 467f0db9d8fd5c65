//! `cargo xtask crash`: the states that a power cut could leave, each mounted and compared.
//!
//! The explorer lives in crate `sim` (`crash`); this chore builds it with the profile `sim`
//! (optimised, every assertion and overflow check on). It ends with failure if there is any
//! violation, and each is printed with the command that replays it.

use crate::failure::Result;
use crate::process::run_shown;
use crate::project;

/// What is asked for on the command line. As it stands it does what CI does.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many distinct states; the long form is 1000000.
    #[arg(long, default_value_t = 50_000)]
    states: u64,
    /// Decides the order of workloads and all samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Only the states of this workload: small:rename-over+fsync+append, random:7:60,
    /// idiom:replace:7:10.
    #[arg(long)]
    workload: Option<String>,
    /// Only this state, in full, as a violation printed it.
    #[arg(long)]
    replay: Option<String>,
    /// Plant a bug in the engine: the explorer has to find it, and ends with failure.
    #[arg(long)]
    bug: Option<String>,
}

/// Runs the explorer.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut cargo = project::cargo(&["run", "--quiet", "--profile", "sim"]);
    cargo.args(["--package", "marram-sim", "--example", "crash", "--"]);
    for (name, value) in [
        ("--states", arguments.states),
        ("--seed", arguments.seed),
        ("--threads", arguments.threads),
    ] {
        cargo.arg(name).arg(value.to_string());
    }
    for (name, value) in [
        ("--workload", &arguments.workload),
        ("--replay", &arguments.replay),
        ("--bug", &arguments.bug),
    ] {
        if let Some(value) = value {
            cargo.args([name, value.as_str()]);
        }
    }
    run_shown(&mut cargo)
}

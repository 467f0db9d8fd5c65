//! The project's own chores: `cargo xtask <chore>`.
//!
//! Everything that checks, tests, measures or fuzzes the project beyond `cargo test` is a chore
//! here, written in the project's own language, so that CI and a developer run the same code.

mod ci;
mod crash;
mod demonstration;
mod faults;
mod fuzz;
mod merges;
mod neighbour;
mod sim;
mod tests;
mod tidy;
mod watchdog;

use clap::{Parser, Subcommand};
use failure::Result;
use marram_lab::{failure, process, project, setup};
use neighbour::Words;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run everything that CI runs.
    Ci(ci::Arguments),
    /// Mount a pool, put something real into it, and show a snapshot.
    Quickstart(demonstration::Arguments),
    /// Check the house rules: layering, lengths, names, words, documents, golden files.
    Tidy(tidy::Arguments),
    /// Run real programs on a real mount of the release binary.
    #[command(disable_help_flag = true)]
    Real(Words),
    /// Fuzz the decoders.
    Fuzz(fuzz::Arguments),
    /// Run random histories against the model.
    Sim(sim::Arguments),
    /// Put a fault at each position of a fixed run.
    Faults(faults::Arguments),
    /// Mount and check the states that a power cut could leave.
    Crash(crash::Arguments),
    /// Merge files and trees here and by git, and compare.
    Merges(merges::Arguments),
    /// Record the terminal pictures of the documents, or those of the named examples.
    Picture(Words),
    /// Compare with other file systems.
    #[command(disable_help_flag = true)]
    Bench(Words),
}

fn main() -> std::process::ExitCode {
    match perform(Arguments::parse().chore) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn perform(chore: Chore) -> Result<()> {
    match chore {
        Chore::Ci(arguments) => ci::run(&arguments),
        Chore::Quickstart(arguments) => demonstration::run_all(&arguments),
        Chore::Tidy(arguments) => tidy::run(&arguments),
        Chore::Real(words) => words.pass_to("marram-suites", &["real"]),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Sim(arguments) => sim::run(&arguments),
        Chore::Faults(arguments) => faults::run(&arguments),
        Chore::Crash(arguments) => crash::run(&arguments),
        Chore::Merges(arguments) => merges::run(&arguments),
        Chore::Picture(words) => words.pass_to("marram-suites", &["picture"]),
        Chore::Bench(words) => words.pass_to("marram-bench", &[]),
    }
}

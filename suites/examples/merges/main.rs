//! Merges here and by git, side by side: what `cargo xtask merges` starts.
//!
//! A base is put into a pool in memory and into a git repository, two sides change it, and both
//! merge: by [`family`] what `marram merge --text` does, by [`git`] what `git merge` does. The same
//! paths must be in conflict, and all others must hold the same.
//!
//! The two sides come from a seed (texts in [`texts`], whole trees in [`trees`], branches that are
//! merged again and again in [`histories`]), or are the parents of merges in a real repository
//! ([`replay`]).

mod family;
mod git;
mod histories;
mod judge;
mod replay;
mod texts;
mod trees;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trees of one round.
const TREES: u64 = 10;
/// Branches of one round.
const BRANCHES: u64 = 5;

/// Failures in words.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// An error as words.
pub(crate) fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What is asked for on the command line.
#[derive(Parser)]
struct Request {
    /// The first seed; the next rounds follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many rounds: each merges a tree of generated texts, ten generated trees, and five
    /// branches.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Replay merges of this repository instead.
    #[arg(long)]
    repository: Option<PathBuf>,
    /// How many merges of it.
    #[arg(long, default_value_t = 1_000)]
    merges: usize,
    /// Only this merge of it.
    #[arg(long)]
    commit: Option<String>,
    /// Whole trees, with what no side has touched.
    #[arg(long)]
    whole: bool,
}

fn main() -> ExitCode {
    match perform(&Request::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn perform(request: &Request) -> Result<bool> {
    if let Some(repository) = &request.repository {
        return replay::run(repository, (request.merges, request.whole), request.commit.as_deref());
    }
    let mut total = texts::Report::default();
    let mut trees = trees::Report::default();
    let mut histories = histories::Report::default();
    for seed in request.seed..request.seed + request.rounds {
        total.add(texts::round(seed)?);
        for tree in 0..TREES {
            trees.add(&trees::round(seed * TREES + tree)?);
        }
        for branch in 0..BRANCHES {
            histories.add(&histories::round(seed * BRANCHES + branch)?);
        }
    }
    println!("{total}\n{trees}\n{histories}");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{histories, texts, trees};

    #[test]
    fn generated_texts_and_trees_are_merged_as_git_merges_them() {
        let mut texts = texts::Report::default();
        for seed in 1..=3 {
            texts.add(texts::round(seed).unwrap());
        }
        assert!(texts.conflicts > 0, "{texts}");
        assert!(texts.repeated_lines * 20 < texts.texts, "{texts}");
        let mut report = trees::Report::default();
        for seed in 1..=12 {
            report.add(&trees::round(seed).unwrap());
        }
        assert!(report.clean > 0 && report.conflicted > 0, "{report}");
    }

    #[test]
    fn a_branch_that_is_merged_again_and_again_is_merged_as_by_git() {
        let mut report = histories::Report::default();
        for seed in 1..=6 {
            report.add(&histories::round(seed).unwrap());
        }
        assert!(report.repeated > 30 && report.crossed > 5 && report.conflicted > 5, "{report}");
    }
}

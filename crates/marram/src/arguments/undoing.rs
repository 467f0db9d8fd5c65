//! Arguments of the commands about what was done to a pool, and of those that give other names.

use super::format::{FormatArguments, TARGET_HELP};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `log`.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Only the last so many
    #[arg(long, short = 'l', value_name = "COUNT")]
    pub(crate) last: Option<usize>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `undo`.
#[derive(Debug, Args)]
pub(crate) struct UndoArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The operation, as `marram log` numbers it; the last one if left out, also if that was an
    /// undo: then it is done again. A snapshot is taken away only by its number. What one command
    /// did together in one step, as `snapshot --recursive` does, goes back together: any of its
    /// numbers stands for all of it
    pub(crate) number: Option<u64>,
    /// Also where something was changed later: that goes back too, until an undo of this one
    #[arg(long)]
    pub(crate) force: bool,
    /// Only say what would be taken back
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Do not ask at a terminal
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// Arguments of `rename`.
#[derive(Debug, Args)]
pub(crate) struct RenameArguments {
    /// The snapshot; or with --dataset the pool, or a path inside a mounted one
    #[arg(value_name = "TARGET[@NAME]", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The new name: of a snapshot without its dataset
    pub(crate) name: String,
    /// The dataset or fork that gets the name, or whose snapshot does
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
}

/// Arguments of `promote`.
#[derive(Debug, Args)]
pub(crate) struct PromoteArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The clone or fork, if another than the target's own
    pub(crate) name: Option<String>,
}

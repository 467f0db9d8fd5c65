//! Arguments of `destroy`: each kind of thing is named in the same way.

use super::format::TARGET_HELP;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `destroy`.
#[derive(Debug, Args)]
pub(crate) struct DestroyCommandArguments {
    /// What kind of thing to destroy
    #[command(subcommand)]
    pub(crate) kind: DestroyKind,
}

/// What kind of thing to destroy.
#[derive(Debug, Subcommand)]
pub(crate) enum DestroyKind {
    /// Destroy snapshots, also ranges of them
    Snapshot(DestroyArguments),
    /// Destroy forks with all their snapshots
    Fork(DestroyArguments),
    /// Destroy datasets with all their snapshots
    Dataset(DestroyArguments),
}

/// What to destroy.
#[derive(Debug, Args)]
pub(crate) struct DestroyArguments {
    /// A pool, or a path inside a mounted one; a snapshot may stand at its end, as everywhere
    #[arg(value_name = "TARGET[@NAME]", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Names of what is destroyed, all of it or nothing; of snapshots also FIRST..LAST, by age and
    /// with both ends
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The dataset: of snapshots the one that has them, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    #[command(flatten)]
    pub(crate) consent: ConsentArguments,
}

/// How sure the user is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ConsentArguments {
    /// Only list what would go and how many bytes would come back
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Give the space back at once, instead of keeping what goes for `marram undo` as long as the
    /// property undo says (1h by default) and the space is not needed
    #[arg(long)]
    pub(crate) now: bool,
}

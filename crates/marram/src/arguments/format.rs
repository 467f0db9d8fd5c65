//! What many commands take: a target, and how a list is printed.

use clap::Args;

/// What a target may be; said wherever one is taken.
pub(super) const TARGET_HELP: &str = "\
TARGET is a pool (its file or block device) or any path inside a mounted Marram file system. \
A pool stands for its root dataset and a path for the dataset that is mounted there, unless \
--dataset NAME names another. A snapshot is named by @NAME at the end of a target: \
work.pool@before, /mnt@before.";

/// How a list is printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArguments {
    /// No header, and tabs between columns: for scripts
    #[arg(long = "no-header", short = 'H')]
    pub(crate) no_header: bool,
    /// Sizes in bytes and times in seconds
    #[arg(long, short = 'p')]
    pub(crate) exact: bool,
}

//! Which paths a comparison or a merge is about.

use clap::Args;
use std::path::PathBuf;

/// A part of what differs.
#[derive(Debug, Args)]
pub(crate) struct SelectionArguments {
    /// Leave out what a pattern of .gitignore matches: target/, *.o, /build; for more again
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Leave out what the .gitignore files there and .git/info/exclude leave out, and .git itself
    #[arg(long)]
    pub(crate) gitignore: bool,
    /// Only these files and directories, behind a --: from the root on, or paths in there
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

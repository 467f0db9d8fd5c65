//! Arguments of `send` and `receive`.

use super::format::TARGET_HELP;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The snapshot; with --resume only the home
    #[arg(value_name = "TARGET@NAME", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Send only what has changed since this older snapshot, which the receiver must have: NAME, or
    /// DATASET@NAME
    #[arg(long, short = 'i', value_name = "NAME")]
    pub(crate) from: Option<String>,
    /// The snapshot's dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// Send the rest of a stream that was cut: the token is what the receiver has printed, and says
    /// which snapshot it is
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["from", "dataset"])]
    pub(crate) resume: Option<String>,
    /// Tell on standard error how far it is; with --json as lines of JSON
    #[arg(long)]
    pub(crate) progress: bool,
    /// Write the stream to this new file instead of standard output; `marram check FILE` verifies
    /// it
    #[arg(long, value_name = "FILE")]
    pub(crate) to_file: Option<PathBuf>,
}

/// Arguments of `receive`.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArguments {
    /// The pool or cluster home that receives, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The dataset: a full stream makes it, an incremental one brings it further
    pub(crate) dataset: String,
    /// Take a dataset that has changed since the stream's base back to that first; what it was is
    /// kept as a snapshot, and no snapshot is destroyed. Access times that have moved are no change
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    /// Keep what has come when the stream is cut: `send --resume TOKEN` goes on from there. The
    /// error tells the token, and so does --token. A cluster home keeps none
    #[arg(long, short = 's')]
    pub(crate) resumable: bool,
    /// Tell on standard error how far it is; with --json as lines of JSON
    #[arg(long)]
    pub(crate) progress: bool,
    /// Read the stream from this file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from_file: Option<PathBuf>,
    /// Receive nothing; tell the token of a stream for this dataset that was cut
    #[arg(long, conflicts_with_all = ["force", "resumable", "from_file", "abort"])]
    pub(crate) token: bool,
    /// Receive nothing; drop what is kept of a stream for this dataset that was cut
    #[arg(long, conflicts_with_all = ["force", "resumable", "from_file"])]
    pub(crate) abort: bool,
}

//! Arguments of `tx`.

use super::format::{FormatArguments, TARGET_HELP};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `tx run` does, at length.
const RUN_HELP: &str = "\
The command and all that it starts see the dataset as it was when they began, at the paths and \
with the inode numbers that it has; every other process sees nothing of what they do. If the \
command exits with status 0, all of it comes into the dataset at once, and is durable; else \
nothing of it was ever there. It is not there either if anything is killed, or the machine stops.

The commit is refused if others have changed anything that the command has read or written: names \
and their absence, listings, contents, attributes, rights, links, extended attributes. What was \
changed is named, and with --retry the command is run again.

With --with it is one transaction over several datasets of a pool, or of two: all of what the \
command does in them happens, or nothing of it; in each pool at one moment.

Only what lies in the datasets is in the transaction: what the command does elsewhere, as in /tmp \
or over the network, happens. `marram undo` takes a commit back. In a command of `marram tx run` \
it is a transaction inside of that one: it commits into it, and fails without a trace in it.

Exit status: that of the command, 128 and the signal's number if a signal ended it, and nothing \
was changed; 123 if the commit was refused; 122 if it is not known whether it was done (`marram \
tx show TARGET ID` tells); 125 if marram could not do its part, 126 if the command cannot be run, \
127 if it is not there. With --json an object on standard output tells all these apart.";

/// What `tx resolve` does, at length.
const RESOLVE_HELP: &str = "\
A transaction over two pools is prepared in one, and the commit of the other decides. If that \
pool cannot be asked, it is in doubt: its datasets can neither be read nor changed, and `marram \
status` names it. Without an option the other pool is asked, mounted or not, where it was.

With --commit or --abort nobody is asked. If the other pool has decided otherwise, one pool has \
the transaction and the other has not. The log of operations has the command, and the pool keeps \
the decision until the other one is found to agree, or until --forget.";

/// Arguments of `tx`.
#[derive(Debug, Args)]
pub(crate) struct TxArguments {
    /// What to do
    #[command(subcommand)]
    pub(crate) kind: TxKind,
}

/// What to do about transactions.
#[derive(Debug, Subcommand)]
pub(crate) enum TxKind {
    /// Run a command so that all it does happens at once, or not at all
    #[command(after_long_help = RUN_HELP)]
    Run(TxRunArguments),
    /// Begin a transaction that stays open for several commands, and print its id
    Begin(TxBeginArguments),
    /// Bring all that was done in an open transaction into the dataset, at once, or nothing of it
    Commit(TxNamedArguments),
    /// End an open transaction without a trace
    Abort(TxNamedArguments),
    /// Tell what an open transaction has changed so far
    Diff(TxDiffArguments),
    /// List the transactions that are open, or being committed or aborted
    List(TxListArguments),
    /// Tell whether a transaction is open or was committed
    Show(TxNamedArguments),
    /// End a transaction over two pools that is in doubt
    #[command(after_long_help = RESOLVE_HELP)]
    Resolve(TxResolveArguments),
}

/// Arguments of `tx run`.
#[derive(Debug, Args)]
pub(crate) struct TxRunArguments {
    /// Run the command in a transaction that `tx begin` has begun, and leave it open
    #[arg(long, value_name = "ID", conflicts_with = "retry")]
    pub(crate) id: Option<String>,
    /// Run the command again, up to so many times, if its commit was refused
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retry: u32,
    /// A directory in the dataset, if that is not the one of the working directory
    #[arg(long = "in", value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// A directory in another dataset, also of one other pool, that is in the transaction too; may
    /// be repeated
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "id")]
    pub(crate) with: Vec<PathBuf>,
    /// Wait for all processes that the command leaves running, before the commit
    #[arg(long)]
    pub(crate) wait: bool,
    /// End all processes that the command leaves running, before the commit
    #[arg(long, conflicts_with = "wait")]
    pub(crate) kill: bool,
    /// The command and its words
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `tx list`.
#[derive(Debug, Args)]
pub(crate) struct TxListArguments {
    #[arg(long_help = TARGET_HELP, help = "A pool, or a path inside a mounted one")]
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `tx begin`.
#[derive(Debug, Args)]
pub(crate) struct TxBeginArguments {
    /// A directory in the dataset
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// A directory in another dataset, also of one other pool, that is in the transaction too; may
    /// be repeated
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) with: Vec<PathBuf>,
    /// After so long without anything done in it the transaction ends without a trace
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) idle: String,
}

/// Arguments of `tx commit`, `abort` and `show`.
#[derive(Debug, Args)]
pub(crate) struct TxNamedArguments {
    #[arg(long_help = TARGET_HELP, help = "A pool, or a path inside a mounted one")]
    pub(crate) target: PathBuf,
    /// The transaction, by its id or the beginning of it
    pub(crate) id: String,
}

/// Arguments of `tx resolve`.
#[derive(Debug, Args)]
pub(crate) struct TxResolveArguments {
    #[command(flatten)]
    pub(crate) named: TxNamedArguments,
    /// It is committed, whatever the other pool has
    #[arg(long, conflicts_with_all = ["abort", "forget"])]
    pub(crate) commit: bool,
    /// It is not committed, whatever the other pool has
    #[arg(long, conflicts_with = "forget")]
    pub(crate) abort: bool,
    /// Forget what was decided: the other pool will not ask any more
    #[arg(long)]
    pub(crate) forget: bool,
}

/// Arguments of `tx diff`.
#[derive(Debug, Args)]
pub(crate) struct TxDiffArguments {
    #[command(flatten)]
    pub(crate) named: TxNamedArguments,
    /// Show the lines that differ, as `diff -u` does
    #[arg(long)]
    pub(crate) patch: bool,
}

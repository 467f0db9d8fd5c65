//! Arguments of the commands that work in a fork at the path of the directory that was forked.

use super::format::TARGET_HELP;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit statuses of `run` and `enter`.
pub(super) const STATUS_HELP: &str = "\
Exit status: that of the command, 128 and the signal's number if a signal ended it; 125 if marram \
could not do its part, 126 if the command cannot be run, 127 if it is not there. If the command \
succeeded and its merge met conflicts, that of `marram merge`.";

/// What `run` does, at length.
pub(super) const RUN_HELP: &str = "\
The command and all that it starts see a fork at the path of the directory; every other process \
sees the directory itself, unchanged. When the command has ended, what it changed is told, and the \
fork is merged, kept or dropped: asked at a terminal, else kept. A kept fork is a fork like any \
other: `marram enter NAME`, `marram diff`, `marram merge` and `marram destroy fork` go on with it.

Only what lies in the directory is in the fork: what the command does elsewhere, as in /tmp or \
over the network, happens. It is no jail for programs that mean harm.

With --json the last thing on standard output is one JSON object, and what the command itself \
writes there goes to standard error.

Exit status: that of the command, 128 and the signal's number if a signal ended it; 125 if marram \
could not do its part, 126 if the command cannot be run, 127 if it is not there. If the command \
succeeded and its merge met conflicts, that of `marram merge`.";

/// What becomes of the fork, and of what is left running in it.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SessionArguments {
    /// Merge the fork into the directory if the command succeeded, and drop it; else keep it
    #[arg(long, conflicts_with_all = ["drop", "keep", "ask"])]
    pub(crate) merge: bool,
    /// Drop the fork, however the command ended
    #[arg(long, conflicts_with_all = ["keep", "ask"])]
    pub(crate) drop: bool,
    /// Keep the fork; so it is without a terminal
    #[arg(long, conflicts_with = "ask")]
    pub(crate) keep: bool,
    /// Ask what to do; so it is at a terminal
    #[arg(long)]
    pub(crate) ask: bool,
    /// Wait for all processes that the command leaves running, before anything is decided
    #[arg(long)]
    pub(crate) wait: bool,
    /// End all processes that the command leaves running, before anything is decided
    #[arg(long, conflicts_with = "wait")]
    pub(crate) kill: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Name of the fork; run-1, run-2 and so on if left out
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    /// The directory to fork, inside a mounted file system
    pub(crate) directory: PathBuf,
    /// The command and its words
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `enter`.
#[derive(Debug, Args)]
pub(crate) struct EnterArguments {
    /// The fork
    pub(crate) name: String,
    /// A pool, or a path inside a mounted one, if forks of several have that name
    #[arg(long, value_name = "TARGET", long_help = TARGET_HELP)]
    pub(crate) of: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    /// Run this command instead of a shell
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `view`, which become a command's surroundings.
#[derive(Debug, Args)]
pub(crate) struct ViewArguments {
    /// The directory that is seen
    #[arg(long)]
    pub(crate) shown: PathBuf,
    /// Where it is seen
    #[arg(long)]
    pub(crate) place: PathBuf,
    /// Where the mount is that the place lies in
    #[arg(long)]
    pub(crate) mount: PathBuf,
    /// What lies at the place: device and inode
    #[arg(long)]
    pub(crate) covered: String,
    /// Another directory that is seen; with those of the same number below
    #[arg(long)]
    pub(crate) also_shown: Vec<PathBuf>,
    /// Where it is seen
    #[arg(long)]
    pub(crate) also_place: Vec<PathBuf>,
    /// What lies there
    #[arg(long)]
    pub(crate) also_covered: Vec<String>,
    /// Mounts that are brought from another mount namespace: where they are there and here
    #[arg(long, requires = "brought_from")]
    pub(crate) brought_place: Vec<PathBuf>,
    /// That namespace, as the kernel shows it
    #[arg(long)]
    pub(crate) brought_from: Option<PathBuf>,
    /// Where to write why the command was not begun
    #[arg(long)]
    pub(crate) report: PathBuf,
    /// Where to say that the view is made
    #[arg(long)]
    pub(crate) made: PathBuf,
    /// Where to wait until the starter has seen it
    #[arg(long)]
    pub(crate) going: PathBuf,
    /// The working directory, if it lies in the place
    #[arg(long)]
    pub(crate) workdir: Option<PathBuf>,
    /// A standard file that lies in the place
    #[arg(long)]
    pub(crate) reopen: Vec<OsString>,
    /// What the command writes to standard output goes to standard error
    #[arg(long)]
    pub(crate) output_to_error: bool,
    /// The command and its words
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

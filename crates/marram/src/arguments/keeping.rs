//! Arguments of the commands that take snapshots and tell what they hold.

use super::format::{FormatArguments, TARGET_HELP};
use clap::Args;
use std::path::PathBuf;

/// What `--keep` takes, at length.
const KEEP_HELP: &str = "\
How many automatic snapshots stay: 24h,7d,4w,12m,3y keeps one of each of the last 24 hours, \
7 days, 4 weeks, 12 months and 3 years that have one, and a number alone so many of the newest. \
The one that an hour or day keeps is its newest; weeks begin on Monday, and all is in UTC. The \
snapshot is taken first. Only snapshots that --auto or --keep has taken are ever destroyed, and \
none that is held, mounted, or that a clone began as.";

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArguments {
    /// What to keep, and under which name; without a name with --auto and --keep
    #[arg(value_name = "TARGET@NAME", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// Also of all datasets below it, at the same moment: all of them or none
    #[arg(long, short = 'r')]
    pub(crate) recursive: bool,
    /// Name it by the present time, as in auto-2026-11-21T23-57-00Z
    #[arg(long)]
    pub(crate) auto: bool,
    /// As --auto, and destroy automatic snapshots that are too many, as in 24h,7d,4w
    #[arg(long, value_name = "RULE", long_help = KEEP_HELP)]
    pub(crate) keep: Option<String>,
    /// Only list what would be destroyed
    #[arg(long, short = 'n', requires = "keep")]
    pub(crate) dry_run: bool,
}

/// Arguments of `space`.
#[derive(Debug, Args)]
pub(crate) struct SpaceArguments {
    /// A pool or a path inside a mounted one; with snapshots named, what destroying them together
    /// would give back
    #[arg(value_name = "TARGET[@NAME[..NAME]]", required = true, long_help = TARGET_HELP)]
    pub(crate) targets: Vec<PathBuf>,
    /// The snapshots' dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// What destroying this fork would give back, also together with others and snapshots
    #[arg(long, value_name = "NAME")]
    pub(crate) fork: Vec<String>,
    /// What is saved by blocks that are shared, inside each dataset and between them; reads all
    /// metadata
    #[arg(long, conflicts_with_all = ["fork", "dataset"])]
    pub(crate) sharing: bool,
    /// What the files and directories in a directory take, and what deleting each would give back
    #[arg(long, conflicts_with_all = ["fork", "sharing"])]
    pub(crate) files: bool,
    /// How many levels of directories are listed one by one [default: 1, or with --top all]
    #[arg(long, value_name = "LEVELS", requires = "files")]
    pub(crate) depth: Option<usize>,
    /// Only so many, of which deleting gives back most
    #[arg(long, value_name = "COUNT", requires = "files")]
    pub(crate) top: Option<usize>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// What `expel` does, at length.
pub(super) const EXPEL_HELP: &str = "\
A daemon that does not answer is expelled by the others after ten seconds if one of them waits for \
it, else after thirty. This does it at once: its locks are free, its transactions end, and what it \
publishes from then on counts for nothing. It does no harm to one that lives: it learns of it, \
fails the calls of its programs until they let go of their locks, and comes back by itself. What \
it had answered and not published is then kept as the fork lost-SESSION-DATASET.";

/// What `dedup` does, at length.
pub(super) const DEDUP_HELP: &str = "\
Looks at all files below the directories, in windows of 128 KiB (or recordsize, if that is less), \
and lets equal ones share their blocks, within a dataset and between those of one pool. It \
compares the bytes, while programs go on, and changes nothing that they can see. Files under 2 KiB \
and such ends of others are left alone: they take hardly any space. A pool that is \
not mounted stands for its root dataset. Exits with 3 if something could not be read or shared.";

/// What `defragment` does, at length.
pub(super) const DEFRAGMENT_HELP: &str = "\
Looks at all files below the directories and writes anew what lies in many pieces, and what uses \
little of its blocks, which then come back. Works while programs go on, and changes nothing that \
they can see. What a snapshot, a fork or another file has too is left alone, as it would be stored \
twice. A mounted pool does this by itself now and then (mount option defragment=SECONDS, 0 is \
never); by hand it also looks at where the pieces lie. A pool that is not mounted stands for its \
root dataset. Exits with 3 if something was left undone.";

/// Arguments of the commands that make a pass over all files below some directories.
#[derive(Debug, Args)]
pub(crate) struct PassArguments {
    /// Directories of one pool, of any of its datasets and forks
    #[arg(value_name = "DIRECTORY", required = true)]
    pub(crate) directories: Vec<PathBuf>,
    /// The dataset, if another than the directory's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// Only tell what could be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Sizes in bytes
    #[arg(long, short = 'p')]
    pub(crate) exact: bool,
}

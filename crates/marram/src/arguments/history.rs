//! Arguments of the commands about forks, snapshots and what differs between them.

use super::format::{FormatArguments, TARGET_HELP};
use super::selection::SelectionArguments;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `fork`.
#[derive(Debug, Args)]
pub(crate) struct ForkArguments {
    /// The directory to fork, inside a mounted file system; a pool stands for all of a dataset
    #[arg(value_name = "DIRECTORY|POOL")]
    pub(crate) directory: PathBuf,
    /// Name of the fork: it appears as .marram/forks/NAME at the root of the mount
    pub(crate) name: String,
    /// Fork all of this dataset instead
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
}

/// Arguments of `forks`.
#[derive(Debug, Args)]
pub(crate) struct ForksArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Draw which fork began as which
    #[arg(long, short = 'g')]
    pub(crate) graph: bool,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `hold` and `release`.
#[derive(Debug, Args)]
pub(crate) struct HoldArguments {
    /// The snapshot
    #[arg(value_name = "TARGET@NAME", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Why it must stay, in a word; each word holds it for itself
    pub(crate) tag: String,
    /// The snapshot's dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
}

/// Arguments of `versions`.
#[derive(Debug, Args)]
pub(crate) struct VersionsArguments {
    /// A file or directory inside a mount, also one that is gone; a pool stands for all of a
    /// dataset
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// All of this dataset instead
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `rollback`.
#[derive(Debug, Args)]
pub(crate) struct RollbackArguments {
    /// The snapshot to go back to; of a file or directory inside a mount only that goes back, also
    /// if it was removed
    #[arg(value_name = "TARGET@NAME", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The snapshot's dataset, if another than the target's own: all of it goes back
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// TARGET, which has no @NAME then, becomes what this clone or fork of it is, or a snapshot
    /// of that; of a fork, name the directory that was forked
    #[arg(long, value_name = "CLONE[@NAME]")]
    pub(crate) to: Option<String>,
    /// Do not keep the present state as a snapshot
    #[arg(long)]
    pub(crate) discard: bool,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The first state: a directory of a mount, also below .marram, with @NAME as it was; or with
    /// @NAME a file, also one that was removed
    #[arg(value_name = "PATH[@NAME]")]
    pub(crate) before: PathBuf,
    /// The second state; if left out, the first as it is now, or for a fork what it began as is
    /// the first and the fork the second
    #[arg(value_name = "PATH[@NAME]")]
    pub(crate) after: Option<PathBuf>,
    /// What this fork has changed, wherever below its mount PATH is
    #[arg(long, value_name = "NAME", conflicts_with = "after")]
    pub(crate) fork: Option<String>,
    /// Tell how many bytes of each file differ
    #[arg(long, conflicts_with = "patch")]
    pub(crate) stat: bool,
    /// Tell all that is in directories that were made or removed, not only how many files
    #[arg(long, short = 'a', conflicts_with = "patch")]
    pub(crate) all: bool,
    /// Tell which lines of text differ, of files of up to 1 MiB in UTF-8, and renames of files, as
    /// patch(1) and `git apply` read them
    ///
    /// What goes comes first, and what is new last. Of a directory that was moved, the files are
    /// moved that have changed. Not in the patch, and only named in a line: content that is longer
    /// or no text, empty files that went, directories without files, symlinks and what else is no
    /// file, modes (but whether a new file can be run), owners and other attributes, and what
    /// became of further names of a file. patch(1) does not put a file in the place of a directory
    /// or a directory in that of a file, as `git apply` does.
    #[arg(long, short = 'p')]
    pub(crate) patch: bool,
    #[command(flatten)]
    pub(crate) selection: SelectionArguments,
}

/// Arguments of `merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    pub(crate) branch: BranchArguments,
    /// Destroy the fork when it has been merged
    #[arg(long, conflicts_with_all = ["preview", "paths", "exclude", "gitignore"])]
    pub(crate) drop: bool,
    /// Bring the changes into this directory instead, as when the one that was forked is gone
    ///
    /// Files are known by their paths, and what the fork began as is the base: all that it has
    /// changed since then comes, also what was merged elsewhere. An empty directory takes all that
    /// the fork has.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "markers")]
    pub(crate) into: Option<PathBuf>,
}

/// Arguments of `update`.
#[derive(Debug, Args)]
pub(crate) struct UpdateArguments {
    #[command(flatten)]
    pub(crate) branch: BranchArguments,
}

/// What `merge` and `update` have in common.
#[derive(Debug, Args)]
pub(crate) struct BranchArguments {
    /// A path inside the fork, or with --fork a pool or a path inside a mounted one
    #[arg(value_name = "FORK|TARGET", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The fork
    #[arg(long, value_name = "NAME")]
    pub(crate) fork: Option<String>,
    /// Only tell what would happen
    #[arg(long, short = 'n')]
    pub(crate) preview: bool,
    /// Where both have changed something, leave what the changes go into as it is: everywhere, or
    /// with PATH only there and below it; for more paths again
    ///
    /// PATH begins at the root of the fork, as conflicts do, or is a path in the fork itself.
    /// The longest that fits decides. One at which there is no conflict is refused.
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "/")]
    pub(crate) ours: Vec<PathBuf>,
    /// Where both have changed something, take what comes: everywhere, or with PATH only there and
    /// below it; for more paths again
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "/")]
    pub(crate) theirs: Vec<PathBuf>,
    /// Decide conflicts as FILE says (- is standard input): what --json printed, with the "choice"
    /// of each filled in: "ours", "theirs", "marked", or "text" with what the file is to hold as
    /// "text"
    ///
    /// Nothing is merged if one side has changed since that was printed. Conflicts that are left
    /// null stay conflicts, unless --ours or --theirs decides them.
    #[arg(long, value_name = "FILE", conflicts_with = "interactive")]
    pub(crate) decisions: Option<PathBuf>,
    /// Changes to different ranges of one file go together
    #[arg(long)]
    pub(crate) ranges: bool,
    /// Changes to different lines of one text go together
    #[arg(long)]
    pub(crate) text: bool,
    /// Ask about each conflict that is not decided yet, then merge in one step
    #[arg(long, short, conflicts_with = "preview")]
    pub(crate) interactive: bool,
    /// If there are conflicts, bring what the parent has got into the fork, and leave marks in the
    /// fork's texts where both have changed the same lines: to be edited there, and then merged
    ///
    /// The marks are those of git's style diff3. Nothing of the parent is changed then, and the
    /// exit status is 4. --ours PATH and --theirs PATH decide what is no text.
    #[arg(long, conflicts_with_all = [
        "interactive", "tool", "decisions", "paths", "exclude", "gitignore",
    ])]
    pub(crate) markers: bool,
    /// Have a program put each text together that both have changed, then merge in one step
    ///
    /// COMMAND is run by a shell, with the variables BASE, LOCAL (where the changes go), REMOTE
    /// (what comes) and MERGED (the result, which begins with the lines of both) that name files,
    /// as git has them. One without a $ gets LOCAL, MERGED and REMOTE as words: meld, vimdiff.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["interactive", "preview"])]
    pub(crate) tool: Option<String>,
    #[command(flatten)]
    pub(crate) selection: SelectionArguments,
}

//! Arguments of `allow` and `disallow`.

use super::format::FormatArguments;
use clap::Args;
use std::ffi::OsString;

/// Each verb that can be handed out, at length.
const VERBS_HELP: &str = "\
Verbs, separated by commas; each concerns all of the dataset, whosever its files are:
  snapshot  make snapshots of it
  destroy   destroy snapshots of it
  rollback  let the whole of it go back to a snapshot
  send      send its snapshots, with all content
  set       set its properties, but for acl, allow and userforks
  quota     see and set what owners may use; set quota and reservation
  all       each of these";

/// Arguments of `allow`.
#[derive(Debug, Args)]
#[command(after_help = VERBS_HELP)]
pub(crate) struct AllowArguments {
    /// A user or, behind an @, a group; verbs; the pool or a path inside a mounted one. With that
    /// alone: what has been allowed
    #[arg(required = true, num_args = 1..=3, value_names = ["[USER|@GROUP", "VERBS]", "TARGET"])]
    pub(crate) words: Vec<OsString>,
    /// The dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `disallow`.
#[derive(Debug, Args)]
#[command(after_help = VERBS_HELP)]
pub(crate) struct DisallowArguments {
    /// A user or, behind an @, a group
    #[arg(value_name = "USER|@GROUP")]
    pub(crate) grantee: String,
    /// What to take back, separated by commas
    #[arg(value_delimiter = ',', required = true)]
    pub(crate) verbs: Vec<String>,
    /// A pool, or a path inside a mounted one
    #[arg(long_help = super::TARGET_HELP)]
    pub(crate) target: std::path::PathBuf,
    /// The dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

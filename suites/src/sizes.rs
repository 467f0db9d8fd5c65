//! How much a script does, where its own idea of that is not wanted.

/// Sizes of scripts; each belongs to one or two of them.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Sizes {
    /// Calls of `differential`: a million, or 20,000 when short.
    #[arg(long)]
    pub(super) calls: Option<u64>,
    /// Operations of `fsx` in all: 200,000, or 40,000 when short.
    #[arg(long)]
    pub(super) operations: Option<u64>,
    /// Seeds that `fsx` shares its operations between: 4.
    #[arg(long)]
    pub(super) seeds: Option<u64>,
    /// Seconds of `stress` in all: 3600, or 30 when short.
    #[arg(long)]
    pub(super) seconds: Option<u64>,
}

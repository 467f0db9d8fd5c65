//! Mounts: how one is asked for, and how it is reported.

use crate::options::MountOptions;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A mount to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MountRequest {
    /// Where.
    pub(crate) directory: PathBuf,
    /// What, and how.
    pub(crate) options: MountOptions,
}

/// A mount as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountReport {
    /// Where.
    pub(crate) directory: PathBuf,
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub(crate) source: String,
    /// Whether nothing can be changed through it.
    pub(crate) read_only: bool,
    /// Its options, as `/proc/mounts` shows them.
    pub(crate) options: String,
    /// The block device that stands for the pool in `/proc/mounts`, if one does.
    pub(crate) block_device: Option<PathBuf>,
}

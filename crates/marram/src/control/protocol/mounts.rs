//! Mounts: how one is asked for, and how it is reported.

use crate::mountinfo::{DeviceNumber, Sight};
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

/// A place from which a mount has been taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnmountedPlace {
    /// The mount.
    pub(crate) device: DeviceNumber,
    /// Where it was.
    pub(crate) directory: PathBuf,
    /// In which mount namespace.
    pub(crate) namespace: Option<u64>,
    /// It is only out of sight, and gone when nobody uses it any more.
    pub(crate) detached: bool,
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
    /// The device number of its files; some other versions leave it out.
    #[serde(default)]
    pub(crate) device: Option<DeviceNumber>,
    /// Nobody has it mounted or open any more, and it is being made durable: another may have its
    /// device number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_ended: bool,
    /// Whether it is seen where it was made, by the process that asks for a status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_sight: Option<bool>,
    /// Where it is seen otherwise, if it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) elsewhere: Vec<Sight>,
}

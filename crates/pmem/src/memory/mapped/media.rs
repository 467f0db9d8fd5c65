//! What an image's file lies on, and what that keeps.

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::AsFd;

/// What `statfs` calls tmpfs.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// What it calls hugetlbfs.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// What an image's file lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// Memory that a reboot takes away: tmpfs.
    Memory,
    /// A file that is written back page by page, in any order.
    File,
    /// A file in byte-addressable memory (DAX). It is used as any other file.
    Dax,
}

/// When an operation that has returned survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// At once.
    Each,
    /// With the next operation.
    Epoch,
    /// With the next checkpoint or `fsync`.
    Checkpoint,
}

impl Durable {
    /// All modes.
    pub const ALL: [Durable; 3] = [Durable::Each, Durable::Epoch, Durable::Checkpoint];

    /// How users name it.
    pub const fn name(self) -> &'static str {
        match self {
            Durable::Each => "each",
            Durable::Epoch => "epoch",
            Durable::Checkpoint => "checkpoint",
        }
    }
}

/// What it is, and what survives there.
impl fmt::Display for MediumKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, power_cut) = match self {
            MediumKind::Memory => ("tmpfs", "nothing a reboot"),
            MediumKind::File => ("an ordinary file", CHECKPOINTS),
            MediumKind::Dax => ("a DAX file, used as an ordinary one", CHECKPOINTS),
        };
        write!(out, "{what}: every operation survives a killed daemon, and {power_cut}")
    }
}

/// What survives a power cut where there are checkpoints.
const CHECKPOINTS: &str = "what the last fsync or checkpoint had a power cut: one moment";

impl MediumKind {
    /// What an open file lies on.
    ///
    /// # Errors
    /// What the system says; hugetlbfs, where there is no way yet, as [`Errno::OPNOTSUPP`].
    pub fn of(file: &impl AsFd) -> Result<MediumKind, Errno> {
        match fstatfs(file)?.f_type {
            TMPFS_MAGIC => return Ok(MediumKind::Memory),
            HUGETLBFS_MAGIC => return Err(Errno::OPNOTSUPP),
            _ => {}
        }
        let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let is_dax = found.stx_attributes.contains(StatxAttributes::DAX);
        Ok(if is_dax { MediumKind::Dax } else { MediumKind::File })
    }

    /// The mode that it keeps.
    pub fn durable(self) -> Durable {
        match self {
            MediumKind::Memory => Durable::Each,
            MediumKind::File | MediumKind::Dax => Durable::Checkpoint,
        }
    }

    /// Refuses a mode that it cannot keep.
    pub(super) fn check(self, asked: Durable) -> Result<(), String> {
        let kept = self.durable();
        if asked == kept {
            return Ok(());
        }
        let why = match self {
            MediumKind::Memory => "nothing on tmpfs survives a reboot, and all a killed daemon",
            MediumKind::File => "an ordinary file is written back page by page, in any order",
            MediumKind::Dax => "memory that is flushed line by line is not used as such yet",
        };
        let (asked, kept) = (asked.name(), kept.name());
        Err(format!("durable={asked} cannot be kept: {why}; leave it out, or say durable={kept}"))
    }
}

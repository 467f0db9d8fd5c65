//! What an image's file lies on, and what that keeps.

use super::devices::{DaxDevice, SYS, caches_survive};
use super::lines::Flush;
use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags, fstat, fstatfs, statx};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;

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
    /// A file in byte-addressable memory (DAX) that does not take `MAP_SYNC`. It is used as any
    /// other file.
    Dax,
    /// Byte-addressable memory, which is written back line by line.
    Lines {
        /// It is a device, and no file.
        is_device: bool,
        /// The processor's caches survive a power cut: no line is written back for it.
        caches_survive: bool,
    },
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
        if let MediumKind::Lines { is_device, caches_survive } = self {
            let what = if *is_device { "a DAX device" } else { "a DAX file" };
            let how = match caches_survive {
                true => "caches survive, so no line is written back",
                false => "lines are written back",
            };
            let survives = "every operation survives a killed daemon and a power cut";
            return write!(out, "{what} ({how}): {survives}");
        }
        let (what, power_cut) = match self {
            MediumKind::Memory => ("tmpfs", "nothing a reboot"),
            MediumKind::File => ("an ordinary file", CHECKPOINTS),
            _ => ("a DAX file without MAP_SYNC, used as an ordinary one", CHECKPOINTS),
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
    /// What the system says; hugetlbfs, and a DAX device that is no persistent memory or that this
    /// processor has no way to write back, as [`Errno::OPNOTSUPP`].
    pub fn of(file: &impl AsFd) -> Result<MediumKind, Errno> {
        let status = fstat(file)?;
        if FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice
            && let Some(device) = DaxDevice::of(Path::new(SYS), status.st_rdev)
        {
            if !device.is_persistent() || Flush::of_processor().is_none() {
                return Err(Errno::OPNOTSUPP);
            }
            let caches_survive = caches_survive(Path::new(SYS), "char", status.st_rdev);
            return Ok(MediumKind::Lines { is_device: true, caches_survive });
        }
        match fstatfs(file)?.f_type {
            TMPFS_MAGIC => return Ok(MediumKind::Memory),
            HUGETLBFS_MAGIC => return Err(Errno::OPNOTSUPP),
            _ => {}
        }
        let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        if !found.stx_attributes.contains(StatxAttributes::DAX) {
            return Ok(MediumKind::File);
        }
        if Flush::of_processor().is_none() || !super::takes_sync(file) {
            return Ok(MediumKind::Dax);
        }
        let caches_survive = caches_survive(Path::new(SYS), "block", status.st_dev);
        Ok(MediumKind::Lines { is_device: false, caches_survive })
    }

    /// The mode that it keeps, if no other is asked for.
    pub fn durable(self) -> Durable {
        match self {
            MediumKind::Memory | MediumKind::Lines { .. } => Durable::Each,
            MediumKind::File | MediumKind::Dax => Durable::Checkpoint,
        }
    }

    /// Refuses a mode that it cannot keep.
    pub(super) fn check(self, asked: Durable) -> Result<(), String> {
        let kept = self.durable();
        let has_lines = matches!(self, MediumKind::Lines { .. });
        if asked == kept || has_lines && asked == Durable::Epoch {
            return Ok(());
        }
        let why = match self {
            MediumKind::Memory => "nothing on tmpfs survives a reboot, and all a killed daemon",
            MediumKind::File => "an ordinary file is written back page by page, in any order",
            MediumKind::Dax => "a DAX file without MAP_SYNC is written back as an ordinary one",
            MediumKind::Lines { .. } => "what has returned is durable at once, or with the next",
        };
        let (asked, kept) = (asked.name(), kept.name());
        Err(format!("durable={asked} cannot be kept: {why}; leave it out, or say durable={kept}"))
    }
}

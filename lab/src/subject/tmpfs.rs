//! tmpfs: what the kernel's own way costs when nothing is stored anywhere.

use super::mounted::MountPoint;
use super::{Making, Subject};
use crate::failure::{Result, fail};
use crate::process::{command, run};
use std::path::Path;

/// Memory that goes with its mount, so it stays mounted as long as it lives: what is measured after
/// a remount is warm here.
pub(super) struct Tmpfs {
    point: MountPoint,
}

impl Tmpfs {
    pub(super) fn make(folder: &Path, making: &Making) -> Result<Self> {
        let point = MountPoint::make(folder.join("mount"))?;
        let mut options = format!("size={}", making.size_bytes);
        if let Some(files) = making.files_max {
            options.push_str(&format!(",nr_inodes={files}"));
        }
        run(command(&["mount", "-t", "tmpfs", "-o", &options, "marram_peer"]).arg(point.path()))?;
        Ok(Self { point })
    }
}

impl Subject for Tmpfs {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.point.is_mounted()? { Ok(()) } else { fail("the mount is gone") }
    }
}

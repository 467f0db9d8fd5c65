//! bindfs over ext4: what a FUSE file system costs that stores nothing itself.

use super::mounted::MountPoint;
use super::{Kind, Making, Subject, Traffic, kernel::KernelFileSystem};
use crate::failure::Result;
use crate::process::{OwnedChild, command, require};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// The mount of bindfs goes before the file system under it.
pub(super) struct Passthrough {
    daemon: Option<OwnedChild>,
    point: MountPoint,
    below: KernelFileSystem,
}

impl Passthrough {
    pub(super) fn make(folder: &Path, making: &Making) -> Result<Self> {
        require(&[("bindfs", "bindfs")])?;
        let below = KernelFileSystem::make(Kind::Ext4, &folder.join("below"), making)?;
        let point = MountPoint::make(folder.join("over"))?;
        let mut made = Self { daemon: None, point, below };
        made.start()?;
        Ok(made)
    }

    fn start(&mut self) -> Result<()> {
        let mut bindfs = command(&["bindfs", "-f", "--multithreaded", "-o", "suid,dev"]);
        bindfs.arg(self.below.root()).arg(self.point.path());
        self.daemon = Some(OwnedChild::start(&mut bindfs)?);
        self.point.wait_until_mounted(LIMIT)
    }
}

impl Subject for Passthrough {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        self.below.mount()?;
        self.start()
    }

    fn unmount(&mut self) -> Result<()> {
        self.point.unmount()?;
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait(LIMIT)?;
        }
        self.below.unmount()
    }

    fn check(&self) -> Result<()> {
        self.below.check()
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(OwnedChild::id)
    }

    fn device(&self) -> Option<&Path> {
        self.below.device()
    }

    fn traffic(&self) -> Result<Traffic> {
        self.below.traffic()
    }

    // FUSE does not pass `syncfs` on without a block device, so the file system below is told.
    fn sync(&self) -> Result<()> {
        self.below.sync()
    }
}

//! Ext2 and ext3 images in user space: fuse2fs of e2fsprogs on a loop device.

use super::mounted::{LoopDevice, MountPoint};
use super::{Making, Subject, Traffic, make_image};
use crate::failure::{Result, fail};
use crate::process::{OwnedChild, command, require, run};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Makes an image on a device, with as many inodes as there are to be files.
pub(super) fn make_on(device: &LoopDevice, format: &str, making: &Making) -> Result<()> {
    require(&[("mke2fs", "e2fsprogs"), ("e2fsck", "e2fsprogs")])?;
    let mut make = command(&["mke2fs", "-q", "-F", "-t", format, "-E", "lazy_itable_init=0"]);
    if let Some(files) = making.files_max {
        make.arg("-N").arg(files.to_string());
    }
    run(make.arg(device.path()))
}

/// Has the stock checker look at it.
pub(super) fn check(device: &LoopDevice) -> Result<()> {
    run(command(&["e2fsck", "-f", "-n"]).arg(device.path()))
}

/// The mount goes before its daemon, and the device last.
pub(super) struct Fuse2fs {
    daemon: Option<OwnedChild>,
    point: MountPoint,
    device: LoopDevice,
}

impl Fuse2fs {
    pub(super) fn make(folder: &Path, making: &Making) -> Result<Self> {
        require(&[("fuse2fs", "fuse2fs")])?;
        let image = folder.join("image");
        make_image(&image, making)?;
        let device = LoopDevice::attach(&image, making)?;
        make_on(&device, "ext2", making)?;
        let point = MountPoint::make(folder.join("mount"))?;
        let mut made = Self { daemon: None, point, device };
        made.mount()?;
        Ok(made)
    }
}

impl Subject for Fuse2fs {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        let mut serve = command(&["fuse2fs", "-f", "-o", "fakeroot,allow_other"]);
        serve.arg(self.device.path()).arg(self.point.path());
        let mut daemon = OwnedChild::start(&mut serve)?;
        let mounted = self.point.wait_until_mounted(LIMIT);
        if let Some(status) = daemon.ended()? {
            return fail(format!("fuse2fs ended at once ({status})"));
        }
        self.daemon = Some(daemon);
        mounted
    }

    fn unmount(&mut self) -> Result<()> {
        self.point.unmount()?;
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait(LIMIT)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        check(&self.device)
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(OwnedChild::id)
    }

    fn device(&self) -> Option<&Path> {
        Some(self.device.path())
    }

    fn traffic(&self) -> Result<Traffic> {
        self.device.traffic()
    }

    /// It is not asked for `syncfs`: a sync of any of its folders writes all that there is.
    fn sync(&self) -> Result<()> {
        Ok(std::fs::File::open(self.root())?.sync_all()?)
    }
}

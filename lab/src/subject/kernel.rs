//! File systems of the kernel on a loop device.

use super::mounted::{LoopDevice, MountPoint};
use super::{Kind, Making, Subject, Traffic, make_image};
use crate::failure::Result;
use crate::process::{command, require, run};
use std::path::Path;

/// ext4, XFS or Btrfs. The mount goes before the device: fields drop in their order.
pub(super) struct KernelFileSystem {
    kind: Kind,
    point: MountPoint,
    device: LoopDevice,
}

impl KernelFileSystem {
    pub(super) fn make(kind: Kind, folder: &Path, making: &Making) -> Result<Self> {
        let (make, package): (&[&str], &str) = match kind {
            Kind::Xfs => (&["mkfs.xfs", "-q"], "xfsprogs"),
            Kind::Btrfs | Kind::BtrfsZstd | Kind::BtrfsLzo => {
                (&["mkfs.btrfs", "-q"], "btrfs-progs")
            }
            Kind::Ext2 => {
                (&["mke2fs", "-q", "-t", "ext2", "-E", "lazy_itable_init=0"], "e2fsprogs")
            }
            Kind::Ext3 | Kind::Ext3Journal => {
                (&["mke2fs", "-q", "-t", "ext3", "-E", "lazy_itable_init=0"], "e2fsprogs")
            }
            _ => (&["mkfs.ext4", "-q", "-E", "lazy_itable_init=0"], "e2fsprogs"),
        };
        require(&[(make[0], package)])?;
        std::fs::create_dir_all(folder)?;
        let image = folder.join("image");
        make_image(&image, making)?;
        let device = LoopDevice::attach(&image, making)?;
        let mut make = command(make);
        if let (Kind::Ext4, Some(files)) = (kind, making.files_max) {
            make.arg("-N").arg(files.to_string());
        }
        run(make.arg(device.path()))?;
        let point = MountPoint::make(folder.join("mount"))?;
        let mut made = Self { kind, point, device };
        made.mount()?;
        Ok(made)
    }
}

impl Subject for KernelFileSystem {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        let mut mount = command(&["mount"]);
        match self.kind {
            Kind::BtrfsZstd => mount.args(["-o", "compress=zstd:1"]),
            Kind::BtrfsLzo => mount.args(["-o", "compress=lzo"]),
            Kind::Ext2 => mount.args(["-t", "ext2"]),
            Kind::Ext3 => mount.args(["-t", "ext3", "-o", "data=ordered"]),
            Kind::Ext3Journal => mount.args(["-t", "ext3", "-o", "data=journal"]),
            _ => &mut mount,
        };
        run(mount.arg(self.device.path()).arg(self.point.path()))
    }

    fn unmount(&mut self) -> Result<()> {
        self.point.unmount()
    }

    fn device(&self) -> Option<&Path> {
        Some(self.device.path())
    }

    fn traffic(&self) -> Result<Traffic> {
        self.device.traffic()
    }

    fn check(&self) -> Result<()> {
        let words: &[&str] = match self.kind {
            Kind::Xfs => &["xfs_repair", "-n"],
            Kind::Btrfs | Kind::BtrfsZstd | Kind::BtrfsLzo => &["btrfs", "check"],
            _ => &["e2fsck", "-f", "-n"],
        };
        run(command(words).arg(self.device.path()))
    }
}

//! zfs-fuse 0.7 on a loop device. It has one daemon and one control socket a machine, so only one
//! such subject can live at a time, and none where somebody else's zfs-fuse runs.

use super::mounted::{LoopDevice, MountPoint};
use super::{Making, Subject, Traffic, make_image};
use crate::failure::{Result, fail};
use crate::process::{OwnedChild, command, require, run};
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// The pool's name, unlikely to be anybody else's.
pub const POOL: &str = "marram_peer";

/// The pool is exported, then the daemon ends, then the device goes.
pub(super) struct ZfsFuse {
    point: MountPoint,
    daemon: OwnedChild,
    device: LoopDevice,
    imported: bool,
}

impl ZfsFuse {
    /// With `compression` as zfs calls it.
    pub(super) fn make(folder: &Path, making: &Making, compression: &str) -> Result<Self> {
        require(&["zfs-fuse", "zpool", "zfs"].map(|program| (program, "zfs-fuse")))?;
        if run(&mut command(&["zpool", "list"])).is_ok() {
            return fail("another zfs-fuse is running; the peer wants one of its own");
        }
        let image = folder.join("image");
        make_image(&image, making)?;
        let device = LoopDevice::attach(&image, making)?;
        let daemon = OwnedChild::start(&mut command(&["zfs-fuse", "--no-daemon"]))?;
        wait_for_daemon()?;
        let point = MountPoint::make(folder.join("mount"))?;
        let mut create = command(&["zpool", "create", "-f", "-O", "atime=off", "-O"]);
        create.arg(format!("compression={compression}")).arg("-m");
        run(create.arg(point.path()).arg(POOL).arg(device.path()))?;
        Ok(Self { point, daemon, device, imported: true })
    }
}

fn wait_for_daemon() -> Result<()> {
    let start = Instant::now();
    while let Err(failure) = run(&mut command(&["zpool", "list"])) {
        if start.elapsed() > LIMIT {
            return Err(failure);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

impl Subject for ZfsFuse {
    fn root(&self) -> &Path {
        self.point.path()
    }

    fn mount(&mut self) -> Result<()> {
        run(&mut command(&["zpool", "import", "-d", "/dev", POOL]))?;
        self.imported = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        run(&mut command(&["zpool", "export", POOL]))?;
        self.imported = false;
        Ok(())
    }

    fn device(&self) -> Option<&Path> {
        Some(self.device.path())
    }

    fn traffic(&self) -> Result<Traffic> {
        self.device.traffic()
    }

    fn check(&self) -> Result<()> {
        run(&mut command(&["zdb", "-e", "-p", "/dev", "-bc", POOL]))
    }

    fn daemon(&self) -> Option<u32> {
        Some(self.daemon.id())
    }

    // Plain FUSE: the kernel writes back what it holds, but `syncfs` never reaches the daemon, and
    // zfs-fuse has no command to sync a pool. Setting a property waits for the transaction group
    // that it is in, and so for everything before. (An fsync of a file is for that file alone.)
    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(std::fs::File::open(self.root())?)?;
        run(&mut command(&["zfs", "set", "marram:synced=yes", POOL]))
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        if self.imported
            && let Err(failure) = run(&mut command(&["zpool", "export", "-f", POOL]))
        {
            eprintln!("warning: {failure}");
        }
    }
}
